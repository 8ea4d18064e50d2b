"""The section Sessions: list, page, and the timeline that follows the stream of a session."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import pytest
from starlette.types import Message

from rookery.app import create_app
from rookery.console.rendering import MAX_PAGE_BYTES
from tests.conftest import Caller, Instance, eventually
from tests.console.browsing import BrowserUser, ConsoleUser
from tests.deadlines import HANG_S
from tests.processes import Server

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

NASTY = """<script>alert("1")</script> 'single' "double" {{ visit }} & ünïcödé"""


async def start(caller: Caller, goal: str = "Fix the upload", **fields: object) -> str:
    """Start a session; return its id."""
    response = await caller.post("/api/agent/sessions", {"agent_type": "claude-code", "goal": goal, **fields})
    assert response.status_code == 201, response.text
    return cast("str", response.json()["session"]["id"])


async def add(caller: Caller, session_id: str, message: str, **fields: object) -> None:
    """Add an event to a session."""
    response = await caller.post(f"/api/agent/sessions/{session_id}/events", {"message": message, **fields})
    assert response.status_code == 201, response.text


def count_tasks() -> Counter[str]:
    """Return the number of running tasks by the function that each runs."""
    return Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())


class StreamReader:
    """A browser that reads the stream of a session's page, and can leave."""

    def __init__(self, user: ConsoleUser, instance: Instance, path: str, last_id: str = "") -> None:
        cookies = "; ".join(f"{cookie.name}={cookie.value}" for cookie in user.http.cookies.jar)
        headers = [(b"host", b"localhost"), (b"cookie", cookies.encode()), (b"hx-request", b"true")]
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))
        path, _, query = path.partition("?")
        self.text = ""
        self._arrived, self._left = asyncio.Event(), asyncio.Event()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http", "root_path": "",
            "path": f"/console/{path}", "raw_path": f"/console/{path}".encode(), "query_string": query.encode(), "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("localhost", 80), "state": {},
        }  # fmt: skip
        self.task = asyncio.ensure_future(create_app(instance.rookery)(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.text += message.get("body", b"").decode()
        self._arrived.set()

    async def read_until(self, text: str) -> str:
        """Wait until *text* has arrived; return all that has."""
        async with asyncio.timeout(HANG_S):
            while text not in self.text:
                self._arrived.clear()
                await self._arrived.wait()
        return self.text

    async def leave(self) -> None:
        """Close the connection, and wait until the server has ended the response."""
        self._left.set()
        await asyncio.wait_for(self.task, HANG_S)


async def test_sessions_are_listed_and_filtered(user: ConsoleUser, instance: Instance) -> None:
    """The list has filters by status, agent and plan, on the server, and is paged."""
    assert "No sessions yet" in await user.read("sessions")
    first = await start(instance.admin, "First goal", agent_id="ada")
    await start(instance.admin, "Second goal", agent_id="grace")
    await instance.admin.post(f"/api/agent/sessions/{first}/end", {"status": "completed"})
    for query in ("status=completed", "agent_id=ada"):
        page = await user.read(f"sessions?{query}")
        assert ("First goal" in page, "Second goal" in page) == (True, False), query
    assert "No session matches" in await user.read("sessions?status=failed")
    assert 'role="alert"' in (await user.get("sessions?plan=nothing")).text
    for number in range(25):
        await start(instance.admin, f"Goal {number}", agent_id=f"agent-{number}")
    assert "26–27 of 27" in await user.read("sessions?page=2")


async def test_a_session_has_its_timeline_newest_first(user: ConsoleUser, instance: Instance) -> None:
    """The page is a plain list without scripts, and its pages are those of the server."""
    session_id = await start(instance.admin)
    for number in range(1, 31):
        await add(instance.admin, session_id, f"Step {number}.", type="action")
    first, second = await user.read(f"sessions/{session_id}"), await user.read(f"sessions/{session_id}?page=2")
    assert first.index("Step 30.") < first.index("Step 6.")
    assert "1–25 of 30" in first
    assert "26–30 of 30" in second
    assert second.index("Step 5.") < second.index("Step 1.")
    assert "stream?after=30" in (await user.get(f"sessions/{session_id}")).text
    assert "hx-sse:connect" not in (await user.get(f"sessions/{session_id}?page=2")).text


async def test_a_session_is_ended_and_resumed(user: ConsoleUser, instance: Instance) -> None:
    """Pause, continue, end with a hand-off, and start the successor."""
    session_id = await start(instance.admin)
    for status, button in (("paused", "Continue"), ("active", "Pause")):
        assert (await user.post(f"sessions/{session_id}/status", {"status": status})).status_code == 303
        assert button in await user.read(f"sessions/{session_id}")
    ended = await user.post(f"sessions/{session_id}/status", {"status": "handed_off", "handoff": "Look at the temporary folder."})
    assert ended.status_code == 303, ended.text[-500:]
    page = await user.read(f"sessions/{session_id}")
    assert "Look at the temporary folder." in page
    assert "Resume" in page
    again = await user.post(f"sessions/{session_id}/status", {"status": "failed"})
    assert (again.status_code, 'role="alert"' in again.text) == (409, True)
    resumed = await user.post(f"sessions/{session_id}/resume")
    assert resumed.status_code == 303
    assert "the session before" in await user.read(resumed.headers["location"].removeprefix("../../"))


async def test_the_stream_sends_events_as_html(user: ConsoleUser, instance: Instance) -> None:
    """The timeline is live, continues after the last event that the browser has, and ends with the session."""
    session_id = await start(instance.admin)
    await add(instance.admin, session_id, "Before.")
    reader = StreamReader(user, instance, f"sessions/{session_id}/stream?after=1")
    await add(instance.admin, session_id, f"After.\nTwo lines. {NASTY}", type="decision", data={"k": NASTY})
    text = await reader.read_until("Two lines.")
    assert "Before." not in text
    assert "id: 2\ndata: " in text
    assert "<script>alert" not in text
    resumed = StreamReader(user, instance, f"sessions/{session_id}/stream?after=1", last_id="2")
    await add(instance.admin, session_id, "Third.")
    assert "Two lines." not in await resumed.read_until("Third.")
    await instance.admin.post(f"/api/agent/sessions/{session_id}/end", {"status": "completed"})
    for each in (reader, resumed):
        assert "completed" in await each.read_until("event: end")
        await asyncio.wait_for(each.task, HANG_S)


async def test_browsers_that_leave_free_their_streams(user: ConsoleUser, instance: Instance) -> None:
    """No leak: after the browsers have left, no more tasks run than before, and nothing polls their session."""
    session_id = await start(instance.admin)
    await user.read("sessions")
    before = count_tasks()
    readers = [StreamReader(user, instance, f"sessions/{session_id}/stream") for _ in range(3)]
    await add(instance.admin, session_id, "One.")
    for reader in readers:
        await reader.read_until("One.")
    assert not count_tasks() <= before
    for reader in readers:
        await reader.leave()
    await eventually(lambda: count_tasks() <= before)


async def test_pages_of_sessions_are_bounded(user: ConsoleUser, instance: Instance) -> None:
    """Content of agents is text, and every page has a bound."""
    session_id = await start(instance.admin, NASTY)
    for _ in range(26):
        await add(instance.admin, session_id, NASTY + '"' * 49_000, data={"text": '"' * 20_000})
    body = {"handoff": {"summary": NASTY, "remaining": [NASTY], "refs": {"branch": NASTY}}, "status": "handed_off"}
    assert (await instance.admin.post(f"/api/agent/sessions/{session_id}/end", body)).status_code == 200
    for path in ("sessions", f"sessions/{session_id}"):
        response = await user.get(path)
        assert response.status_code == 200, path
        assert len(response.content) < MAX_PAGE_BYTES, (path, len(response.content))
        assert "<script>alert" not in response.text, path


async def test_a_key_sees_its_sessions_alone(instance: Instance) -> None:
    """Sessions of another workspace are not found, and a reader has no buttons."""
    session_id = await start(instance.admin)
    reader = await instance.api_key("console:read", "sessions.read")
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    async with ConsoleUser(instance.rookery) as person:
        await person.sign_in(reader.key or "")
        assert "Pause" not in await person.read(f"sessions/{session_id}")
        assert (await person.post(f"sessions/{session_id}/status", {"status": "completed"})).status_code == 403
    async with ConsoleUser(instance.rookery) as person:
        await person.sign_in(other.key or "")
        for path in (f"sessions/{session_id}", f"sessions/{session_id}/stream"):
            assert (await person.get(path)).status_code == 404, path


async def test_an_event_appears_live(person: BrowserUser, server: Server) -> None:
    """A new event appears on the open page, and the page shows that the session has ended."""
    started = server.client.post("/api/agent/sessions", json={"agent_type": "codex", "goal": "Watch me"})
    path = f"/api/agent/sessions/{started.json()['session']['id']}"
    await person.go(f"sessions/{path.rpartition('/')[2]}")
    for text in ("It happens now.", "And this follows."):
        server.client.post(f"{path}/events", json={"type": "decision", "message": text})
        await person.wait_for_text(text)
    assert await person.page.evaluate("document.querySelector('#timeline .event').innerText.includes('And this follows.')")
    server.client.post(f"{path}/end", json={"status": "completed"})
    await person.wait_for("document.querySelector('#session-state').innerText.includes('completed')")
    assert await person.find_faults() == []
