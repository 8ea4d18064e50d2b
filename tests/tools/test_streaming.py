"""Calls that are told of while they run, over real sockets, and calls that ask before they answer (D-34)."""

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

from rookery.tools.calling.streaming import RunningCall
from rookery.tools.models import CallOutcome
from rookery.tools.ports import OnLog, OnProgress
from tests.processes import Server, run_server
from tests.tools.makers import SERVERS, make_odd_entry, make_odd_server

CALL = "/api/v1/mcp/tools/call"
STREAM = {"Accept": "text/event-stream"}
_DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Until this file is there, the gated server does not tell what tools it has."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[Server]:
    """A server in a process of its own, in front of one that talks and one that misbehaves."""
    folder = tmp_path_factory.mktemp("streaming")
    talker = {"command": sys.executable, "args": [str(SERVERS / "talker.py")]}
    gated = make_odd_entry(env={"ODD_GATE": str(gate)})
    servers = {"talker": talker, "odd": make_odd_entry(tools={"timeouts": {"progress": 1.5}}), "gated": gated}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    with run_server(folder) as started:
        yield started


@pytest.fixture
def client(server: Server) -> Iterator[httpx2.Client]:
    """A client that reads answers as they come; the server's own, which looks into each for keys, waits for their end."""
    with httpx2.Client(base_url=server.url, headers=server.client.headers, timeout=_DEADLINE_S) as made:
        yield made


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    data: dict[str, object]


def events(response: httpx2.Response) -> Iterator[Event]:
    """Read a stream event by event, as a browser does."""
    name = ""
    for line in response.iter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Event(name, json.loads(line.removeprefix("data: ")))


def body(tool: str, server: str = "talker", **arguments: object) -> dict[str, object]:
    """Make a body of a call."""
    return {"server": server, "tool": tool, "arguments": arguments}


def soon(path: Path) -> bool:
    """Tell whether a file comes to be."""
    deadline = time.monotonic() + _DEADLINE_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.exists()


def test_each_event_arrives_while_the_tool_still_runs(client: httpx2.Client, tmp_path: Path) -> None:
    """D-34: the tool goes on only after the first event was read here, so a stream that is held back would never end."""
    gate = tmp_path / "gate"
    call = body("until", gate=str(gate), mark=str(tmp_path / "mark"))

    with client.stream("POST", CALL, json=call, headers=STREAM) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        found = events(response)
        first = next(found)
        gate.touch()
        rest = list(found)

    assert first == Event("progress", {"progress": 1.0, "total": 2.0})
    assert [event.name for event in rest] == ["progress", "result"]
    plain = client.post(CALL, json=call).json()
    last = rest[-1].data
    assert {**last, "duration_ms": 0} == {**plain, "duration_ms": 0}
    assert (last["success"], last["server"], last["tool"]) == (True, "talker", "until")


def test_a_stream_tells_of_progress_and_log_in_order(client: httpx2.Client) -> None:
    """D-34: `Accept: text/event-stream` streams progress and log, then the result; so does the route of one tool."""
    path = "/api/v1/mcp/servers/talker/tools/tell"

    with client.stream("POST", path, json={"steps": 3}, headers=STREAM) as response:
        found = list(events(response))

    assert [event.name for event in found] == ["log", "progress"] * 3 + ["result"]
    assert [event.data for event in found if event.name == "progress"] == [
        {"progress": step + 1.0, "total": 3.0, "message": f"step {step}"} for step in range(3)
    ]
    assert [event.data for event in found if event.name == "log"] == [
        {"level": "info", "logger": "talker", "data": f"step {step}"} for step in range(3)
    ]


@pytest.mark.parametrize(
    ("call", "status", "code"),
    [
        (body("nothing"), 404, "tool_not_found"),
        (body("tell", "nobody"), 404, "server_not_found"),
        (body("tell", steps="three"), 400, "invalid_arguments"),
        ({"server": "talker"}, 400, "invalid_request"),
    ],
)
def test_what_refuses_a_call_is_a_plain_answer(client: httpx2.Client, call: dict[str, object], status: int, code: str) -> None:
    """D-34: a stream begins when the tool does; every 4xx has its own status and D-10's body."""
    answer = client.post(CALL, json=call, headers=STREAM)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"] == code
    assert answer.json()["success"] is False


def test_a_tool_that_fails_ends_the_stream_with_what_it_came_to(client: httpx2.Client) -> None:
    """D-34: the status is sent by then; the last event is the body that the plain answer has."""
    with client.stream("POST", CALL, json=body("progress", "odd", steps=1, pause=30), headers=STREAM) as response:
        last = list(events(response))[-1]

    assert (response.status_code, last.name) == (200, "result")
    assert (last.data["success"], last.data["code"]) == (False, "tool_timeout")
    assert last.data["error"]


def test_a_tool_that_fails_before_it_tells_anything_is_a_plain_answer(client: httpx2.Client) -> None:
    """Issue 14: as long as nothing was streamed, the status is that of a call without a stream; D-34."""
    streamed = client.post(CALL, json=body("error", "odd"), headers=STREAM)
    plain = client.post(CALL, json=body("error", "odd"))

    assert (streamed.status_code, streamed.headers["content-type"]) == (500, "application/json")
    assert {**streamed.json(), "duration_ms": 0} == {**plain.json(), "duration_ms": 0}


def test_a_refusal_that_comes_late_is_an_event(client: httpx2.Client, gate: Path) -> None:
    """D-34: the stream started before the server had listed its tools, and the tool does not exist."""
    with client.stream("POST", CALL, json=body("nothing", "gated"), headers=STREAM) as response:
        assert response.status_code == 200
        gate.touch()
        found = list(events(response))

    assert [(each.name, each.data["error"], each.data["tool"]) for each in found] == [("error", "tool_not_found", "nothing")]
    assert found[0].data["success"] is False


def test_who_leaves_a_stream_cancels_the_tool(client: httpx2.Client, tmp_path: Path) -> None:
    """D-34, D-38: a caller that leaves cancels upstream; its row says so."""
    mark = tmp_path / "mark"
    call = body("until", gate=str(tmp_path / "gate"), mark=str(mark))

    with client.stream("POST", CALL, json=call, headers=STREAM) as response:
        next(events(response))

    assert soon(mark)
    calls = client.get("/api/agent/tools/calls", params={"tool": "until", "code": "client_left"}).json()
    assert calls["meta"]["total"] == 1


def test_a_tool_that_asks_is_answered_in_a_second_call(client: httpx2.Client) -> None:
    """D-34: `input_required` is 200 {success: false, code, result{inputRequests, requestState}}; plain and streamed."""
    asked = client.post(CALL, json=body("weather"))
    with client.stream("POST", CALL, json=body("weather"), headers=STREAM) as response:
        streamed = list(events(response))

    assert asked.status_code == 200
    said = asked.json()
    assert (said["success"], said["code"], "error" in said) == (False, "input_required", False)
    assert set(said["result"]) == {"inputRequests", "requestState"}
    assert said["result"]["inputRequests"]["city"]["params"]["message"] == "Which city?"
    assert [(event.name, event.data["code"]) for event in streamed] == [("result", "input_required")]

    answers = {"city": {"action": "accept", "content": {"city": "Bern"}}}
    again = {**body("weather"), "input_responses": answers, "request_state": said["result"]["requestState"]}
    answered = client.post(CALL, json=again)

    assert answered.json()["result"]["content"][0]["text"] == "Fine in Bern, asked once."
    assert answered.json()["success"] is True


@pytest.mark.parametrize("answers", [{"city": 7}, {"city": {"action": "maybe"}}, {"city": {"content": {}}}, []])
def test_an_answer_of_the_wrong_form_is_the_callers_mistake(client: httpx2.Client, answers: object) -> None:
    """D-34: 400 for a bad body; nothing a caller sends makes a 500."""
    answer = client.post(CALL, json={**body("weather"), "input_responses": answers, "request_state": "x"})

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")


async def test_a_reader_that_is_slow_costs_little_and_holds_nobody_up() -> None:
    """D-34: the upstream has other callers; what a reader does not take is left out, and it is told how much."""
    told = asyncio.Event()
    noise: dict[str, object] = {"level": "info", "data": "x" * 10_000}

    async def call(on_progress: OnProgress, on_log: OnLog) -> CallOutcome:
        await on_progress(1, None, None)
        for _ in range(1000):
            await on_log(noise)
        told.set()
        return CallOutcome(server=make_odd_server(), tool="t", duration_ms=0)

    running_call = RunningCall(call)
    await asyncio.wait_for(told.wait(), 10)
    await running_call.wait_started()
    found = [notice async for notice in running_call.iter_notices()]
    await running_call.stop()

    assert found[0].kind == "progress"
    assert sum(len(notice.content) for notice in found) <= 1024 * 1024
    assert len(found) < 1000
