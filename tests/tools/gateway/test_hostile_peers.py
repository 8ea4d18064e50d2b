"""The gateway with hostile clients and servers, and with clients that do not read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import cast

import httpx2
import psutil
import pytest

from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.stopwatch import Stopwatch
from tests.tools.gateway.clients import LATER, Json
from tests.tools.makers import make_odd_entry

ACCEPT = {"Accept": "application/json, text/event-stream"}
HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}
OPENING: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
MAX_SESSIONS_PER_KEY = 100
META: Json = {"io.modelcontextprotocol/protocolVersion": LATER, "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with misbehaving upstreams only."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "servers.json").write_text(
        json.dumps({"mcpServers": {"odd": make_odd_entry(isolation="shared"), "own": make_odd_entry(isolation="per_key")}})
    )
    with run_server(folder) as server:
        server.client.post("/api/v1/mcp/tools/call", json={"server": "odd", "tool": "echo", "arguments": {"text": "hi"}})
        yield server
        assert "Traceback" not in server.log()


def create_key(gateway: Server, name: str) -> tuple[str, dict[str, str]]:
    """Create a key; return its id and the headers with it."""
    body = gateway.client.post("/api/v1/agent-keys", json={"name": name, "permissions": ["mcp:read", "mcp:write"]}).json()
    return str(body["id"]), {"Authorization": f"Bearer {body['key']}", **ACCEPT}


def make_later_message(method: str, headers: dict[str, str], **params: object) -> tuple[Json, dict[str, str]]:
    """Return the body and the headers of a message of the later era."""
    meta = {**META, **cast("Json", params.pop("meta", {}))}
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    name = {"Mcp-Name": str(params["name"])} if "name" in params else {}
    return body, {**headers, "MCP-Protocol-Version": LATER, "Mcp-Method": method, **name}


async def test_rejected_first_messages_take_no_session(gateway: Server) -> None:
    """A client that only sends invalid first messages uses up its own limit, gives way to itself, and locks no one out."""
    _, greedy = create_key(gateway, "greedy")
    _, modest = create_key(gateway, "modest")
    invalid = {**OPENING, "params": {**HELLO, "clientInfo": 1}}
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=HANG_S) as http:
        rejected = [await http.post("/mcp", json=invalid, headers=greedy) for _ in range(MAX_SESSIONS_PER_KEY + 5)]
        opened = [await http.post("/mcp", json=OPENING, headers=headers) for headers in (greedy, modest)]

    assert {response.status_code for response in rejected} == {200}
    assert all("error" in response.text for response in rejected)
    assert [response.status_code for response in opened] == [200, 200]


async def test_a_client_that_does_not_read_costs_little(gateway: Server) -> None:
    """Few notifications are buffered for a slow client, and the server does not wait for it."""
    _, headers = create_key(gateway, "idle")
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    arguments = {"method": "progress", "count": 40_000}
    body, request_headers = make_later_message("tools/call", headers, name="odd__flood", arguments=arguments, meta={"progressToken": "p"})

    async with (
        httpx2.AsyncClient(base_url=gateway.url, timeout=HANG_S) as http,
        http.stream("POST", "/mcp", json=body, headers=request_headers) as unread,
    ):
        assert unread.status_code == 200
        row = await eventually(lambda: _find_row(gateway, "flood"))
        growth = process.memory_info().rss - before

    assert cast("Json", row)["success"] is True
    assert growth < 80_000_000


async def test_pending_server_requests_per_client_are_limited(gateway: Server) -> None:
    """Each pending request costs memory; beyond 32 the server gets an error."""
    _, headers = create_key(gateway, "asked")
    request_count = 0
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=HANG_S) as http:
        session = {"Mcp-Session-Id": (await http.post("/mcp", json=OPENING, headers=headers)).headers["mcp-session-id"]}
        call: Json = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "own__ask", "arguments": {"count": 200}, "_meta": {}},
        }
        async with http.stream("POST", "/mcp", json=call, headers={**headers, **session}) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {") and "elicitation/create" in line:
                    request_count += 1
                elif line.startswith("data: {"):
                    break

    assert request_count == 32


@pytest.mark.parametrize("action", ["revoke", "suspend"])
async def test_the_streams_of_a_revoked_or_suspended_key_end(gateway: Server, action: str) -> None:
    """Open streams end within seconds of a revocation or suspension."""
    key_id, headers = create_key(gateway, f"watcher-{action}")
    body, request_headers = make_later_message("subscriptions/listen", headers, notifications={"toolsListChanged": True})
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=HANG_S) as http:
        session = {"Mcp-Session-Id": (await http.post("/mcp", json=OPENING, headers=headers)).headers["mcp-session-id"]}
        async with (
            http.stream("GET", "/mcp", headers={**headers, **session}) as older,
            http.stream("POST", "/mcp", json=body, headers=request_headers) as newer,
        ):
            assert (older.status_code, newer.status_code) == (200, 200)
            stopped = await asyncio.to_thread(gateway.client.post, f"/api/v1/agent-keys/{key_id}/{action}")
            assert stopped.is_success, stopped.text
            with Stopwatch() as watch:
                await asyncio.gather(older.aread(), newer.aread())
            assert watch.reference_s < 20


def _find_row(gateway: Server, tool: str) -> Json | None:
    rows = cast("list[Json]", gateway.client.get("/api/agent/tools/calls").json()["data"])
    return next((row for row in rows if row["tool"] == tool), None)
