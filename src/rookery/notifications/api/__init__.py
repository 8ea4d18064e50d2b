"""The operations of notifications: /notify under /api/agent and under /v1, and the tools of the MCP server `notify`."""
