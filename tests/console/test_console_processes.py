"""The console of a server of several processes, and of one with many open streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from rookery.agents.sessions.stream import MAX_STREAMS_PER_WORKSPACE
from tests.conftest import eventually, lend_model
from tests.console.browsing import SAME_ORIGIN
from tests.deadlines import HANG_S
from tests.kernel.test_metrics import parse_samples
from tests.processes import Server, run_server

pytestmark = [
    pytest.mark.embedded_store,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="reads descriptors in /proc"),
]

_WRONG_KEY = "sk_live_" + "x" * 32
_MAX_FAILURES = 10
_EXTRA_DESCRIPTORS = 12
"""Connections of the database and of the client that a server may open meanwhile."""


@pytest.fixture
def pair(tmp_path: Path, model_folder: Path) -> Iterator[Server]:
    """A server of two processes."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home", workers="2") as server:
        yield server


@asynccontextmanager
async def open_console(server: Server, cookies: httpx2.Cookies | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """Open a client whose connections are its own, so that either of the processes may accept them."""
    origin = {**SAME_ORIGIN, "Origin": server.url}
    async with httpx2.AsyncClient(base_url=f"{server.url}/console/", headers=origin, cookies=cookies, timeout=HANG_S) as http:
        yield http


async def sign_in(server: Server, key: str) -> httpx2.Response:
    """Submit the sign-in form on a connection of its own."""
    async with open_console(server) as http:
        return await http.post("sign-in", data={"key": key})


async def count_requests(server: Server) -> dict[str, float]:
    """Return the number of requests to the console, by process."""
    headers = {"Authorization": f"Bearer {server.keys['api_key']}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANG_S) as http:
        samples = parse_samples((await http.get("/metrics")).text)
    counts = dict[str, float]()
    for (name, labels), value in samples.items():
        fields = dict(labels)
        if name == "rookery_http_requests_total" and fields.get("route") == "/console" and "process" in fields:
            counts[fields["process"]] = counts.get(fields["process"], 0) + value
    return counts


@dataclass(slots=True)
class LiveTimeline:
    """An open stream of a session's page on a connection of its own."""

    parts: AsyncIterator[str]
    text: str = ""

    async def read_until(self, text: str) -> str:
        """Wait until *text* has arrived; return all that has."""
        async with asyncio.timeout(HANG_S):
            while text not in self.text:
                self.text += await anext(self.parts)
        return self.text


@asynccontextmanager
async def follow(server: Server, cookies: httpx2.Cookies, session_id: str) -> AsyncGenerator[LiveTimeline]:
    """Open the stream of a session's page."""
    async with open_console(server, cookies) as http, http.stream("GET", f"sessions/{session_id}/stream?after=0") as response:
        assert response.status_code == 200
        yield LiveTimeline(response.aiter_text())


def start_session(server: Server) -> str:
    """Start a session with one event; return its id."""
    started = server.client.post("/api/agent/sessions", json={"agent_type": "codex", "goal": "Watch me"})
    session_id = str(started.json()["session"]["id"])
    add_event(server, session_id, "The first.")
    return session_id


def add_event(server: Server, session_id: str, message: str) -> None:
    """Add an event to a session."""
    added = server.client.post(f"/api/agent/sessions/{session_id}/events", json={"type": "decision", "message": message})
    assert added.status_code == 201, added.text


async def test_a_session_works_in_each_process(pair: Server) -> None:
    """The cookie of one process is that of both, and the page of a session is live in both."""
    cookies = (await sign_in(pair, pair.keys["api_key"])).cookies

    async def both_have_answered() -> bool:
        for _ in range(8):
            async with open_console(pair, cookies) as http:
                assert (await http.get("keys")).status_code == 200
        return len(await count_requests(pair)) == 2

    await eventually(both_have_answered)
    session_id = start_session(pair)
    async with AsyncExitStack() as stack:
        timelines = [await stack.enter_async_context(follow(pair, cookies, session_id)) for _ in range(8)]
        for timeline in timelines:
            await timeline.read_until("The first.")
        add_event(pair, session_id, "The second.")
        for timeline in timelines:
            await timeline.read_until("The second.")


async def test_failed_sign_ins_are_limited_over_all_processes(pair: Server) -> None:
    """Ten wrong keys from one address, whichever process they reach; then a correct one waits too."""
    statuses = [(await sign_in(pair, _WRONG_KEY)).status_code for _ in range(3 * _MAX_FAILURES)]
    assert (statuses.count(429), 429 in statuses[:_MAX_FAILURES]) == (2 * _MAX_FAILURES, False), statuses
    assert (await sign_in(pair, pair.keys["api_key"])).status_code == 429


async def test_many_wrong_sign_ins_at_once_are_limited_over_all_processes(tmp_path: Path, model_folder: Path) -> None:
    """Exactly ten keys are checked. Before, each process checked those that had arrived before the first one had failed."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home", workers="4") as server:
        responses = await asyncio.gather(*(sign_in(server, _WRONG_KEY) for _ in range(200)))

        async def several_have_answered() -> bool:
            return len(await count_requests(server)) > 1

        await eventually(several_have_answered)
        entries = server.client.get("/api/v1/audit?workspace_id=0&action=console.sign_in_failed").json()

    assert Counter(response.status_code for response in responses) == {401: _MAX_FAILURES, 429: 200 - _MAX_FAILURES}
    assert entries["meta"]["total"] == _MAX_FAILURES


async def test_many_live_pages_leave_the_server_responsive(tmp_path: Path, model_folder: Path) -> None:
    """As many live pages as a workspace may have get each event, others are told to come back, and all that leave are freed."""
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home") as server:
        cookies = (await sign_in(server, server.keys["api_key"])).cookies
        session_id = start_session(server)
        async with follow(server, cookies, session_id) as timeline:
            await timeline.read_until("The first.")
        async with open_console(server, cookies) as http:
            assert (await http.get("sessions")).status_code == 200
        await eventually(lambda: count_connections(server) <= 1)
        before = count_descriptors(server)
        async with AsyncExitStack() as stack:
            timelines = [await stack.enter_async_context(follow(server, cookies, session_id)) for _ in range(MAX_STREAMS_PER_WORKSPACE)]
            await asyncio.gather(*(timeline.read_until("The first.") for timeline in timelines))
            async with follow(server, cookies, session_id) as refused:
                assert "retry: 15000\nevent: unavailable" in await refused.read_until("unavailable")
            async with open_console(server, cookies) as http:
                for path in ("", "sessions", f"sessions/{session_id}"):
                    assert (await http.get(path)).status_code == 200, path
            add_event(server, session_id, "The second.")
            await asyncio.gather(*(timeline.read_until("The second.") for timeline in timelines))
            assert count_descriptors(server) > MAX_STREAMS_PER_WORKSPACE
        await eventually(lambda: count_descriptors(server) <= before + _EXTRA_DESCRIPTORS)
        async with follow(server, cookies, session_id) as timeline:
            await timeline.read_until("The second.")


def count_descriptors(server: Server) -> int:
    """Return the number of open file descriptors of the server."""
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def count_connections(server: Server) -> int:
    """Return the number of connections to the server's port that clients have open."""
    port = f"{urlsplit(server.url).port or 0:04X}"
    lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    return sum(line.split()[1].endswith(f":{port}") and line.split()[3] == "01" for line in lines)
