"""`rookery serve --workers N`: several server processes on one address."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import cast
from urllib.parse import quote

import httpx2
import mcp_types as types
import pytest

from rookery.access.models import Tier
from rookery.access.rate_limits import TIER_LIMITS_PER_HOUR
from rookery.kernel.running_server import find_server
from rookery.kernel.server_group import ServerGroup
from tests import real_servers
from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.kernel.test_metrics import Samples, get_sample, label_values, parse_samples
from tests.processes import Server, is_running, run_rookery, run_server
from tests.tools.gateway.clients import Json, open_client, post_later
from tests.tools.makers import SERVERS

pytestmark = [pytest.mark.embedded_store, pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads processes in /proc")]

PROCESSES = {"1", "2", "3"}
_ROOT = Path(__file__).resolve().parents[1]
_HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
_INITIALIZE: Json = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Iterator[Server]:
    """A server of three processes, with a tool server of the older era that requests input, and one whose results have links."""
    folder = tmp_path_factory.mktemp("processes")
    lend_model(model_folder, folder)
    older = {"command": sys.executable, "args": ["-m", "tests.conformance.everything", "--older-era"], "cwd": str(_ROOT)}
    linking = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "linking.py"), "linking"]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"older": older, "linking": linking}}), encoding="utf-8")
    with run_server(folder, workers="3") as running:
        yield running


async def _scrape(server: Server) -> Samples:
    async with _connect(server) as http:
        return parse_samples((await http.get("/metrics")).text)


async def _scrape_all(server: Server) -> Samples:
    """Return the metrics once the page has those of all processes. One that is busy with its start may answer too late."""

    async def scrape() -> Samples | None:
        samples = await _scrape(server)
        return samples if all(get_sample(samples, "rookery_server_process_up", process=number) for number in PROCESSES) else None

    return cast("Samples", await eventually(scrape))


@asynccontextmanager
async def _connect(server: Server, key: str = "api_key") -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client whose connections are its own, so that any of the processes may accept them."""
    headers = {"Authorization": f"Bearer {server.keys[key]}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANG_S) as http:
        yield http


async def _post_mcp(server: Server, message: Json, session: str | None = None) -> httpx2.Response:
    """Send a message of the older era on a connection of its own."""
    async with _connect(server, "agent_key") as http:
        return await http.post("/mcp", json=message, headers={**_HEADERS, **({"Mcp-Session-Id": session} if session else {})})


def _count_requests(samples: Samples, route: str, process: str | None = None) -> float:
    return sum(
        value
        for (name, labels), value in samples.items()
        if name == "rookery_http_requests_total" and ("route", route) in labels and (process is None or ("process", process) in labels)
    )


def _list_processes(server: Server) -> list[int]:
    """Return the pids of the server processes, which are the children of the supervisor."""
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


async def _wait_processes(server: Server) -> list[int]:
    """Return the pids of both server processes once both run."""
    await eventually(lambda: len(_list_processes(server)) == 2)
    return _list_processes(server)


async def test_the_page_of_any_process_has_the_metrics_of_all(server: Server) -> None:
    """`/metrics` has a series for each process, and figures of the whole store once; requests add up exactly."""
    before = await _scrape_all(server)
    for _ in range(30):
        async with _connect(server) as http:
            assert (await http.get("/v1/brain/tags")).status_code == 200
    after = await _scrape_all(server)

    assert label_values(after, "process") >= PROCESSES
    assert {get_sample(after, "rookery_server_process_up", process=number) for number in PROCESSES} == {1}
    assert _count_requests(after, "/v1/brain/tags") - _count_requests(before, "/v1/brain/tags") == 30
    assert get_sample(after, "rookery_jobs_waiting", kind="EmbedMemory") is not None
    assert all(get_sample(after, "process_open_fds", process=number) for number in PROCESSES)


async def test_a_session_is_served_by_whatever_process_accepts_the_connection(server: Server) -> None:
    """Requests of an MCP session reach the process that has it, and an unknown session is a 404."""
    opened = await _post_mcp(server, _INITIALIZE)
    session = opened.headers["mcp-session-id"]
    owner = session.partition("-")[0]
    initialized = await _post_mcp(server, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)

    async def is_served_by_all() -> bool:
        listed = await _post_mcp(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session)
        assert listed.status_code == 200, listed.text
        if "older__test_elicitation" not in listed.text:  # the tool server is still starting
            return False
        samples = await _scrape(server)
        return all(_count_requests(samples, "/mcp", number) for number in PROCESSES)

    await eventually(is_served_by_all)
    assert (opened.status_code, initialized.status_code) == (200, 202)
    assert owner in PROCESSES
    stolen = await _connect_and_list(server, session, "api_key")
    unknown = await _post_mcp(server, {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}, "2-0123456789abcdef")
    ended = await _end_session(server, session)
    gone = await _post_mcp(server, {"jsonrpc": "2.0", "id": 4, "method": "tools/list"}, session)
    assert (stolen.status_code, unknown.status_code, ended.status_code, gone.status_code) == (404, 404, 200, 404)


async def _connect_and_list(server: Server, session: str, key: str) -> httpx2.Response:
    async with _connect(server, key) as http:
        message = {"jsonrpc": "2.0", "id": 3, "method": "tools/list"}
        return await http.post("/mcp", json=message, headers={**_HEADERS, "Mcp-Session-Id": session})


async def _end_session(server: Server, session: str) -> httpx2.Response:
    async with _connect(server, "agent_key") as http:
        return await http.delete("/mcp", headers={**_HEADERS, "Mcp-Session-Id": session})


async def test_a_request_for_input_finds_its_call_in_both_eras(server: Server) -> None:
    """The answer to a request for input reaches the process whose call waits for it, on any connection."""

    async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"username": params.message, "email": "ada@example.org"})

    for round_number in range(6):
        async with open_client(server, "/mcp/older", mode="legacy", elicitation_callback=elicit) as mcp:
            answer = await mcp.call_tool("test_elicitation", {"message": f"ada-{round_number}"})
        assert f"ada-{round_number}" in str(answer.content)
        call: Json = {"name": "test_elicitation", "arguments": {"message": "Who?"}}
        first = cast("Json", (await post_later(server, "tools/call", call, "/mcp/older", elicitation={}))["result"])
        (name,) = cast("Json", first["inputRequests"])
        responses = {name: {"action": "accept", "content": {"username": "bob", "email": "b"}}}
        continuation = {**call, "inputResponses": responses, "requestState": first["requestState"]}
        completed = await post_later(server, "tools/call", continuation, "/mcp/older", elicitation={})
        assert "action=accept" in str(completed["result"])


async def test_a_link_is_read_back_by_any_process(server: Server) -> None:
    """A link that no list has, in a result of one process, is read through whichever accepts the connection."""
    uri = "https://example.org/report.pdf"
    route = "/api/v1/mcp/resources/{uri:path}"
    before = await _scrape_all(server)
    called = server.client.post("/api/v1/mcp/servers/linking/tools/link", json={"uri": uri})
    assert called.is_success, called.text

    async def read() -> int:
        async with _connect(server) as http:
            response = await http.get(f"/api/v1/mcp/resources/{quote(uri, safe='')}")
        assert not response.is_success or response.json()["content"]["contents"][0]["text"] == f"linking read {uri}"
        return response.status_code

    async def has_been_read_by_all() -> bool:
        assert await read() == 200
        samples = await _scrape(server)
        return all(_count_requests(samples, route, number) > _count_requests(before, route, number) for number in PROCESSES)

    await eventually(lambda: _has_stored_link(server))
    await eventually(has_been_read_by_all)


def _has_stored_link(server: Server) -> bool:
    with closing(sqlite3.connect(server.folder / "records.db")) as store:
        return bool(store.execute("SELECT count(*) FROM tool_recent_links").fetchone()[0])


async def test_limits_and_idempotency_are_exact_over_all_processes(server: Server) -> None:
    """A rate limit admits its number of requests, and an Idempotency-Key runs once, whichever process answers."""
    created = server.client.post("/api/v1/api-keys", json={"name": "limited", "rate_limit_tier": "free", "scopes": ["brain:read"]})
    assert created.status_code == 201, created.text
    headers = {"Authorization": f"Bearer {created.json()['plaintext_key']}"}

    async def read_remaining() -> int:
        async with httpx2.AsyncClient(timeout=HANG_S) as http:
            response = await http.get(f"{server.url}/v1/brain/tags", headers=headers)
        return int(response.headers["x-ratelimit-remaining"])

    remaining = await asyncio.gather(*(read_remaining() for _ in range(40)))
    limit = TIER_LIMITS_PER_HOUR[Tier.FREE]
    assert limit is not None
    assert sorted(remaining, reverse=True) == [limit - number for number in range(1, 41)]

    async def remember() -> str:
        body = {"type": "note", "content": "Stored once by whichever process."}
        async with _connect(server) as http:
            while True:
                response = await http.post("/v1/brain/remember", json=body, headers={"Idempotency-Key": "once-over-all"})
                if response.status_code != 409:  # another process is running the request
                    assert response.status_code in {200, 201, 202}, response.text
                    return str(response.json()["id"])

    assert len(set(await asyncio.gather(*(remember() for _ in range(12))))) == 1


async def test_processes_whose_tool_servers_rewrite_one_file_lose_no_change(tmp_path: Path, model_folder: Path) -> None:
    """Each process has a session of its own with a program, so their calls take turns, whether its state is known or not."""
    graph, notes = tmp_path / "graph.json", tmp_path / "notes.txt"
    lend_model(model_folder, tmp_path)
    rewriting = {"command": sys.executable, "args": ["-I", "-S", str(SERVERS / "rewriting.py"), str(notes)]}
    entries = {"memory": real_servers.memory(graph), "rewriting": rewriting}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    with run_server(tmp_path, workers="2") as running:

        async def create(server: str, number: int) -> int:
            entity = {"name": f"rook-{number}", "entityType": "bird", "observations": ["is social"]}
            call = {"tool": "create_entities", "arguments": {"entities": [entity]}}
            if server == "rewriting":
                call = {"tool": "note", "arguments": {"text": f"rook-{number}"}}
            async with _connect(running) as http:
                return (await http.post("/api/v1/mcp/tools/call", json={"server": server, **call})).status_code

        async def have_both_called() -> bool:
            assert await create("memory", 0) == 200
            samples = await _scrape(running)
            return all(_count_requests(samples, "/api/v1/mcp/tools/call", number) for number in ("1", "2"))

        await eventually(lambda: len(_list_processes(running)) == 2)
        await eventually(have_both_called)
        calls = [create(server, number) for number in range(100) for server in entries]
        assert await asyncio.gather(*calls) == [200] * 200
    expected = {f"rook-{number}" for number in range(100)}
    assert {json.loads(line)["name"] for line in graph.read_text(encoding="utf-8").splitlines()} == expected
    assert set(notes.read_text(encoding="utf-8").splitlines()) == expected


async def test_a_process_that_dies_is_replaced_and_a_stop_ends_all(tmp_path: Path, model_folder: Path) -> None:
    """A killed process is replaced and its MCP sessions go on; SIGTERM lets all processes finish their requests."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home", workers="2") as server:
        first_pids = set(await _wait_processes(server))
        await eventually(lambda: find_server(server.folder))
        found = find_server(server.folder)
        sessions = [(await _post_mcp(server, _INITIALIZE)).headers["mcp-session-id"] for _ in range(8)]
        victim = min(first_pids)
        os.kill(victim, signal.SIGKILL)
        meanwhile = {await _list_tools(server, session) for session in sessions}

        async def is_replaced() -> bool:
            async with _connect(server) as http:
                engines = (await http.get("/readyz")).json()["engines"]
            return engines["processes"] == "ok" and victim not in _list_processes(server)

        await eventually(is_replaced)
        statuses = {await _list_tools(server, session) for session in sessions}
        pids = _list_processes(server)
        log = server.log()
        assert server.stop() == 0

    assert found is not None
    assert found.pid == server.process.pid
    assert first_pids - {victim} < set(pids)
    assert len(pids) == 2
    assert meanwhile | statuses == {200}
    assert '"exit_code": -9' in log
    assert not any(is_running(pid) for pid in pids)
    assert "Traceback" not in log


async def _list_tools(server: Server, session: str) -> int:
    """List tools in a session; return the status. A connection that the kernel gave to a process that has just died is repeated."""

    async def post() -> int:
        try:
            return (await _post_mcp(server, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session)).status_code
        except httpx2.TransportError:
            return 0

    return await eventually(post)


async def test_a_session_moves_while_its_process_is_missing_and_goes_back(tmp_path: Path, model_folder: Path) -> None:
    """Another process revives it, and ends its event stream once its own process is back, which serves the next one."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home", workers="2") as server:
        first_pids = await _wait_processes(server)
        while not (session := (await _post_mcp(server, _INITIALIZE)).headers["mcp-session-id"]).startswith("1-"):
            pass
        async with AsyncExitStack() as stack, asyncio.timeout(HANG_S):
            with _pause(server.process.pid):  # it cannot replace the process meanwhile
                os.kill(first_pids[0], signal.SIGKILL)
                await eventually(lambda: not is_running(first_pids[0]))
                assert await _list_tools(server, session) == 200
                stream = await stack.enter_async_context(_open_stream(server, session))
                revivals_meanwhile = _list_revivals(server)
            await stream.aread()
            await stack.enter_async_context(_open_stream(server, session))
            revivals = _list_revivals(server)

    assert revivals_meanwhile == [2]
    assert revivals == [2, 1]


@asynccontextmanager
async def _open_stream(server: Server, session: str) -> AsyncGenerator[httpx2.Response]:
    """Open the event stream of a session."""
    async with (
        _connect(server, "agent_key") as http,
        http.stream("GET", "/mcp", headers={**_HEADERS, "Mcp-Session-Id": session}) as response,
    ):
        assert response.status_code == 200
        yield response


@contextmanager
def _pause(pid: int) -> Generator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _list_revivals(server: Server) -> list[int]:
    """Return the numbers of the processes that revived a session, in order."""
    lines = [json.loads(line) for line in server.log().splitlines() if "session_revived" in line]
    return [line["process"] for line in lines]


async def test_all_processes_end_if_their_supervisor_is_killed(tmp_path: Path, model_folder: Path) -> None:
    """No process is left behind that would go on serving without a supervisor."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home", workers="2") as server:
        pids = await _wait_processes(server)
        server.kill()
        await eventually(lambda: not any(is_running(pid) for pid in pids))


def test_a_wrong_setting_ends_the_start_with_its_reason(tmp_path: Path, model_folder: Path) -> None:
    """A process that cannot start ends the whole server, and its reason is printed once."""
    lend_model(model_folder, tmp_path / "home")
    (tmp_path / "certificate.pem").write_text("no certificate", encoding="utf-8")
    environment = {"ROOKERY_TLS_CERT": str(tmp_path / "certificate.pem"), "ROOKERY_BCRYPT_COST": "4", "ROOKERY_MIN_FREE_DISK_MB": "0"}
    ended = run_rookery("serve", "--port", "0", "--workers", "2", data_dir=tmp_path / "home", environment=environment)

    assert ended.returncode == 1
    assert ended.stderr.count("ROOKERY_TLS_CERT and ROOKERY_TLS_KEY cannot be used") == 1, ended.stderr
    assert "A server process did not start" in ended.stderr


def test_the_number_of_processes_is_checked(tmp_path: Path) -> None:
    """An invalid number is a usage error."""
    ended = run_rookery("serve", "--workers", "0", data_dir=tmp_path, environment={})
    assert (ended.returncode, "greater than or equal to 1" in ended.stderr) == (2, True), ended.stderr


def test_the_owner_of_an_id_is_read_only_from_ids_of_the_group() -> None:
    """Ids of another form, of this process or of a process beyond the group belong to this process."""
    group = ServerGroup(number=2, count=3, folder=Path("/nowhere"))
    ids = [group.mark_owner("abc"), "1-abc", "3-abc", "4-abc", "0-abc", "abc", "1-", "-1-abc", "99999-abc"]
    assert [group.find_owner(marked) for marked in ids] == [None, 1, 3, None, None, None, None, None, None]
    assert ServerGroup().mark_owner("abc") == "abc"
    assert ServerGroup().find_owner("2-abc") is None


def test_all_processes_agree_on_the_heir_of_an_id() -> None:
    """Each id belongs to one process of the group, also if it comes from a larger group or from a server of one process."""
    groups = [ServerGroup(number=number, count=3, folder=Path("/nowhere")) for number in (1, 2, 3)]
    for marked in ("1-abc", "3-abc", "4-abc", "9999-abc", "abc", "sXYZ", "", "ä"):
        others = {group.assign_owner(marked) for group in groups} - {None}
        assert len(others) == 1, marked
        assert [group.assign_owner(marked) for group in groups].count(None) == 1
    assert groups[0].assign_owner("4-abc") is None
    assert ServerGroup().assign_owner("4-abc") is None
