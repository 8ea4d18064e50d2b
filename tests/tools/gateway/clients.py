"""Real MCP clients of both protocol eras, and raw messages, for a server in its own process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.deadlines import HANG_S
from tests.processes import Server

Json = dict[str, object]
ERAS = ("legacy", "auto")
"""Modes of the SDK's client: the older era with sessions, and the later stateless one."""
LATER = "2026-07-28"
_PREFIX = "io.modelcontextprotocol/"


@asynccontextmanager
async def open_client(
    gateway: Server, path: str = "/mcp", *, key: str | None = None, mode: str = "auto", **fields: object
) -> AsyncGenerator[Client]:
    """Open a client of the SDK at *path*; the mode "legacy" uses the older era. *fields* are those of `Client`."""
    headers = {"Authorization": f"Bearer {key or gateway.keys['agent_key']}"}
    http = httpx2.AsyncClient(headers=headers, timeout=HANG_S)
    transport = streamable_http_client(gateway.url + path, http_client=http)
    async with http, Client(transport, mode=mode, cache=None, **fields) as sdk_client:  # pyright: ignore[reportArgumentType] - fields by name
        yield sdk_client


async def post_later(
    gateway: Server, method: str, params: Mapping[str, object], path: str = "/mcp", *, key: str | None = None, **capabilities: object
) -> Json:
    """Send one message of the later era by hand; return the JSON-RPC response."""
    meta = {f"{_PREFIX}protocolVersion": LATER, f"{_PREFIX}clientCapabilities": capabilities}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": LATER, "Mcp-Method": method}
    if subject := params.get("name") or params.get("uri"):
        headers["Mcp-Name"] = str(subject)
    headers["Authorization"] = f"Bearer {key or gateway.keys['agent_key']}"
    async with httpx2.AsyncClient(timeout=HANG_S) as http:
        response = await http.post(gateway.url + path, json=body, headers=headers)
    return cast("Json", response.json())
