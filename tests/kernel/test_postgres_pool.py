"""The connections of the record store on PostgreSQL, when the tasks that use them are cancelled."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import psycopg
import pytest
from sqlalchemy import func, insert, literal, literal_column, select

from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.jobs import jobs
from tests.conftest import eventually
from tests.deadlines import HANG_S

pytestmark = pytest.mark.external_service

_POOL_SIZE = 10
_CANCELLATIONS = 10_000
_TASKS = 24
_STAGES = ("checkout", "statement", "commit or return")
_TARGETS = (*("checkout",) * 4, "statement", "commit or return")
"""Most cancellations are at the checkout, where they are cheapest and where pools fail."""
_LOCK_ID = 1208
_INSERT = insert(jobs)
_JOB = {"kind": "K", "workspace_id": 1, "payload": "{}", "attempts": 0, "run_at": 0, "created_at": 0}
_COUNT = select(func.count().label("n")).select_from(jobs)
_SELECT_ONE = select(literal(1).label("one"))
_WAIT_FOR_LOCK = select(func.pg_advisory_xact_lock_shared(literal_column(str(_LOCK_ID))), func.pg_backend_pid().label("pid"))
_SLEEP = select(func.pg_sleep(literal_column("25")))

_SELECT_BACKENDS = """
SELECT pid, state FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@pytest.fixture
async def control(postgres_database: str) -> AsyncIterator[psycopg.AsyncConnection]:
    """A connection of the test itself, which observes those of the store."""
    async with await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def store(postgres_database: str, tmp_path: Path) -> AsyncIterator[Database]:
    """A record store on PostgreSQL."""
    db = open_database(postgres_database, data_dir=tmp_path)
    yield db
    await db.close()


async def _list_backends(control: psycopg.AsyncConnection) -> dict[int, str]:
    """Return the state of each backend of the store by its process id."""
    return dict(await (await control.execute(_SELECT_BACKENDS)).fetchall())


async def _use_all_connections(store: Database, control: psycopg.AsyncConnection) -> set[int]:
    """Use all connections of the store at the same time, and return their backends."""
    await control.execute("SELECT pg_advisory_lock(%s)", [_LOCK_ID])
    reads = [asyncio.create_task(store.read(lambda tx: tx.fetch_one(_WAIT_FOR_LOCK))) for _ in range(_POOL_SIZE)]

    async def all_wait() -> bool:
        cursor = await control.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return await cursor.fetchone() == (_POOL_SIZE,)

    await eventually(all_wait)
    await control.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_ID])
    return {row.integer("pid") for row in await asyncio.gather(*reads) if row is not None}


class _Cancellation:
    """
    The cancellation of a transaction at a random moment after it enters a random stage.

    Attributes:
        stage: The current stage of the transaction.
        cancelled_in: The stage in which it was cancelled; None: not yet.
        task: The task to cancel.
    """

    def __init__(self, duration_s: float) -> None:
        self.task: asyncio.Task[object] | None = None
        self.stage = ""
        self.cancelled_in: str | None = None
        self._target = random.choice(_TARGETS)
        self._delay_s = random.uniform(0, duration_s / 2)
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, stage: str) -> None:
        """Record that the transaction is in *stage* now."""
        self.stage = stage
        if stage == self._target:
            self._timer = asyncio.get_running_loop().call_later(self._delay_s, self._cancel)

    def stop(self) -> None:
        """Forget the cancellation if it has not happened."""
        if self._timer is not None:
            self._timer.cancel()

    def _cancel(self) -> None:
        if self.task is not None and self.task.cancel():
            self.cancelled_in = self.stage


class _Load:
    """Transactions of all kinds, most of which are cancelled."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self._started = 0
        self._durations: deque[float] = deque([0.005], maxlen=100)
        self.stages: Counter[str | None] = Counter()
        """The number of cancellations by the stage of the transaction at that moment."""
        self.callbacks = 0

    async def run(self) -> None:
        """Run transactions until enough were cancelled."""
        while self.stages.total() < _CANCELLATIONS:
            await self._run_one()

    async def _run_one(self) -> None:
        self._started += 1
        row = {"id": f"{self._started}", **_JOB}
        is_write = random.random() < 0.5
        cancellation = _Cancellation(median(self._durations))

        def work(tx: Tx) -> None:
            cancellation.enter("statement")
            tx.fetch_one(_SELECT_ONE)
            if is_write:
                tx.execute(_INSERT, row)
                tx.after_commit(self._count_callback)
            cancellation.enter("commit or return")

        if is_write:
            transaction = self._store.write(work, is_synced=random.random() < 0.5)
        else:
            transaction = random.choice((self._store.read, self._store.lookup))(work)
        started = time.monotonic()
        cancellation.task = asyncio.create_task(transaction)
        cancellation.enter("checkout")
        await asyncio.wait({cancellation.task})
        cancellation.stop()
        if cancellation.task.cancelled():
            self.stages[cancellation.cancelled_in] += 1
        else:
            await cancellation.task
            self._durations.append(time.monotonic() - started)

    def _count_callback(self) -> None:
        self.callbacks += 1


async def test_10000_random_cancellations_leave_the_pool_as_it_was(store: Database, control: psycopg.AsyncConnection) -> None:
    """Checkouts are shielded from cancellation."""
    backends = await _use_all_connections(store, control)
    load = _Load(store)
    async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as group:
        for _ in range(_TASKS):
            group.create_task(load.run())

    assert load.stages.total() >= _CANCELLATIONS
    assert min(load.stages[stage] for stage in _STAGES) > _CANCELLATIONS / 100
    assert await _list_backends(control) == dict.fromkeys(backends, "idle")
    assert await _use_all_connections(store, control) == backends
    # A transaction that was committed although its task was cancelled has run its callbacks.
    rows = await store.read(lambda tx: tx.fetch_one(_COUNT))
    assert rows is not None
    assert rows.integer("n") == load.callbacks > 0


async def test_a_cancelled_task_ends_a_slow_statement(store: Database, control: psycopg.AsyncConnection) -> None:
    """A statement of a request whose client has gone must not hold a connection until the statement timeout."""
    backends = await _use_all_connections(store, control)
    reads = [asyncio.create_task(store.read(lambda tx: tx.fetch_one(_SLEEP))) for _ in range(_POOL_SIZE)]

    async def all_sleep() -> bool:
        return list((await _list_backends(control)).values()) == ["active"] * _POOL_SIZE

    await eventually(all_sleep)
    for read in reads:
        read.cancel()
    results = await asyncio.gather(*reads, return_exceptions=True)

    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert len(await _use_all_connections(store, control)) == _POOL_SIZE
    states = await _list_backends(control)
    assert len(states) == len(backends)
    assert set(states.values()) == {"idle"}


async def test_close_waits_for_transactions_of_cancelled_tasks(
    postgres_database: str, control: psycopg.AsyncConnection, tmp_path: Path
) -> None:
    """Every connection is closed when the store is closed, also those of tasks that were cancelled twice."""
    store = open_database(postgres_database, data_dir=tmp_path)
    reads = [asyncio.create_task(store.read(lambda tx: tx.fetch_one(_SLEEP))) for _ in range(3)]

    async def all_sleep() -> bool:
        return list((await _list_backends(control)).values()) == ["active"] * 3

    await eventually(all_sleep)
    for _ in range(2):
        for read in reads:
            read.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*reads, return_exceptions=True)
    await store.close()

    async def all_gone() -> bool:
        return not await _list_backends(control)

    await eventually(all_gone)
