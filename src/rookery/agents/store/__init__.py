"""The tables of agent work and their queries: the only SQL."""
