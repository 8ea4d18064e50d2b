"""The gateway among clients and servers that mean no good, or merely do not read (D-36)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import cast

import httpx2
import psutil
import pytest

from tests.conftest import eventually
from tests.error_bodies import error_body
from tests.processes import Server, run_server
from tests.tools.gateway.clients import LATER, Json
from tests.tools.makers import make_odd_entry

ACCEPT = {"Accept": "application/json, text/event-stream"}
HELLO: Json = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "test", "version": "1"}}
OPENING: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
PER_KEY = 100
META: Json = {"io.modelcontextprotocol/protocolVersion": LATER, "io.modelcontextprotocol/clientCapabilities": {}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a misbehaving upstream alone."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "servers.json").write_text(
        json.dumps({"mcpServers": {"odd": make_odd_entry(isolation="shared"), "own": make_odd_entry(isolation="per_key")}})
    )
    with run_server(folder) as server:
        server.client.post("/api/v1/mcp/tools/call", json={"server": "odd", "tool": "echo", "arguments": {"text": "hi"}})
        yield server
        assert "Traceback" not in server.log()


def made(gateway: Server, name: str) -> tuple[str, dict[str, str]]:
    """Make a key; return its id and the headers that present it."""
    answer = gateway.client.post("/api/v1/agent-keys", json={"name": name, "permissions": ["mcp:read", "mcp:write"]}).json()
    return str(answer["id"]), {"Authorization": f"Bearer {answer['key']}", **ACCEPT}


def by_later(method: str, headers: dict[str, str], **params: object) -> tuple[Json, dict[str, str]]:
    """Return the body and the headers of a message of the later era."""
    meta = {**META, **cast("Json", params.pop("meta", {}))}
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    name = {"Mcp-Name": str(params["name"])} if "name" in params else {}
    return body, {**headers, "MCP-Protocol-Version": LATER, "Mcp-Method": method, **name}


async def test_no_key_takes_the_sessions_of_others(gateway: Server) -> None:
    """D-36: sessions per key are limited, rejected first messages included; beyond that the key gets an error and others have room."""
    _, greedy = made(gateway, "greedy")
    _, modest = made(gateway, "modest")
    wrong = {**OPENING, "params": {**HELLO, "clientInfo": 1}}
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        answers = [await http.post("/mcp", json=wrong, headers=greedy) for _ in range(5)]
        for _ in range(11):
            answers += await asyncio.gather(*(http.post("/mcp", json=OPENING, headers=greedy) for _ in range(10)))
        other = await http.post("/mcp", json=OPENING, headers=modest)
        ended = next(each.headers["mcp-session-id"] for each in answers if each.is_success and "mcp-session-id" in each.headers)
        await http.request("DELETE", "/mcp", headers={**greedy, "Mcp-Session-Id": ended})
        again = await http.post("/mcp", json=OPENING, headers=greedy)

    refused = [each for each in answers if each.status_code == 429]
    assert Counter(each.status_code for each in answers) == {200: PER_KEY, 429: len(answers) - PER_KEY}
    assert error_body(refused[0])["error"] == "too_many_sessions"
    assert (other.status_code, again.status_code) == (200, 200)


async def test_a_client_that_does_not_read_costs_little(gateway: Server) -> None:
    """D-36: notices of a talkative server wait for a slow client in small number; the server, and its other callers, for none."""
    _, headers = made(gateway, "idle")
    process = psutil.Process(gateway.process.pid)
    before = process.memory_info().rss
    arguments = {"method": "progress", "count": 40_000}
    body, sent = by_later("tools/call", headers, name="odd__flood", arguments=arguments, meta={"progressToken": "p"})

    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http, http.stream("POST", "/mcp", json=body, headers=sent) as unread:
        assert unread.status_code == 200
        row = await eventually(lambda: _row_of(gateway, "flood"), within_s=60)
        grown = process.memory_info().rss - before

    assert cast("Json", row)["success"] is True
    assert grown < 80_000_000


async def test_a_server_that_asks_without_end_reaches_its_client_a_few_times(gateway: Server) -> None:
    """D-36: each waiting question costs memory here; beyond 32 the server gets an error."""
    _, headers = made(gateway, "asked")
    asked = 0
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        session = {"Mcp-Session-Id": (await http.post("/mcp", json=OPENING, headers=headers)).headers["mcp-session-id"]}
        call: Json = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "own__ask", "arguments": {"count": 200}, "_meta": {}},
        }
        async with http.stream("POST", "/mcp", json=call, headers={**headers, **session}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {") and "elicitation/create" in line:
                    asked += 1
                elif line.startswith("data: {"):
                    break

    assert asked == 32


@pytest.mark.parametrize("how", ["revoke", "suspend"])
async def test_a_key_that_is_no_longer_good_hears_no_more(gateway: Server, how: str) -> None:
    """D-36, D-21: streams outlast the request that was let in; within seconds of a revocation or suspension they end."""
    key_id, headers = made(gateway, f"watcher-{how}")
    body, sent = by_later("subscriptions/listen", headers, notifications={"toolsListChanged": True})
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        session = {"Mcp-Session-Id": (await http.post("/mcp", json=OPENING, headers=headers)).headers["mcp-session-id"]}
        async with (
            http.stream("GET", "/mcp", headers={**headers, **session}) as older,
            http.stream("POST", "/mcp", json=body, headers=sent) as newer,
        ):
            assert (older.status_code, newer.status_code) == (200, 200)
            stopped = await asyncio.to_thread(gateway.client.post, f"/api/v1/agent-keys/{key_id}/{how}")
            assert stopped.is_success, stopped.text
            async with asyncio.timeout(20):
                await asyncio.gather(older.aread(), newer.aread())


def _row_of(gateway: Server, tool: str) -> Json | None:
    rows = cast("list[Json]", gateway.client.get("/api/agent/tools/calls").json()["data"])
    return next((row for row in rows if row["tool"] == tool), None)
