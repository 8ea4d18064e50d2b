"""Real servers and proxies of language models: what they answer, as recorded, and what Rookery does with it."""
