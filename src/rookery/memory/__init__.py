"""Memory shared by agents: remember, recall, search, and what keeps the indexes in step with the records (spec 2.5-2.8, 3.4, 4.3, 4.4)."""
