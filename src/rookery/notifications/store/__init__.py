"""The tables of notifications and their queries: `queue` is for the dispatcher, the other modules for services."""
