"""Sessions of MCP clients of the handshake era: they survive a restart, and unused ones give way at a limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import httpx2
import mcp_types as types
import pytest
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from rookery.tools.gateway.client_sessions import MAX_SESSIONS_PER_KEY, MAX_SESSIONS_PER_WORKSPACE, ClientSessionManager
from rookery.tools.gateway.limits import MIN_AGE_S, EvictionRefused, select_evicted
from tests import real_servers
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.error_bodies import error_body
from tests.processes import Server, run_server
from tests.tools.gateway.clients import Json, open_client

ROOT = Path(__file__).resolve().parents[3]
ACCEPT = {"Accept": "application/json, text/event-stream"}
LIST: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
ENTRY: Json = {"command": sys.executable, "args": ["-m", "tests.conformance.everything", "--older-era"], "cwd": str(ROOT)}


def make_opening(**capabilities: object) -> Json:
    """Return an `initialize` request."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}


def make_folder(folder: Path) -> Path:
    """Create a data folder with a tool server that requests input."""
    folder.mkdir(exist_ok=True)
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"older": ENTRY}}), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    with run_server(tmp_path_factory.mktemp("sessions")) as running:
        yield running
        assert "Traceback" not in running.log()


def create_key(server: Server, name: str) -> dict[str, str]:
    """Create a key; return the headers with it."""
    body = server.client.post("/api/v1/agent-keys", json={"name": name, "permissions": ["mcp:read", "mcp:write"]}).json()
    return {"Authorization": f"Bearer {body['key']}", **ACCEPT}


@contextlib.asynccontextmanager
async def restart(server: Server) -> AsyncGenerator[Server]:
    """Stop a server, and run one on the same data folder and address. Clients in this process go on meanwhile."""
    port = urlsplit(server.url).port
    assert port is not None
    assert await asyncio.to_thread(server.stop) == 0
    running = run_server(server.folder, port=port)
    restarted = await asyncio.to_thread(running.__enter__)
    try:
        yield restarted
    finally:
        await asyncio.to_thread(running.__exit__, None, None, None)


class Sessions:
    """Raw clients of one key."""

    def __init__(self, http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
        self._http, self._headers = http, headers

    async def open(self, path: str = "/mcp", **capabilities: object) -> httpx2.Response:
        """Open a session."""
        return await self._http.post(path, json=make_opening(**capabilities), headers=self._headers)

    async def open_id(self, path: str = "/mcp", **capabilities: object) -> str:
        """Open a session that must be admitted, and return its id."""
        response = await self.open(path, **capabilities)
        assert response.status_code == 200, response.text
        return response.headers["mcp-session-id"]

    async def use(self, session_id: str, path: str = "/mcp", message: Json = LIST) -> httpx2.Response:
        """Send a message in a session."""
        return await self._http.post(path, json=message, headers={**self._headers, "Mcp-Session-Id": session_id})

    async def end(self, session_id: str) -> int:
        """End a session; return the status."""
        return (await self._http.delete("/mcp", headers={**self._headers, "Mcp-Session-Id": session_id})).status_code

    def stream(self, session_id: str) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        """Open the event stream of a session."""
        return self._http.stream("GET", "/mcp", headers={**self._headers, "Mcp-Session-Id": session_id})


@contextlib.asynccontextmanager
async def connect(server: Server, *headers: dict[str, str]) -> AsyncGenerator[list[Sessions]]:
    """Yield the clients of each key in *headers*."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=server.url, timeout=HANG_S, limits=limits) as http:
        yield [Sessions(http, key_headers) for key_headers in headers]


def test_the_overridden_parts_of_the_sdk_exist_in_the_locked_version() -> None:
    """With another version of `mcp`, read its session manager first: these names are not public."""
    overridden = {"_admit_session", "_discard_session", "_handle_stateful_request", "_serve_opening_request"}
    fields = {"_lifespan_state", "_server_instances", "_session_owners", "_task_group"}
    manager = StreamableHTTPSessionManager(object())  # pyright: ignore[reportArgumentType]

    assert overridden <= vars(StreamableHTTPSessionManager).keys()
    assert fields <= vars(manager).keys()
    assert {"_discard_session", "_handle_stateful_request"} <= vars(ClientSessionManager).keys()


async def test_a_client_of_the_python_sdk_survives_a_restart(tmp_path: Path) -> None:
    """Its session works again, the server may still request input, and its new event stream has the changes that it missed."""
    announced = asyncio.Event()

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            announced.set()

    async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"username": params.message, "email": "ada@example.org"})

    with run_server(make_folder(tmp_path / "home")) as server:
        async with open_client(server, "/mcp/older", mode="legacy", message_handler=on_message, elicitation_callback=elicit) as mcp:
            before = await mcp.call_tool("test_elicitation", {"message": "before"})
            announced.clear()
            async with restart(server) as restarted:
                after = await mcp.call_tool("test_elicitation", {"message": "after"})
                await asyncio.wait_for(announced.wait(), HANG_S)
                log = restarted.log()

    assert "before" in str(before.content)
    assert "after" in str(after.content)
    assert "gateway.session_revived" in log
    assert "Traceback" not in log


async def test_a_client_of_the_typescript_sdk_survives_a_restart(tmp_path: Path) -> None:
    """As with the Python SDK; the client reconnects its stream by itself."""
    real_servers.package("@modelcontextprotocol/sdk")
    (tmp_path / "node_modules").symlink_to(real_servers.INSTALLED / "node_modules")
    script = tmp_path / "client.mjs"
    script.write_text((Path(__file__).parent / "restarted_client.mjs").read_text(encoding="utf-8"), encoding="utf-8")
    with run_server(make_folder(tmp_path / "home")) as server:
        command = [real_servers.node(), str(script), f"{server.url}/mcp/older", server.keys["agent_key"]]
        with Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as client:
            try:
                assert client.stdout is not None
                first = client.stdout.readline()
                async with restart(server):
                    out, err = client.communicate("\n", HANG_S)
            finally:
                client.kill()

    assert "before" in first, err
    assert "after" in out, err
    assert "the tools may have changed" in out, err
    assert client.returncode == 0


async def test_only_the_issued_id_is_revived_and_only_for_its_key_and_path(tmp_path: Path) -> None:
    """Other keys, other paths, altered and invented ids, ended sessions and revoked keys are rejected after a restart too."""
    folder = make_folder(tmp_path / "home")
    with run_server(folder) as server:
        body = server.client.post("/api/v1/agent-keys", json={"name": "own", "permissions": ["mcp:read", "mcp:write"]}).json()
        own, other = {"Authorization": f"Bearer {body['key']}", **ACCEPT}, create_key(server, "other")
        async with connect(server, own, other) as (sessions, _):
            kept, ended, ended_later, of_server = [await sessions.open_id(path) for path in ("/mcp", "/mcp", "/mcp", "/mcp/older")]
            assert await sessions.end(ended) == 200
        async with restart(server) as restarted, connect(restarted, own, other) as (sessions, others):
            altered = [kept[:-1] + ("A" if kept[-1] != "A" else "Q"), kept[:40] + ("a" if kept[40] != "a" else "b") + kept[41:]]
            altered += [f"1-{kept}", kept + "A", kept[:-4], "s" + "A" * 120, "0123456789abcdef"]
            rejected = [await sessions.use(session_id) for session_id in [*altered, ended]]
            rejected += [await others.use(kept), await sessions.use(kept, "/mcp/older"), await sessions.use(of_server)]
            rejected += [await sessions.use(kept, "/mcp?mode=search")]
            admitted = [await sessions.use(kept), await sessions.use(of_server, "/mcp/older")]
            foreign = [await others.use(kept), await sessions.use(kept, "/mcp/older")]
            ends = [await others.end(ended_later), await sessions.end(ended_later), await sessions.end(ended_later)]
            after_end = await sessions.use(ended_later)
            restarted.client.post(f"/api/v1/agent-keys/{body['id']}/revoke")
            revoked = await sessions.use(kept)

    assert [response.status_code for response in rejected] == [404] * len(rejected)
    assert [response.status_code for response in admitted] == [200, 200]
    assert [response.status_code for response in foreign] == [404, 404]
    assert ends == [404, 200, 404]
    assert (after_end.status_code, revoked.status_code) == (404, 401)


async def test_simultaneous_requests_revive_one_session(tmp_path: Path) -> None:
    """Requests, notifications and the event stream with one id meet in one session."""
    with run_server(make_folder(tmp_path / "home")) as server:
        headers = create_key(server, "many")
        async with connect(server, headers) as (sessions,):
            session_id = await sessions.open_id()
        async with restart(server) as restarted:
            async with connect(restarted, headers) as (sessions,), sessions.stream(session_id) as stream:
                notice: Json = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
                messages = [notice if number % 4 == 0 else {**LIST, "id": number} for number in range(20)]
                responses = await asyncio.gather(*(sessions.use(session_id, message=message) for message in messages))
            log = restarted.log()

    assert stream.status_code == 200
    assert Counter(response.status_code for response in responses) == {200: 15, 202: 5}
    assert log.count("gateway.session_revived") == 1


@pytest.mark.parametrize("size", [1, 50, 1000])
async def test_an_id_stays_short_whatever_the_client_declares(server: Server, size: int) -> None:
    """Proxies limit headers, so an id holds less detail of large capabilities; it is visible ASCII."""
    extensions = {f"com.example/extension-{number}-{hash(str(number))}": {"number": number} for number in range(size)}
    async with connect(server, create_key(server, f"large-{size}")) as (sessions,):
        session_id = await sessions.open_id(elicitation={}, extensions=extensions)
        used = await sessions.use(session_id)

    assert len(session_id) < 1500
    assert all("!" <= character <= "~" for character in session_id)
    assert used.status_code == 200


async def test_unused_sessions_of_the_key_give_way(server: Server) -> None:
    """At the limit of a key its session that was unused for longest ends; its client does not notice, because it is revived."""
    greedy, modest = create_key(server, "greedy"), create_key(server, "modest")
    async with connect(server, greedy, modest) as (sessions, others):
        other = await others.open_id()
        ids = [await sessions.open_id() for _ in range(MAX_SESSIONS_PER_KEY)]
        await sessions.use(ids[0])
        evictions = server.log().count("gateway.session_evicted")
        async with sessions.stream(ids[1]):
            ids += [await sessions.open_id()]
            evicted_count = server.log().count("gateway.session_evicted") - evictions
            revivals = server.log().count("gateway.session_revived")
            used = [(await sessions.use(session_id)).status_code for session_id in (ids[0], ids[1], ids[-1])]
            revived_count = server.log().count("gateway.session_revived") - revivals
            evicted = await sessions.use(ids[2])
            await eventually(lambda: server.log().count("gateway.session_revived") - revivals == 1)
        of_other = await others.use(other)

    assert (evicted_count, used, revived_count) == (1, [200, 200, 200], 0)
    assert (evicted.status_code, of_other.status_code) == (200, 200)


async def test_a_session_works_again_once_its_key_is_resumed(server: Server) -> None:
    """The suspension ends it, and no client opens another one by itself. A client with an open stream is the worst case."""
    body = server.client.post("/api/v1/agent-keys", json={"name": "paused", "permissions": ["mcp:read", "mcp:write"]}).json()
    key = f"/api/v1/agent-keys/{body['id']}"
    async with connect(server, {"Authorization": f"Bearer {body['key']}", **ACCEPT}) as (sessions,):
        session = await sessions.open_id()
        async with sessions.stream(session) as stream:
            assert (await asyncio.to_thread(server.client.post, f"{key}/suspend")).is_success
            await stream.aread()  # ends with the session
        suspended = await sessions.use(session)
        assert (await asyncio.to_thread(server.client.post, f"{key}/resume")).is_success
        resumed = await sessions.use(session)

    assert (suspended.status_code, suspended.json()["error"]["message"]) == (
        401,
        "This key is suspended. It works again once it is resumed.",
    )
    assert resumed.status_code == 200


async def test_sessions_in_use_do_not_give_way(server: Server) -> None:
    """If all sessions of a key have an event stream, a new one is refused until a stream closes; `Retry-After` is short."""
    headers = create_key(server, "streaming")
    async with connect(server, headers) as (sessions,), contextlib.AsyncExitStack() as streams:
        for _ in range(MAX_SESSIONS_PER_KEY - 1):
            response = await streams.enter_async_context(sessions.stream(await sessions.open_id()))
            assert response.status_code == 200
        async with sessions.stream(await sessions.open_id()):
            refused = await sessions.open()
        admitted = await eventually(lambda: _open_admitted(sessions))

    error = error_body(refused)
    assert (refused.status_code, error["error"]) == (429, "too_many_sessions")
    assert refused.headers["retry-after"] == str(error["retry_after"])
    assert 0 < int(refused.headers["retry-after"]) <= 5
    assert admitted


async def _open_admitted(sessions: Sessions) -> bool:
    """Open a session; return false if it is refused because the server has not noticed the closed stream yet."""
    return (await sessions.open()).status_code == 200


async def test_unused_sessions_of_the_workspace_give_way(tmp_path: Path) -> None:
    """Beyond the limit of a workspace, no key is locked out, and no session is lost for its client."""
    with run_server(tmp_path / "home") as server:
        keys = [create_key(server, f"key-{number}") for number in range(4)]
        async with connect(server, *keys) as clients:
            ids = [(client, await client.open_id()) for client in clients[:3] for _ in range(MAX_SESSIONS_PER_WORKSPACE // 3)]
            more = [(clients[3], await clients[3].open_id()) for _ in range(5)]
            evicted_count = server.log().count("gateway.session_evicted")
            statuses = {(await client.use(session_id)).status_code for client, session_id in [*ids[:5], *more]}

    assert evicted_count == 4
    assert statuses == {200}


def test_the_oldest_gives_way_unless_it_is_young() -> None:
    """Event streams and calls that wait for input give way after a minute; before, the error has the remaining time."""
    started_at = {"first": 100.0, "second": 130.0}

    assert select_evicted(started_at, 100 + MIN_AGE_S) == "first"
    with pytest.raises(EvictionRefused) as refusal:
        select_evicted(started_at, 112.5)
    assert refusal.value.retry_after_s == 48
