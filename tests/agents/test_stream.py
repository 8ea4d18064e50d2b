"""Following a session as server-sent events, over real sockets and by several processes (D-62)."""

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
from tests.processes import Server, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a process of its own."""
    with run_server(tmp_path_factory.mktemp("streams")) as started:
        yield started


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
def following(server: Server, session: str, key: str | None = None, **headers: str) -> Generator[Iterator[Event]]:
    """Follow a session."""
    sent = {"Authorization": f"Bearer {key or server.keys['api_key']}", **headers}
    with (
        httpx2.Client(base_url=server.url, headers=sent, timeout=20) as client,
        client.stream("GET", f"{SESSIONS}/{session}/stream") as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response)


def post(server: Server, path: str, **body: object) -> dict[str, object]:
    """POST and return the answer, which must be no refusal."""
    answer = server.client.post(f"{SESSIONS}{path}", json=body)
    assert answer.is_success, answer.text
    return dict(answer.json())


def start(server: Server) -> str:
    """Start a session."""
    return str(get_nested(post(server, "", agent_type="coder"), "session")["id"])


def test_followers_hear_each_event_as_it_happens_until_the_end(server: Server) -> None:
    """D-62: each event by its type and number, changes of status, and the end, after which the stream closes; to all who follow."""
    session = start(server)
    with following(server, session) as one, following(server, session) as other:
        assert [next(each).data for each in (one, other)] == [{"status": "active"}] * 2
        first = post(server, f"/{session}/events", message="a")
        assert next(one) == next(other) == Event("note", "1", first)
        server.client.patch(f"{SESSIONS}/{session}", json={"status": "paused"})
        assert next(one) == next(other) == Event("status", None, {"status": "paused"})
        second = post(server, f"/{session}/events", type="checkpoint", state={"at": 2})
        post(server, f"/{session}/end")

        told = [[each for each in follower if each.name != "status"] for follower in (one, other)]
    assert told == [[Event("checkpoint", "2", second), Event("end", None, {"status": "completed"})]] * 2


def test_who_comes_back_misses_nothing_and_hears_nothing_twice(server: Server) -> None:
    """D-62: Last-Event-ID, or ?after=, is where a stream goes on, however much happened; after the end there is 204."""
    session = start(server)
    for number in range(1, 251):
        post(server, f"/{session}/events", message=str(number))

    with following(server, session, **{"Last-Event-ID": "3"}) as stream:
        heard = list(islice((each for each in stream if each.name == "note"), 247))
    assert [each.number for each in heard] == [str(number) for number in range(4, 251)]
    post(server, f"/{session}/end")
    with following(server, session, **{"Last-Event-ID": "249"}) as stream:
        assert [(each.name, each.number) for each in stream] == [("note", "250"), ("end", None)]
    over = server.client.get(f"{SESSIONS}/{session}/stream", headers={"Last-Event-ID": "250"})
    assert over.status_code == 204
    wrong = server.client.get(f"{SESSIONS}/{session}/stream", headers={"Last-Event-ID": "x"})
    assert (wrong.status_code, list(wrong.json()["errors"])) == (422, ["Last-Event-ID"])


def test_what_another_process_writes_is_heard_too(server: Server) -> None:
    """D-01, D-62: any number of processes share a store; a stream looks for what others wrote."""
    session = start(server)
    with run_server(server.folder) as other, following(server, session) as stream:
        assert next(stream).name == "status"
        answer = httpx2.post(
            f"{other.url}{SESSIONS}/{session}/events", json={"message": "from afar"}, headers=dict(server.client.headers), timeout=20
        )
        assert answer.status_code == 201
        assert next(stream).data["message"] == "from afar"
        ended = httpx2.post(f"{other.url}{SESSIONS}/{session}/end", json={}, headers=dict(server.client.headers), timeout=20)
        assert ended.status_code == 200

        assert next(stream) == Event("end", None, {"status": "completed"})


def test_a_key_that_is_revoked_hears_no_more(server: Server) -> None:
    """Spec 3.2: revoking takes effect on streams that are open."""
    session = start(server)
    made = server.client.post("/api/v1/api-keys", json={"name": "reader", "scopes": ["sessions:read"]}).json()
    with following(server, session, made["plaintext_key"]) as stream:
        assert next(stream).name == "status"
        assert server.client.delete(f"/api/v1/api-keys/{made['id']}").is_success

        assert list(stream) == []


def test_a_server_that_stops_ends_its_streams(tmp_path: Path) -> None:
    """D-01: stopping does not wait for followers."""
    with run_server(tmp_path / "stops") as server:
        session = start(server)
        with following(server, session) as stream:
            assert next(stream).name == "status"
            server.process.terminate()

            assert list(stream) == []
        assert server.stop() == 0
        assert "exceeded" not in server.log()
