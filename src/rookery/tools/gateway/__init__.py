"""Rookery as one MCP server: /mcp, /mcp/{server} and ?mode=search, in both eras of the protocol (D-36)."""
