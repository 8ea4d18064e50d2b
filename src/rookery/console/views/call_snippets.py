"""The same call in other forms: for a shell, for the Python client, and as a message of MCP."""

from __future__ import annotations

import json
import pprint
import shlex
from collections.abc import Mapping
from urllib.parse import urlsplit

_MAX_LENGTH = 20_000


def build_snippets(api_url: str, mcp_url: str, server: str, tool: str, arguments: Mapping[str, object]) -> list[tuple[str, str]]:
    """
    Return titles and texts. The key is read from the environment variable `ROOKERY_KEY`.

    Args:
        api_url: The URL of the tools API.
        mcp_url: The URL of the gateway. Below it, each server has its own names.
    """
    body = json.dumps({"server": server, "tool": tool, "arguments": arguments}, ensure_ascii=False)
    curl = f"""curl -s {shlex.quote(f"{api_url}/tools/call")} \\
  -H "Authorization: Bearer $ROOKERY_KEY" -H 'Content-Type: application/json' \\
  -d {shlex.quote(body)}"""
    address = urlsplit(api_url)
    prefix = address.path.removesuffix("/api/v1/mcp")
    python = f"""import os

from rookery_client import Rookery

with Rookery({f"{address.scheme}://{address.netloc}{prefix}"!r}, api_key=os.environ["ROOKERY_KEY"]) as client:
    response = client.tools.call_tool(
        server={server!r}, tool={tool!r},
        arguments={_indent(pprint.pformat(dict(arguments), width=100, sort_dicts=False))},
    )
    print(response.result)"""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    mcp = f"POST {mcp_url}/{server}\n\n{json.dumps(message, ensure_ascii=False, indent=2)}"
    return [(title, text[:_MAX_LENGTH]) for title, text in (("curl", curl), ("Python client", python), ("MCP message", mcp))]


def _indent(text: str) -> str:
    return text.replace("\n", "\n        ")
