"""The open streams of a key that loses its access: those of sessions, of MCP clients, and of the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.agents.session_makers import SESSIONS
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.stopwatch import Stopwatch
from tests.tools.gateway.clients import LATER, Json

BOUND_S = 3.0
"""Keys are checked every second. Before, streams of MCP clients ended after up to 3 s, and those of sessions after up to 5 s."""
SCOPES = ["sessions.read", "mcp:read", "console:read"]
CLIENT = {"name": "test", "version": "1"}
LOSSES: dict[str, tuple[str, str, str, object]] = {
    "an agent key is revoked": ("agent-keys", "POST", "/revoke", None),
    "an agent key is suspended": ("agent-keys", "POST", "/suspend", None),
    "an agent key is deleted": ("agent-keys", "DELETE", "", None),
    "an agent key loses its permissions": ("agent-keys", "PUT", "/permissions", {"permissions": ["brain:read"]}),
    "an agent key is restricted to other addresses": ("agent-keys", "PUT", "/ips", {"ips": ["192.0.2.1"]}),
    "an API key is suspended": ("api-keys", "POST", "/suspend", None),
    "an API key is deleted": ("api-keys", "DELETE", "", None),
    "an API key loses its scopes": ("api-keys", "PATCH", "", {"scopes": ["brain:read"]}),
}


@dataclass(frozen=True)
class Key:
    """A key that may follow streams."""

    id: str
    text: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a process of its own."""
    with run_server(tmp_path_factory.mktemp("open_streams")) as server_:
        yield server_


def _create_key(server: Server, kind: str, name: str) -> Key:
    field, body = ("key", {"permissions": SCOPES}) if kind == "agent-keys" else ("plaintext_key", {"scopes": SCOPES})
    response = server.client.post(f"/api/v1/{kind}", json={"name": name, **body})
    assert response.status_code == 201, response.text
    return Key(str(response.json()["id"]), str(response.json()[field]))


async def _open_mcp(http: httpx2.AsyncClient) -> dict[str, str]:
    """Start a session of an MCP client and return its header."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    opened = await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    return {"Mcp-Session-Id": opened.headers["mcp-session-id"]}


@asynccontextmanager
async def _open_streams(server: Server, key: Key, session: str) -> AsyncGenerator[list[httpx2.Response]]:
    """Open a stream of each kind: of a session, of an MCP client of either era, and of a page of the console."""
    meta: Json = {"io.modelcontextprotocol/protocolVersion": LATER, "io.modelcontextprotocol/clientCapabilities": {}}
    listen: Json = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    later: dict[str, Any] = {
        "json": {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": listen},
        "headers": {"MCP-Protocol-Version": LATER, "Mcp-Method": "subscriptions/listen"},
    }
    headers = {"Authorization": f"Bearer {key.text}", "Accept": "application/json, text/event-stream"}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANG_S))
        browser = await stack.enter_async_context(
            httpx2.AsyncClient(base_url=server.url, headers={"Sec-Fetch-Site": "same-origin"}, timeout=HANG_S)
        )
        signed_in = await browser.post("/console/sign-in", data={"key": key.text})
        assert signed_in.status_code == 303, signed_in.text
        streams = [
            http.stream("GET", f"{SESSIONS}/{session}/stream"),
            http.stream("GET", "/mcp", headers=await _open_mcp(http)),
            http.stream("POST", "/mcp", **later),
            browser.stream("GET", f"/console/sessions/{session}/stream"),
        ]
        responses = [await stack.enter_async_context(stream) for stream in streams]
        assert [response.status_code for response in responses] == [200] * len(streams)
        yield responses


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_open_streams_of_a_key_end_within_about_a_second(server: Server, loss: str) -> None:
    """Before, they went on for up to 5 s, and delivered events meanwhile."""
    kind, method, path, body = LOSSES[loss]
    key = _create_key(server, kind, loss)
    started = server.client.post(SESSIONS, json={"agent_type": "coder"})
    session = str(started.json()["session"]["id"])
    async with _open_streams(server, key, session) as streams:
        changed = await asyncio.to_thread(server.client.request, method, f"/api/v1/{kind}/{key.id}{path}", json=body)
        assert changed.is_success, changed.text
        with Stopwatch() as watch:
            await asyncio.gather(*(stream.aread() for stream in streams))

    assert watch.reference_s < BOUND_S
