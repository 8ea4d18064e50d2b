"""A tool server for the contract: an MCP server over stdio with the official SDK, with a tool for each outcome of a call."""

from __future__ import annotations

import asyncio
import os

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("toolbox")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
def write(text: str) -> str:
    """Return the text; not marked as read-only."""
    return text


@server.tool()
def fail() -> str:
    """Raise an error."""
    message = "the tool failed"
    raise ValueError(message)


@server.tool()
def crash() -> str:
    """Exit the server during the call."""
    os._exit(3)


@server.tool()
async def wait(seconds: float) -> str:
    """Return after some seconds."""
    await asyncio.sleep(seconds)
    return "done"


@server.resource("memo://notes", mime_type="text/plain")
def notes() -> str:
    """Return some notes."""
    return "everything is fine"


@server.prompt()
def greeting(name: str) -> str:
    """Return a greeting."""
    return f"Greet {name}."


if __name__ == "__main__":
    server.run("stdio")
