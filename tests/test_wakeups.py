"""Wake-ups between processes that share a PostgreSQL: LISTEN and NOTIFY as a hint, while polling stays the truth."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, MessageChannel, open_channel, open_database
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import Job, JobKind, JobOutcome, JobQueue, JobWorker
from rookery.kernel.wakeups import Wakeups
from tests.agents.makers import make_plan, phase
from tests.agents.test_stream import Event, follow, post, start
from tests.conftest import SECRET_KEY, eventually, run_instance
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.stopwatch import Stopwatch

pytestmark = pytest.mark.external_service

_LISTENERS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'rookery listener'"

_WORKER = """
import asyncio, sys
from pathlib import Path
from rookery.kernel.clock import utc_now
from rookery.kernel.db import open_channel, open_database
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobKind, JobQueue, JobWorker
from rookery.kernel.wakeups import Wakeups

async def run(url, is_notified, poll_interval_s):
    db = open_database(url, data_dir=Path("."))
    wakeups = Wakeups(open_channel(url, db) if is_notified else None)
    queue = JobQueue(db, utc_now, uuid7, wakeups)
    async def handle(batch):
        return {}
    kinds = [JobKind(name="Embed", handler=handle, batch_size=32)]
    await JobWorker(queue, kinds, lease_s=30, poll_interval_s=poll_interval_s).start()
    await asyncio.gather(wakeups.run(), asyncio.Event().wait())

asyncio.run(run(sys.argv[1], sys.argv[2] == "notified", float(sys.argv[3])))
"""


@contextmanager
def _run_worker(url: str, *, is_notified: bool, poll_interval_s: float) -> Generator[None]:
    """Run a worker of the jobs `Embed` in another process."""
    arguments = ["notified" if is_notified else "not notified", str(poll_interval_s)]
    with subprocess.Popen([sys.executable, "-c", _WORKER, url, *arguments]) as worker:
        try:
            yield
        finally:
            worker.kill()


@pytest.fixture
def database_url(postgres_database: str) -> str:
    """The address of the record store of `settings`: always PostgreSQL here."""
    return postgres_database


@pytest.fixture
async def control(postgres_database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection of the test itself."""
    async with await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def store(postgres_database: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A record store on PostgreSQL."""
    db = open_database(postgres_database, data_dir=tmp_path)
    yield db
    await db.close()


@pytest.fixture
def channel(postgres_database: str, store: Database) -> MessageChannel:
    """The channel of the record store."""
    channel = open_channel(postgres_database, store)
    assert channel is not None
    return channel


@pytest.fixture
async def queue(store: Database, channel: MessageChannel) -> AsyncIterator[JobQueue]:
    """A job queue that wakes the workers of other processes."""
    wakeups = Wakeups(channel)
    yield JobQueue(store, utc_now, uuid7, wakeups)
    await wakeups.close()


async def _enqueue(queue: JobQueue, count: int = 1) -> None:
    jobs = [(1, {"n": number}) for number in range(count)]
    await queue.db.write(lambda tx: queue.enqueue_many(tx, "Embed", jobs))


async def _is_empty(queue: JobQueue) -> bool:
    return await queue.count_pending("Embed", 1) == 0


async def _list_listeners(control: psycopg.AsyncConnection) -> list[int]:
    return [pid for (pid,) in await (await control.execute(_LISTENERS)).fetchall()]


async def test_a_job_wakes_the_workers_of_other_processes(postgres_database: str, queue: JobQueue) -> None:
    """The worker would poll once an hour, so each job here needs its wake-up."""
    with _run_worker(postgres_database, is_notified=True, poll_interval_s=3600):
        for _ in range(10):
            await _enqueue(queue)
            await eventually(lambda: _is_empty(queue))


async def test_a_listener_that_loses_its_connection_comes_back_and_loses_nothing(
    postgres_database: str, queue: JobQueue, control: psycopg.AsyncConnection
) -> None:
    """A hint may be lost, and then the worker looks when it listens again. It would poll once an hour."""
    with _run_worker(postgres_database, is_notified=True, poll_interval_s=3600):
        await eventually(lambda: _list_listeners(control))
        for _ in range(3):
            [listener] = await _list_listeners(control)
            await control.execute("SELECT pg_terminate_backend(%s, 10000)", [listener])
            await _enqueue(queue)
            await eventually(lambda: _is_empty(queue))
            assert listener not in await eventually(lambda: _list_listeners(control))


async def test_without_wake_ups_workers_poll(postgres_database: str, store: Database, control: psycopg.AsyncConnection) -> None:
    """Polling finds every job."""
    queue = JobQueue(store, utc_now, uuid7)
    with _run_worker(postgres_database, is_notified=False, poll_interval_s=0.05):
        for _ in range(3):
            await _enqueue(queue)
            await eventually(lambda: _is_empty(queue))
        assert await _list_listeners(control) == []


async def test_transactions_share_a_message(queue: JobQueue, control: psycopg.AsyncConnection) -> None:
    """A NOTIFY makes commits wait for each other, so it is in no transaction that writes, and many transactions share one."""
    await control.execute("LISTEN rookery")
    await _enqueue(queue, 500)
    await asyncio.gather(*(_enqueue(queue) for _ in range(200)))
    await queue.wakeups.close()
    await control.execute("NOTIFY rookery, 'end'")
    messages = list[str]()
    async for notification in control.notifies(timeout=HANG_S):
        if notification.payload == "end":
            break
        messages.append(notification.payload)

    assert 0 < len(messages) < 100
    assert all('"jobs":["Embed"]' in message for message in messages)


async def test_only_a_full_batch_wakes_other_processes_if_this_one_runs_the_jobs(queue: JobQueue, control: psycopg.AsyncConnection) -> None:
    """The process that added fewer jobs than a batch claims them itself, so a message would only cost time everywhere."""

    async def handle(_: Sequence[Job]) -> Mapping[str, JobOutcome]:
        return {}

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handle, batch_size=4, handover_delay_s=3600)], lease_s=30)
    await control.execute("LISTEN rookery")
    await worker.start()
    await _enqueue(queue, 3)
    await queue.db.write(lambda tx: queue.enqueue(tx, "Other", workspace_id=1, payload={}))
    messages = control.notifies(timeout=HANG_S)
    first = (await anext(messages)).payload
    await _enqueue(queue, 4)
    second = (await anext(messages)).payload
    await messages.aclose()
    await eventually(lambda: _is_empty(queue))
    await worker.stop()

    assert ('"jobs":["Other"]' in first, '"jobs":["Embed"]' in second) == (True, True)


async def test_messages_of_others_are_ignored(channel: MessageChannel, control: psycopg.AsyncConnection) -> None:
    """The channel belongs to the database: any program may send to it, and an older version may have another format."""
    keys = list[str | None]()
    receiver, sender = Wakeups(channel), Wakeups(channel)
    receiver.subscribe("jobs", keys.append)
    listening = asyncio.create_task(receiver.run())
    await eventually(lambda: keys)
    for message in ("", "no JSON", "[]", "{}", '{"from": 1}', '{"from": "x", "wake": 5}', '{"from": "x", "wake": {"other": ["a"]}}'):
        await channel.send(message)
    receiver.send("jobs", "own")
    sender.send("jobs", "Embed")
    await eventually(lambda: "Embed" in keys)
    for number in range(100):
        sender.send("jobs", f"Kind{number}")
    await eventually(lambda: keys[-1] != "Embed")
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await receiver.close()
    await sender.close()

    assert keys == [None, "Embed", None]


@pytest.mark.parametrize("is_on", [True, False])
async def test_servers_wake_each_other_for_tasks_and_cancellations(
    settings: Settings, control: psycopg.AsyncConnection, *, is_on: bool
) -> None:
    """Architecture: requests that wait for a task, and calls that another process cancelled. `ROOKERY_POSTGRES_NOTIFY=off` ends it."""
    settings = replace(settings, postgres_notify=is_on)
    async with run_instance(settings) as first, run_instance(settings) as second:
        if not is_on:
            assert await _list_listeners(control) == []
            return
        await eventually(lambda: _count_is(control, 2))
        for _ in range(3):
            waiting = second.rookery.agents.notifier.subscribe(first.workspace_id)
            await make_plan(first.admin, phase("work", "a task"))
            async with asyncio.timeout(HANG_S):
                await waiting

        with Stopwatch() as watch:
            for number in range(10):
                with second.rookery.content.calls.register(f"cancelled {number}") as call:
                    call.task = None
                    first.rookery.content.calls.cancel(f"cancelled {number}")
                    await eventually(lambda call=call: call.is_cancelled)
        assert watch.reference_s < 3, "polls once a second would take 10 s"


async def _count_is(control: psycopg.AsyncConnection, count: int) -> bool:
    return len(await _list_listeners(control)) == count


async def test_a_stream_has_the_events_of_another_server_at_once(postgres_database: str, data_dir: Path) -> None:
    """Architecture: a request that follows the events of a session on another server."""
    with (
        run_server(data_dir, database_url=postgres_database, secret_key=SECRET_KEY) as first,
        run_server(data_dir, database_url=postgres_database, secret_key=SECRET_KEY) as second,
    ):
        session = start(first)
        with follow(second, session, first.keys["api_key"]) as stream:
            next(stream)
            _post_and_receive(first, session, stream)
            with Stopwatch() as watch:
                for _ in range(10):
                    _post_and_receive(first, session, stream)
    assert watch.reference_s < 3, "polls once a second would take 10 s"


def _post_and_receive(server: Server, session: str, stream: Iterator[Event]) -> None:
    assert post(server, f"/{session}/events", message="hello") == next(stream).data
