"""Discovery of servers and tools: search, published documents and client set-ups."""
