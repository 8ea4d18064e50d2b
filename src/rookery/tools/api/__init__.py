"""The operations of the tools domain, under /api/v1/mcp."""
