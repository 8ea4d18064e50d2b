"""A tool server of the story, by the official SDK over stdio: a small library with tools, resources, a template and a prompt."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("library", instructions="Look up a book before you lend it.")
_BOOKS = {"moby-dick": "Moby-Dick, by Herman Melville, is on shelf 4.", "walden": "Walden, by Henry David Thoreau, is on shelf 7."}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def find_book(title: str) -> str:
    """Say on which shelf a book is."""
    return next((where for where in _BOOKS.values() if title.lower() in where.lower()), "There is no such book.")


@server.resource("library://opening-hours")
def opening_hours() -> str:
    """When the library is open."""
    return "Monday to Friday, 9 to 18."


@server.resource("library://books/{slug}")
def book(slug: str) -> str:
    """One book."""
    return _BOOKS[slug]


@server.prompt()
def recommend(reader: str) -> str:
    """Ask for a book that suits a reader."""
    return f"Which of our books suits {reader}? Look at the shelves first."


if __name__ == "__main__":
    server.run("stdio")
