"""Streamed calls over real sockets, and calls that need input before they return."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from rookery.tools.api.calls import RunningCall
from rookery.tools.models import CallOutcome
from rookery.tools.ports import OnLog, OnProgress
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.tools.makers import SERVERS, make_odd_entry, make_odd_server

CALL = "/api/v1/mcp/tools/call"
STREAM = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that the gated server waits for before it lists its tools."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Server]:
    """A server in its own process, with one tool server that sends notifications and one that misbehaves."""
    folder = tmp_path_factory.mktemp("streaming")
    talker = {"command": sys.executable, "args": [str(SERVERS / "talker.py")]}
    gated = make_odd_entry(env={"ODD_GATE": str(gate)})
    servers = {"talker": talker, "odd": make_odd_entry(tools={"timeouts": {"progress": 1.5}}), "gated": gated}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(folder) as running:
        for name in ("talker", "odd"):

            def count_tools(name: str = name) -> int:
                return int(running.client.get(f"/api/v1/mcp/servers/{name}/tools").json()["count"])

            asyncio.run(eventually(count_tools))  # the rejection of a call to a server that was never listed may be an event
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[httpx2.Client]:
    """A client that reads responses as they arrive; the server's own client reads them whole to search for keys."""
    with httpx2.Client(base_url=server.url, headers=server.client.headers, timeout=HANG_S) as http_client:
        yield http_client


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    data: dict[str, object]


def read_events(response: httpx2.Response) -> Iterator[Event]:
    """Read a stream event by event, as a browser does."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Event(name, json.loads(line.removeprefix("data: ")))


def make_body(tool: str, server: str = "talker", **arguments: object) -> dict[str, object]:
    """Make a body of a call."""
    return {"server": server, "tool": tool, "arguments": arguments}


def wait_for_file(path: Path) -> bool:
    """Wait for a file; return whether it exists."""
    deadline = time.monotonic() + HANG_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.exists()


def test_each_event_arrives_while_the_tool_still_runs(client: httpx2.Client, tmp_path: Path) -> None:
    """The tool continues only after the first event is read, so a buffered stream would never end."""
    gate = tmp_path / "gate"
    request = make_body("until", gate=str(gate), mark=str(tmp_path / "mark"))

    with client.stream("POST", CALL, json=request, headers=STREAM) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        stream = read_events(response)
        first = next(stream)
        gate.touch()
        rest = list(stream)

    assert first == Event("progress", {"progress": 1.0, "total": 2.0})
    assert [event.name for event in rest] == ["progress", "result"]
    plain = client.post(CALL, json=request).json()
    last = rest[-1].data
    assert {**last, "duration_ms": 0} == {**plain, "duration_ms": 0}
    assert (last["success"], last["server"], last["tool"]) == (True, "talker", "until")


def test_a_stream_has_progress_and_log_in_order(client: httpx2.Client) -> None:
    """`Accept: text/event-stream` streams progress and log, then the result; so does the route of one tool."""
    path = "/api/v1/mcp/servers/talker/tools/tell"

    with client.stream("POST", path, json={"steps": 3}, headers=STREAM) as response:
        received = list(read_events(response))

    assert [event.name for event in received] == ["log", "progress"] * 3 + ["result"]
    assert [event.data for event in received if event.name == "progress"] == [
        {"progress": step + 1.0, "total": 3.0, "message": f"step {step}"} for step in range(3)
    ]
    assert [event.data for event in received if event.name == "log"] == [
        {"level": "info", "logger": "talker", "data": f"step {step}"} for step in range(3)
    ]


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (make_body("nothing"), 404, "tool_not_found"),
        (make_body("tell", "nobody"), 404, "server_not_found"),
        (make_body("tell", steps="three"), 400, "invalid_arguments"),
        ({"server": "talker"}, 400, "invalid_request"),
    ],
)
def test_a_rejected_call_is_a_plain_response(client: httpx2.Client, call: dict[str, object], status: int, code: str) -> None:
    """The stream begins with the tool; every 4xx before it has its own status and a plain error body."""
    response = client.post(CALL, json=call, headers=STREAM)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"] == code
    assert response.json()["success"] is False


def test_a_stream_ends_with_the_error_of_the_tool(client: httpx2.Client) -> None:
    """The status is already sent; the last event has the body of the plain response."""
    with client.stream("POST", CALL, json=make_body("progress", "odd", steps=1, pause=30), headers=STREAM) as response:
        last = list(read_events(response))[-1]

    assert (response.status_code, last.name) == (200, "result")
    assert (last.data["success"], last.data["code"]) == (False, "tool_timeout")
    assert last.data["error"]


def test_a_tool_that_fails_before_any_notification_is_a_plain_response(client: httpx2.Client) -> None:
    """As long as nothing was streamed, the status is that of a call without a stream."""
    streamed = client.post(CALL, json=make_body("error", "odd"), headers=STREAM)
    plain = client.post(CALL, json=make_body("error", "odd"))

    assert (streamed.status_code, streamed.headers["content-type"]) == (500, "application/json")
    assert {**streamed.json(), "duration_ms": 0} == {**plain.json(), "duration_ms": 0}


def test_a_late_error_is_an_event(client: httpx2.Client, gate: Path) -> None:
    """The stream started before the server had listed its tools, and the tool does not exist."""
    with client.stream("POST", CALL, json=make_body("nothing", "gated"), headers=STREAM) as response:
        assert response.status_code == 200
        gate.touch()
        received = list(read_events(response))

    assert [(event.name, event.data["error"], event.data["tool"]) for event in received] == [("error", "tool_not_found", "nothing")]
    assert received[0].data["success"] is False


def test_closing_a_stream_cancels_the_tool(client: httpx2.Client, tmp_path: Path) -> None:
    """The call is cancelled upstream, and its row has the code."""
    marker = tmp_path / "mark"
    request = make_body("until", gate=str(tmp_path / "gate"), mark=str(marker))

    with client.stream("POST", CALL, json=request, headers=STREAM) as response:
        next(read_events(response))

    assert wait_for_file(marker)

    def count_rows() -> int:
        calls = client.get("/api/agent/tools/calls", params={"tool": "until", "code": "client_left"}).json()
        return int(calls["meta"]["total"])

    asyncio.run(eventually(count_rows))  # the tool may notice its end before Rookery has recorded the call
    assert count_rows() == 1


def test_a_tool_that_needs_input_gets_it_in_a_second_call(client: httpx2.Client) -> None:
    """`input_required` is 200 {success: false, code, result{inputRequests, requestState}}; plain and streamed."""
    first = client.post(CALL, json=make_body("weather"))
    with client.stream("POST", CALL, json=make_body("weather"), headers=STREAM) as response:
        streamed = list(read_events(response))

    assert first.status_code == 200
    first_body = first.json()
    assert (first_body["success"], first_body["code"], "error" in first_body) == (False, "input_required", False)
    assert set(first_body["result"]) == {"inputRequests", "requestState"}
    assert first_body["result"]["inputRequests"]["city"]["params"]["message"] == "Which city?"
    assert [(event.name, event.data["code"]) for event in streamed] == [("result", "input_required")]

    answers = {"city": {"action": "accept", "content": {"city": "Bern"}}}
    second_request = {**make_body("weather"), "input_responses": answers, "request_state": first_body["result"]["requestState"]}
    second = client.post(CALL, json=second_request)

    assert second.json()["result"]["content"][0]["text"] == "Fine in Bern, asked once."
    assert second.json()["success"] is True


@pytest.mark.parametrize("answers", [{"city": 7}, {"city": {"action": "maybe"}}, {"city": {"content": {}}}, []])
def test_an_invalid_input_response_is_a_400(client: httpx2.Client, answers: object) -> None:
    """No request body causes a 500."""
    response = client.post(CALL, json={**make_body("weather"), "input_responses": answers, "request_state": "x"})

    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


async def test_a_slow_reader_costs_little_memory_and_blocks_no_upstream() -> None:
    """Notifications that a reader does not consume are dropped, so that other callers of the upstream do not wait."""
    all_sent = asyncio.Event()
    noise: dict[str, object] = {"level": "info", "data": "x" * 10_000}

    async def call(on_progress: OnProgress, on_log: OnLog) -> CallOutcome:
        await on_progress(1, None, None)
        for _ in range(1000):
            await on_log(noise)
        all_sent.set()
        return CallOutcome(server=make_odd_server(), tool="t", duration_ms=0)

    running_call = RunningCall(call)
    await asyncio.wait_for(all_sent.wait(), HANG_S)
    await running_call.wait_started()
    notices = [notice async for notice in running_call.iter_notices()]
    await running_call.stop()

    assert notices[0].kind == "progress"
    assert sum(len(notice.content) for notice in notices) <= 1024 * 1024
    assert len(notices) < 1000
