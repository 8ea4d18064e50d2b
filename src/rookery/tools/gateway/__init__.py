"""The MCP server of Rookery: /mcp, /mcp/{server} and ?mode=search, in both protocol eras."""
