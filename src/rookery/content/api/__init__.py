"""The operations of content generation: the HTTP API, with the same routes under /api/agent and under /v1, and the MCP server `content`."""
