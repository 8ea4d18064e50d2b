"""Memory shared by agents: storing, recall, search and indexing."""
