"""An MCP server over HTTP for tests, by the official SDK: `served.py PORT http|sse`, stateful in the handshake era."""

from __future__ import annotations

import json
import os
import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("served")
count = 0


@server.tool()
def pid() -> str:
    """Return the process id."""
    return str(os.getpid())


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def large(size: int) -> str:
    """Return a large text."""
    return "x" * size


@server.tool()
def headers(ctx: Context) -> str:
    """Return the headers of this request."""
    request = ctx.request_context.request
    return json.dumps({} if request is None else dict(request.headers))


@server.tool()
def crash() -> str:
    """End the server."""
    os._exit(7)


@server.resource("memo://insights")
def insights() -> str:
    """Return the insights so far."""
    return "everything is fine"


if __name__ == "__main__":
    port = int(sys.argv[1])
    if sys.argv[2] == "sse":
        server.run("sse", host="127.0.0.1", port=port)
    else:
        server.run("streamable-http", host="127.0.0.1", port=port, json_response="json" in sys.argv)
