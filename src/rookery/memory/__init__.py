"""Memory shared by agents: storing, recall, search and indexing (spec 2.5-2.8, 3.4, 4.3, 4.4)."""
