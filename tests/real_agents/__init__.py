"""Real agents, frameworks and bridges of others against Rookery: `make agents`."""
