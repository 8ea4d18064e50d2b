"""The tables of webhooks and their queries: `endpoints`, `events`, `deliveries` as verbs ask for them, `queue` for the dispatcher."""
