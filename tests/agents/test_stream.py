"""The event stream of a session as server-sent events, over real sockets and with several processes."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import httpx2
import pytest

from tests.agents.session_makers import SESSIONS, get_nested
from tests.deadlines import HANG_S
from tests.processes import Server, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a separate process."""
    with run_server(tmp_path_factory.mktemp("streams")) as server_:
        yield server_


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream."""

    name: str
    number: str | None
    data: dict[str, object]


def events(response: httpx2.Response) -> Iterator[Event]:
    """Read a stream event by event, as a browser does."""
    name, number = "", None
    for line in response.iter_lines():
        if line.startswith("id: "):
            number = line.removeprefix("id: ")
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield Event(name, number, json.loads(line.removeprefix("data: ")))
            number = None


@contextmanager
def follow(server: Server, session: str, key: str | None = None, **headers: str) -> Generator[Iterator[Event]]:
    """Follow the events of a session."""
    request_headers = {"Authorization": f"Bearer {key or server.keys['api_key']}", **headers}
    with (
        httpx2.Client(base_url=server.url, headers=request_headers, timeout=HANG_S) as client,
        client.stream("GET", f"{SESSIONS}/{session}/stream") as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response)


def post(server: Server, path: str, **body: object) -> dict[str, object]:
    """Send a POST; it must succeed. Return the response."""
    response = server.client.post(f"{SESSIONS}{path}", json=body)
    assert response.is_success, response.text
    return dict(response.json())


def start(server: Server) -> str:
    """Start a session."""
    return str(get_nested(post(server, "", agent_type="coder"), "session")["id"])


def test_followers_get_each_event_until_the_session_ends(server: Server) -> None:
    """Each event with its type and number, changes of status, and the end, after which the stream closes; for all followers."""
    session = start(server)
    with follow(server, session) as first_stream, follow(server, session) as second_stream:
        assert [next(stream).data for stream in (first_stream, second_stream)] == [{"status": "active"}] * 2
        first_event = post(server, f"/{session}/events", message="a")
        assert next(first_stream) == next(second_stream) == Event("note", "1", first_event)
        server.client.patch(f"{SESSIONS}/{session}", json={"status": "paused"})
        assert next(first_stream) == next(second_stream) == Event("status", None, {"status": "paused"})
        second_event = post(server, f"/{session}/events", type="checkpoint", state={"at": 2})
        post(server, f"/{session}/end")

        remaining = [[event for event in stream if event.name != "status"] for stream in (first_stream, second_stream)]
    assert remaining == [[Event("checkpoint", "2", second_event), Event("end", None, {"status": "completed"})]] * 2


def test_a_resumed_stream_misses_and_repeats_no_event(server: Server) -> None:
    """A stream continues at Last-Event-ID or ?after=, however many events there are. After the end the response is 204."""
    session = start(server)
    for number in range(1, 251):
        post(server, f"/{session}/events", message=str(number))

    with follow(server, session, **{"Last-Event-ID": "3"}) as stream:
        notes = list(islice((event for event in stream if event.name == "note"), 247))
    assert [note.number for note in notes] == [str(number) for number in range(4, 251)]
    post(server, f"/{session}/end")
    with follow(server, session, **{"Last-Event-ID": "249"}) as stream:
        assert [(event.name, event.number) for event in stream] == [("note", "250"), ("end", None)]
    after_end = server.client.get(f"{SESSIONS}/{session}/stream", headers={"Last-Event-ID": "250"})
    assert after_end.status_code == 204
    invalid_id = server.client.get(f"{SESSIONS}/{session}/stream", headers={"Last-Event-ID": "x"})
    assert (invalid_id.status_code, list(invalid_id.json()["errors"])) == (422, ["Last-Event-ID"])


def test_a_stream_has_the_events_of_other_processes(server: Server) -> None:
    """Any number of processes share a store; a stream reads what others wrote."""
    session = start(server)
    with run_server(server.folder) as other_server, follow(server, session) as stream:
        assert next(stream).name == "status"
        response = httpx2.post(
            f"{other_server.url}{SESSIONS}/{session}/events",
            json={"message": "from afar"},
            headers=dict(server.client.headers),
            timeout=HANG_S,
        )
        assert response.status_code == 201
        assert next(stream).data["message"] == "from afar"
        end_response = httpx2.post(
            f"{other_server.url}{SESSIONS}/{session}/end", json={}, headers=dict(server.client.headers), timeout=HANG_S
        )
        assert end_response.status_code == 200

        assert next(stream) == Event("end", None, {"status": "completed"})


def test_revoking_a_key_ends_its_stream(server: Server) -> None:
    """Revoking takes effect on open streams."""
    session = start(server)
    key = server.client.post("/api/v1/api-keys", json={"name": "reader", "scopes": ["sessions:read"]}).json()
    with follow(server, session, key["plaintext_key"]) as stream:
        assert next(stream).name == "status"
        assert server.client.delete(f"/api/v1/api-keys/{key['id']}").is_success

        assert list(stream) == []


def test_stopping_the_server_ends_its_streams(tmp_path: Path) -> None:
    """Stopping does not wait for followers."""
    with run_server(tmp_path / "stops") as server:
        session = start(server)
        with follow(server, session) as stream:
            assert next(stream).name == "status"
            server.process.terminate()

            assert list(stream) == []
        assert server.stop() == 0
        assert "exceeded" not in server.log()
