"""The tables of webhooks and their queries: `endpoints`, `events` and `deliveries` for services, `queue` for the dispatcher."""
