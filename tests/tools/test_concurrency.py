"""Concurrent calls to one session: one change at a time, reads beside it, a fair queue, and pauses for callers' answers."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.errors import ServerBusy, ServerUnavailable
from rookery.tools.models import CallOutcome, JsonObject
from rookery.tools.servers.entries import ServerEntry
from rookery.tools.supervision.session_pool import SessionPool
from rookery.tools.supervision.upstream_session import UpstreamSession
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.tools.conftest import Start
from tests.tools.makers import (
    CALLER,
    CONNECTORS,
    SERVERS,
    Tools,
    call,
    call_text,
    make_caller,
    make_http_server,
    make_odd_entry,
    make_odd_server,
)

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

SECOND = make_caller(key_id="key-2")


@pytest.fixture
async def sessions() -> AsyncIterator[SessionPool]:
    """A pool whose sessions need not be opened: their slots are taken without a server."""
    pool = SessionPool(CONNECTORS)
    await pool.start()
    yield pool
    await pool.aclose()


class Line:
    """Calls that wait for slots of one session, and the order in which they got one."""

    def __init__(self, session: UpstreamSession) -> None:
        self.session = session
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def join(self, *owners: str) -> None:
        """Add a call of each owner to the line. Each ends as soon as it got a slot."""
        for owner in owners:
            before = self.session.queued
            self.tasks.append(asyncio.create_task(self.take(owner)))
            await eventually(lambda before=before: self.session.queued == before + 1)

    async def take(self, owner: str) -> None:
        """Take a slot, and give it back at once."""
        async with self.session.slot(owner, timeout_s=HANG_S):
            self.order.append(owner)


def the_session(tools: Tools) -> UpstreamSession:
    """Return the only session with the odd server."""
    (session,) = tools.sessions.list_sessions("odd")
    return session


async def test_calls_that_may_change_something_run_one_at_a_time_and_reads_beside_them(start: Start, tmp_path: Path) -> None:
    """Programs are made for one client, so Rookery sends the next change when the last one has ended."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "pid")
    changes = [asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / name))) for name in ("a", "b")]
    await eventually((tmp_path / "a.started").exists)

    assert await call_text(tools, "echo", text="hi") == "hi"
    _, content = await tools.resources.read(CALLER, "odd://memo/insights")
    assert content["contents"]
    assert (the_session(tools).in_flight, the_session(tools).queued) == (1, 1)
    assert not (tmp_path / "b.started").exists()
    (tmp_path / "a.end").touch()
    await eventually((tmp_path / "b.started").exists)
    (tmp_path / "b.end").touch()

    assert [(await change).error for change in changes] == [None, None]


async def test_max_concurrency_opens_the_queue_for_calls_of_any_kind(start: Start, tmp_path: Path) -> None:
    """The operator knows that a server bears several calls."""
    tools = await start({"odd": make_odd_entry(max_concurrency=2)})
    await call_text(tools, "pid")
    tasks = [asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x"))) for _ in range(2)]
    await eventually(lambda: the_session(tools).in_flight == 2)
    read = asyncio.create_task(call(tools, "echo", text="hi"))
    await eventually(lambda: the_session(tools).queued == 1)
    (tmp_path / "x.end").touch()

    assert [(await task).error for task in (*tasks, read)] == [None] * 3


def test_only_programs_are_limited_to_one_change() -> None:
    """A server with an address is made for many clients."""
    server, remote = make_odd_server(), make_http_server("http://127.0.0.1:9/mcp")

    assert (server.call_limit, server.change_limit) == (64, 1)
    assert (remote.call_limit, remote.change_limit) == (64, 64)
    opened = make_odd_server(max_concurrency=3)
    assert (opened.call_limit, opened.change_limit) == (3, 3)


async def test_a_read_waits_for_a_slot_at_most_as_long_as_it_maytake(start: Start, tmp_path: Path) -> None:
    """Reading a resource takes a slot as a call does. A call waits for its own time-out, which starts again when it is sent."""
    entry = make_odd_entry(max_concurrency=1, timeout_s=0.2, tools={"timeouts": {"slow": HANG_S}})
    tools = await start({"odd": entry})
    await call_text(tools, "echo", text="hi")
    slow = asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x")))
    await eventually((tmp_path / "x.started").exists)

    with pytest.raises(ServerBusy, match=r"did not end within 0\.2 s\. Try again in \d+ s\."):
        await tools.resources.read(CALLER, "odd://memo/insights")
    with pytest.raises(ServerBusy):
        await call(tools, "count")
    later = asyncio.create_task(call(tools, "slow", seconds=0, mark=str(tmp_path / "y")))
    await eventually(lambda: the_session(tools).queued == 1)
    (tmp_path / "x.end").touch()

    assert [(await task).error for task in (slow, later)] == [None, None]


async def test_keys_take_turns_so_that_a_burst_of_one_delays_no_other(sessions: SessionPool) -> None:
    """First come, first served within a key, and keys take turns."""
    session = sessions.get_session(make_odd_server(), CALLER, None)
    line = Line(session)
    async with session.slot("ada"):
        await line.join("ada", "ada", "ada", "ada", "bob", "bob", "eve")
    await asyncio.gather(*line.tasks)

    assert line.order == ["ada", "bob", "eve", "ada", "bob", "ada", "ada"]
    assert session.load == 0


async def test_a_full_queue_makes_room_for_the_key_with_fewer_calls(sessions: SessionPool) -> None:
    """256 calls may wait even if one runs at a time. Then the last call of the key with the most is refused."""
    session = sessions.get_session(make_odd_server(max_concurrency=1), CALLER, None)
    line = Line(session)
    async with session.slot("ada"):
        await line.join(*["ada"] * 256)
        with pytest.raises(ServerBusy, match="256 calls wait") as refused:
            await line.take("ada")
        bob = asyncio.create_task(line.take("bob"))
        last = line.tasks.pop()
        await eventually(last.done)
        assert isinstance(last.exception(), ServerBusy)
        assert session.queued == 256
    await asyncio.gather(bob, *line.tasks)

    assert refused.value.headers["Retry-After"] == str(refused.value.detail["retry_after"])
    assert line.order.index("bob") == 1
    assert session.load == 0


async def test_a_call_that_leaves_the_queue_delays_nobody(sessions: SessionPool) -> None:
    """A caller that disconnects while it waits leaves its place."""
    session = sessions.get_session(make_odd_server(), CALLER, None)
    line = Line(session)
    async with session.slot("ada"):
        await line.join("ada", "bob", "eve")
        line.tasks[0].cancel()
        await eventually(line.tasks[0].done)
        assert session.queued == 2
    line.tasks[1].cancel()  # it has its slot, but has not run yet
    await asyncio.gather(*line.tasks, return_exceptions=True)

    assert line.order == ["eve"]
    assert session.load == 0


async def test_a_call_that_was_given_up_keeps_its_slot_for_a_second(sessions: SessionPool) -> None:
    """The server may finish a cancelled call, which would overlap with the next one."""
    session = sessions.get_session(make_odd_server(), CALLER, None)
    async with session.slot("ada") as slot:
        slot.may_still_run = True
    started = time.monotonic()
    async with session.slot("bob"):
        waited_s = time.monotonic() - started

    assert waited_s > 0.9


async def test_a_call_that_waits_for_its_callers_answer_lets_others_run(start: Start) -> None:
    """A person may need minutes to answer. Meanwhile the calls of others run, also one that the caller makes to answer."""
    tools = await start({"odd": make_odd_entry(max_concurrency=1)})
    await call_text(tools, "pid")
    counts: list[str] = []

    async def answer(method: str, params: JsonObject) -> JsonObject:
        counts.append(await call_text(tools, "count"))
        return {"action": "accept", "content": {"name": method}}

    outcome = await tools.runner.call(CALLER, "odd", "ask", {"count": 2}, options=CallOptions(on_request=answer))

    assert outcome.error is None
    assert b"elicitation/create" in (outcome.result or b"")
    assert sorted(counts) == ["1", "2"]
    assert the_session(tools).load == 0


async def test_the_time_out_does_not_run_while_a_caller_is_asked(start: Start) -> None:
    """A person may take longer than the server may. The rule is the same for calls, resources and prompts."""
    tools = await start({"odd": make_odd_entry(timeout_s=1)})
    await call_text(tools, "pid")
    server = tools.catalogue.get_server(CALLER, "odd")

    async def answer(method: str, params: JsonObject) -> JsonObject:
        del method, params
        await asyncio.sleep(1.5)  # longer than the time-out
        return {"action": "accept", "content": {"name": "Ada"}}

    options = CallOptions(on_request=answer)
    called = await tools.runner.call(CALLER, "odd", "ask", {"count": 1}, options=options)
    read = await tools.resources.read(CALLER, "odd://demo/resource/asked", options=options)
    filled = await tools.resources.get_prompt(CALLER, server, "greet", {"who": "?"}, options=options)
    with pytest.raises(ServerUnavailable, match=r"^The server neither answered nor reported progress within 1 s\.$"):
        await tools.resources.read(CALLER, "odd://demo/resource/asked-in-vain", options=options)  # it runs again after the answer

    assert called.error is None
    assert "Ada" in str(read)
    assert "Ada" in str(filled)


async def test_an_answered_call_continues_before_waiting_calls(sessions: SessionPool) -> None:
    """Two changes never run at once, and a call that was begun comes before calls that were not."""
    session = sessions.get_session(make_odd_server(), CALLER, None)
    line, is_answered, may_end = Line(session), asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        async with session.slot("ada") as slot:
            async with slot.pause():
                await is_answered.wait()
            line.order.append("answered")

    async def change() -> None:
        async with session.slot("bob"):
            await may_end.wait()
            line.order.append("change")

    asking, changing = asyncio.create_task(ask()), asyncio.create_task(change())
    await eventually(lambda: session.in_flight == 2)
    await line.join("eve")
    is_answered.set()
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(asking, changing, *line.tasks)

    assert line.order == ["change", "answered", "eve"]
    assert session.load == 0


async def test_a_server_that_runs_no_other_call_still_gets_the_answer(sessions: SessionPool) -> None:
    """The call that took the slot may be unable to end before the asking one, so the answer waits three seconds at most."""
    session = sessions.get_session(make_odd_server(), CALLER, None)
    is_asking, is_answered = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        async with session.slot("ada") as slot:
            async with slot.pause():
                is_asking.set()
                await eventually(lambda: session.in_flight == 2)
            is_answered.set()

    asking = asyncio.create_task(ask())
    await is_asking.wait()
    async with session.slot("bob"):
        await asyncio.wait_for(is_answered.wait(), HANG_S)
    await asking

    assert session.load == 0


def make_memory_entry(folder: Path) -> dict[str, object]:
    """Make an entry of the odd server under the name of one that keeps its state in a file of *folder*."""
    program = folder.parent / "mcp-server-memory"
    program.symlink_to(SERVERS / "odd.py")
    env = {"MEMORY_FILE_PATH": str(folder / "graph.json")}
    return {"command": sys.executable, "args": ["-I", "-S", "-u", str(program)], "env": env, "max_concurrency": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a server's file."""
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


TAKE_LOCK = """
import fcntl, os, pathlib, sys, time
folder, seconds = sys.argv[1:]
descriptor = os.open(folder, os.O_RDONLY)
fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
time.sleep(float(seconds))
pathlib.Path(folder, "left").touch()
"""


async def take_lock(folder: Path, hold_s: float = 0.0) -> bool:
    """Take the lock on *folder* in another process, which holds it that long. Return whether it was free."""
    arguments = ["-I", "-S", "-c", TAKE_LOCK, str(folder), str(hold_s)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    is_free = await process.stdout.readline() == b"locked\n"
    if not hold_s:
        await process.wait()
    return is_free


async def test_other_processes_may_change_the_file_while_a_caller_is_asked(sessions: SessionPool, folder: Path) -> None:
    """The lock among processes gives way as the slot does, and is held again when the call continues."""
    session = sessions.get_session(ServerEntry(make_memory_entry(folder), {}).to_server("odd", "odd"), CALLER, None)
    async with session.slot("ada") as slot:
        assert not await take_lock(folder)
        async with slot.pause():
            assert await take_lock(folder)
        assert not await take_lock(folder)

        async with slot.pause():
            (folder / "left").unlink()
            assert await take_lock(folder, hold_s=0.5)
        assert (folder / "left").exists()  # it waited for the other process
        assert not await take_lock(folder)
    assert await take_lock(folder)


async def test_an_answer_does_not_wait_for_ever_for_another_process(sessions: SessionPool, folder: Path) -> None:
    """As with the slot, the call continues after three seconds at most. It then ends without the lock."""
    session = sessions.get_session(ServerEntry(make_memory_entry(folder), {}).to_server("odd", "odd"), CALLER, None)
    async with session.slot("ada") as slot:
        async with slot.pause():
            assert await take_lock(folder, hold_s=5)
        assert not (folder / "left").exists()
    await eventually((folder / "left").exists)

    async with session.slot("ada"):
        assert not await take_lock(folder)


async def test_a_server_that_asks_leaves_its_folder_to_other_processes(start: Start, folder: Path) -> None:
    """The same with the call of a server."""
    tools = await start({"odd": make_memory_entry(folder)})
    answers: list[bool] = []

    async def answer(method: str, params: JsonObject) -> JsonObject:
        del method, params
        answers.append(await take_lock(folder))
        return {"action": "accept", "content": {"name": "Ada"}}

    outcome = await tools.runner.call(CALLER, "odd", "ask", {"count": 1}, options=CallOptions(on_request=answer))

    assert (outcome.error, answers) == (None, [True])


async def test_a_session_drains_only_when_no_call_waits(start: Start, tmp_path: Path) -> None:
    """Calls that were accepted before an edit are answered, also while a call that was given up keeps the slot."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "pid")
    left = asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x")))
    await eventually((tmp_path / "x.started").exists)
    session = the_session(tools)
    waiting = asyncio.create_task(call(tools, "count"))
    await eventually(lambda: session.queued == 1)
    left.cancel()
    await asyncio.gather(left, return_exceptions=True)
    session.drain()
    outcome = await waiting

    assert isinstance(outcome, CallOutcome)
    assert outcome.error is None
