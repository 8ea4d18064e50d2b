"""Tool search measured: how often the right tool comes first or among five, and what a question costs at 1,000 tools."""
