"""An MCP server of the later era over stdio whose tool `capabilities` returns what its client declares with the request."""

from __future__ import annotations

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("declaring")


@server.tool(structured_output=False)
def capabilities(ctx: Context) -> str:
    """Return the capabilities of this request."""
    declared = ctx.request_context.session.client_capabilities
    return "{}" if declared is None else declared.model_dump_json(by_alias=True, exclude_none=True)


server.run()
