"""The jobs table and its worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar, cast

import pytest
from sqlalchemy import func, select, update

from benchmarks.jobs import fill, run_workers
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database, Dialect, Tx, fetch_count
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import Job, JobDeferred, JobDone, JobFailed, JobKind, JobOutcome, JobPaused, JobQueue, JobWorker, jobs
from rookery.kernel.workspace_shares import WorkspaceShares
from tests.conftest import FakeClock, eventually
from tests.deadlines import HANG_S
from tests.processes import earlier_worker_id

T = TypeVar("T")


class Recorder:
    """A handler that records its batches and returns or raises the configured outcome."""

    def __init__(self, outcome: JobOutcome | Exception | None = None) -> None:
        self.outcome = outcome
        self.batches: list[list[object]] = []

    async def __call__(self, batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        self.batches.append([job.payload["n"] for job in batch])
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return {} if self.outcome is None else {job.id: self.outcome for job in batch}


async def _fill(queue: JobQueue, count: int, kind: str = "Embed") -> None:
    def work(tx: Tx) -> None:
        for number in range(count):
            queue.enqueue(tx, kind, workspace_id=1, payload={"n": number})

    await queue.db.write(work)


async def test_jobs_are_claimed_once_in_order_and_in_batches(database: Database, clock: FakeClock) -> None:
    """A claim is a batch with a lease."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=4)], lease_s=30)
    await _fill(queue, 6)

    counts = [await worker.run_ready("Embed") for _ in range(3)]

    assert counts == [4, 2, 0]
    assert handler.batches == [[0, 1, 2, 3], [4, 5]]
    assert await queue.count_pending("Embed", 1) == 0


class _LossyDatabase:
    """A record store whose connection breaks once at a write, before or after the commit."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.dialect: Dialect = db.dialect
        self.breaks: Literal["before", "after"] | None = None

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        """Run *work*, or break."""
        moment, self.breaks = self.breaks, None
        if moment == "before":
            raise EngineUnavailable("database", "the connection was lost")
        result = await self._db.write(work, is_synced=is_synced)
        if moment == "after":
            raise EngineUnavailable("database", "the connection was lost")
        return result

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run *work*."""
        return await self._db.read(work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        """Run *work*."""
        return await self._db.read_from_replica(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Run *work*."""
        return await self._db.lookup(work)

    async def close(self) -> None:
        """Do nothing: the store is closed by its fixture."""


@pytest.mark.parametrize("is_claim_lost", [True, False], ids=["the answer to a claim", "an outcome"])
async def test_jobs_whose_claim_or_outcome_was_lost_do_not_wait_for_their_lease(
    database: Database, clock: FakeClock, *, is_claim_lost: bool
) -> None:
    """After PostgreSQL was killed, memories that a living process had claimed were not indexed until their lease ended."""
    lossy, runs, taken_over = _LossyDatabase(database), list[int](), list[bool]()
    queue = JobQueue(lossy, clock, uuid7)
    await _fill(queue, 3)

    async def break_claim() -> None:
        if is_claim_lost and not runs and not taken_over:
            taken_over.append(False)
            lossy.breaks = "after"

    async def run(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        runs.append(len(batch))
        taken_over.append(batch[0].is_taken_over)
        if not is_claim_lost and len(runs) == 1:
            lossy.breaks = "before"
        return {}

    worker = JobWorker(queue, [JobKind(name="Embed", handler=run, batch_size=4, before_claim=break_claim)], lease_s=3600)
    await worker.start()
    try:

        async def is_empty() -> bool:
            return await queue.count_pending("Embed", 1) == 0

        await eventually(is_empty)
    finally:
        await worker.stop()

    assert taken_over == [False, True]


async def test_beside_a_backlog_a_quiet_workspace_waits_for_one_small_batch(database: Database, clock: FakeClock) -> None:
    """Its jobs are a batch of their own, which is the next one. While it is active, the batches of the backlog are small."""
    shares = WorkspaceShares(cores=2, monotonic=lambda: clock().timestamp())
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=32, shares=shares)], lease_s=30)
    await _fill(queue, 100)
    shares.record_request(1)
    await worker.run_ready("Embed")
    shares.record_request(2)
    clock.advance(seconds=0.1)
    await worker.run_ready("Embed")
    await database.write(lambda tx: queue.enqueue_many(tx, "Embed", [(2, {"n": "quiet"}), (2, {"n": "second"})]))
    for _ in range(2):
        await worker.run_ready("Embed")
    clock.advance(seconds=6)
    await worker.run_ready("Embed")

    assert [len(batch) for batch in handler.batches] == [32, 4, 2, 4, 32]
    assert handler.batches[2] == ["quiet", "second"]


@pytest.mark.parametrize(("batch_size", "first"), [(6, [[0, 1, 2, 20, 100, 101]]), (1, [[0], [20], [100], [1], [101], [2]])])
async def test_workspaces_take_turns(database: Database, clock: FakeClock, batch_size: int, first: list[list[int]]) -> None:
    """The backlog of one workspace does not delay another. Each has an equal part of a batch, and its jobs keep their order."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=batch_size)], lease_s=30)
    await _fill(queue, 20)
    clock.advance(seconds=1)
    backlogs = [(7, [100, 101, 102, 103]), (5, [20])]
    for workspace_id, numbers in backlogs:
        await database.write(
            lambda tx, workspace_id=workspace_id, numbers=numbers: queue.enqueue_many(
                tx, "Embed", [(workspace_id, {"n": number}) for number in numbers]
            )
        )

    for _ in first:
        await worker.run_ready("Embed")
    turns = [sorted(cast("list[int]", batch)) for batch in handler.batches]
    while await worker.run_ready("Embed"):
        pass

    ran = [cast("int", number) for batch in handler.batches for number in batch]
    assert turns == first
    assert sorted(ran) == [*range(21), *range(100, 104)]
    assert [number for number in ran if number >= 100] == [100, 101, 102, 103]


async def test_a_deferred_job_keeps_its_place_and_its_attempts(database: Database, clock: FakeClock) -> None:
    """A job that was too much for its batch is ready at once, before later ones."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder(JobDeferred())
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=2)], lease_s=30)
    await _fill(queue, 2)
    clock.advance(seconds=1)
    await queue.db.write(lambda tx: queue.enqueue(tx, "Embed", workspace_id=1, payload={"n": 2}))

    await worker.run_ready("Embed")
    handler.outcome = None
    counts = [await worker.run_ready("Embed") for _ in range(3)]

    assert (counts, handler.batches) == ([2, 1, 0], [[0, 1], [0, 1], [2]])


@pytest.mark.parametrize("outcome", [JobDeferred(), JobPaused("the engine is down"), JobFailed("a failure")])
async def test_a_job_stays_taken_over_until_it_is_done(database: Database, clock: FakeClock, outcome: JobOutcome) -> None:
    """The run after a crash did not finish, so the next one must know too that the job may be partly done."""
    queue, batches = JobQueue(database, clock, uuid7), list[list[bool]]()
    outcomes = [outcome, JobDone()]

    async def handle(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        batches.append([job.is_taken_over for job in batch])
        return {job.id: outcomes[len(batches) - 1] for job in batch}

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handle, batch_size=2, retry_delays_s=(60,))], lease_s=30)
    await _fill(queue, 2)
    first_id = (await database.read(lambda tx: tx.fetch_all(select(jobs.c.id).order_by(jobs.c.id))))[0].text("id")
    dead = earlier_worker_id(make_worker_id("x"))
    await database.write(lambda tx: tx.execute(update(jobs).where(jobs.c.id == first_id).values(owner=dead), {}))

    await worker.run_ready("Embed")
    clock.advance(seconds=60)
    await worker.run_ready("Embed")

    assert batches == [[True, False], [True, False]]
    assert await queue.count_pending("Embed", 1) == 0


async def test_four_processes_run_each_job_once(database: Database, database_url: str, data_dir: Path) -> None:
    """No job runs twice or is lost, and no process waits for another until all is done."""
    await fill(database_url, data_dir, 2_000)

    ran, _ = run_workers(database_url, data_dir, processes=4, batch_size=16)

    assert sorted(number for numbers in ran for number in numbers) == list(range(2_000))
    assert await database.read(lambda tx: fetch_count(tx, select(func.count()).select_from(jobs))) == 0


async def test_a_failing_job_is_retried_on_its_schedule_then_daily(database: Database, clock: FakeClock) -> None:
    """The delays are 10, 60 and 300 seconds; then the job is failed and retried daily."""
    queue, handler, failed_ids = JobQueue(database, clock, uuid7), Recorder(JobFailed("no")), list[str]()
    kind = JobKind(name="Embed", handler=handler, on_failed=lambda tx, job: failed_ids.append(job.id))
    worker = JobWorker(queue, [kind], lease_s=30)
    await _fill(queue, 1)

    runs = list[float]()
    elapsed = 0.0
    for step in (0, 9, 1, 59, 1, 299, 1, 86399, 1):
        clock.advance(seconds=step)
        elapsed += step
        if await worker.run_ready("Embed"):
            runs.append(elapsed)

    assert runs == [0, 10, 70, 370, 86770]
    assert len(failed_ids) == 2
    [(job, reason)] = await queue.list_failed()
    assert (job.attempts, reason) == (5, "no")
    assert await queue.count_pending("Embed", 1) == 0


@pytest.mark.parametrize("outage", [EngineUnavailable("vectors", "gone"), StorageFull("The disk is full.")])
async def test_an_engine_that_is_down_uses_no_attempt(database: Database, clock: FakeClock, outage: RookeryError) -> None:
    """An engine that is down, or a full disk, pauses the jobs of its kind."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder(outage)
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=2)], lease_s=30)
    await _fill(queue, 2)

    for _ in range(6):
        assert await worker.run_ready("Embed") == 2
    handler.outcome = JobPaused("still gone")
    await worker.run_ready("Embed")
    handler.outcome = JobFailed("once")
    await worker.run_ready("Embed")
    clock.advance(seconds=10)

    assert await worker.run_ready("Embed") == 2
    assert await queue.list_failed() == []


async def test_one_failing_job_does_not_fail_its_batch(database: Database, clock: FakeClock) -> None:
    """Jobs of a batch fail alone."""
    queue = JobQueue(database, clock, uuid7)
    numbers = list[object]()

    async def handler(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        if any(job.payload["n"] == 2 for job in batch):
            raise ZeroDivisionError
        numbers.extend(job.payload["n"] for job in batch)
        return {}

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=4)], lease_s=30)
    await _fill(queue, 4)
    await worker.run_ready("Embed")

    assert numbers == [0, 1, 3]
    assert await queue.count_pending("Embed", 1) == 1


async def test_an_expired_lease_frees_the_job_without_an_attempt(database: Database, clock: FakeClock) -> None:
    """The worker that lost the lease cannot complete the job any longer."""
    queue = JobQueue(database, clock, uuid7)
    started, continued = asyncio.Event(), asyncio.Event()

    async def work_slowly(_: Sequence[Job]) -> Mapping[str, JobOutcome]:
        started.set()
        await continued.wait()
        return {}

    second_handler = Recorder(JobFailed("the second one failed"))
    first = JobWorker(queue, [JobKind(name="Embed", handler=work_slowly)], lease_s=30)
    second = JobWorker(queue, [JobKind(name="Embed", handler=second_handler)], lease_s=30)
    await _fill(queue, 1)
    first_run = asyncio.create_task(first.run_ready("Embed"))
    await started.wait()
    assert await second.run_ready("Embed") == 0
    clock.advance(seconds=31)
    assert await second.run_ready("Embed") == 1
    continued.set()
    await first_run

    clock.advance(seconds=10)
    assert await second.run_ready("Embed") == 1
    assert second_handler.batches == [[0], [0]]


async def test_concurrent_workers_run_each_job_once(database: Database, clock: FakeClock) -> None:
    """Claims never overlap, on every database."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    workers = [JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=3)], lease_s=30) for _ in range(4)]
    await _fill(queue, 60)

    while sum(await asyncio.gather(*(worker.run_ready("Embed") for worker in workers))):
        pass

    assert sorted(number for batch in handler.batches for number in batch if isinstance(number, int)) == list(range(60))


async def test_a_running_worker_wakes_for_a_new_job_and_stops_cleanly(database: Database, clock: FakeClock) -> None:
    """The worker ends its own task."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=8)], lease_s=30)
    await worker.start()
    await _fill(queue, 3)
    await eventually(lambda: handler.batches)
    await worker.stop()

    assert handler.batches == [[0, 1, 2]]
    await _fill(queue, 1)
    assert await queue.count_pending("Embed", 1) == 1


async def test_jobs_that_become_ready_while_a_worker_waits_form_one_batch(database: Database, clock: FakeClock) -> None:
    """The worker waits for requests in progress before it claims jobs."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    has_asked, continued = asyncio.Event(), asyncio.Event()

    async def wait_before_claim() -> None:
        has_asked.set()
        await continued.wait()

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=8, before_claim=wait_before_claim)], lease_s=30)
    await worker.start()
    assert not has_asked.is_set()
    for _ in range(3):
        await _fill(queue, 1)
    await asyncio.wait_for(has_asked.wait(), HANG_S)
    await _fill(queue, 2)
    batches_before = list(handler.batches)
    continued.set()
    await eventually(lambda: handler.batches)
    await worker.stop()

    assert (batches_before, handler.batches) == ([], [[0, 0, 0, 0, 1]])


class CountingClock(FakeClock):
    """A clock that counts how often it was read. A worker reads it for each look at its jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.read_count = 0

    def __call__(self) -> datetime:
        self.read_count += 1
        return super().__call__()


async def test_a_small_batch_is_left_to_the_process_that_added_it(database: Database) -> None:
    """More processes do not claim smaller batches. A process that is too busy loses its jobs after the handover delay."""
    own_clock, other_clock = FakeClock(), CountingClock()
    own_queue, other_queue = JobQueue(database, own_clock, uuid7), JobQueue(database, other_clock, uuid7)
    own_is_blocked, own_continues, own, other = asyncio.Event(), asyncio.Event(), Recorder(), Recorder()

    async def block() -> None:
        own_is_blocked.set()
        await own_continues.wait()

    kind = JobKind(name="Embed", handler=own, batch_size=4, before_claim=block, handover_delay_s=0.5)
    own_worker = JobWorker(own_queue, [kind], lease_s=30)
    other_worker = JobWorker(other_queue, [replace(kind, handler=other, before_claim=None)], lease_s=30, poll_interval_s=0.01)
    await own_worker.start()
    await other_worker.start()
    await eventually(lambda: other_clock.read_count >= 3)  # its first look, which claims what nobody has, is over
    await _fill(own_queue, 3)
    await asyncio.wait_for(own_is_blocked.wait(), HANG_S)
    looks = other_clock.read_count
    await eventually(lambda: other_clock.read_count >= looks + 3)
    batches_of_others_at_first = list(other.batches)
    await _fill(own_queue, 1)
    await eventually(lambda: other.batches)
    await _fill(own_queue, 2)
    other_clock.advance(seconds=1)
    await eventually(lambda: len(other.batches) == 2)
    own_continues.set()
    await own_worker.stop()
    await other_worker.stop()

    assert batches_of_others_at_first == []
    assert other.batches == [[0, 1, 2, 0], [0, 1]]
    assert own.batches == []


async def test_jobs_that_come_during_a_batch_of_another_process_are_left_to_it(database: Database, clock: FakeClock) -> None:
    """One process indexes what all of them store, in larger batches, as long as it keeps up."""
    first_queue, second_queue = JobQueue(database, clock, uuid7), JobQueue(database, second_clock := CountingClock(), uuid7)
    has_started, continues, first, second = asyncio.Event(), asyncio.Event(), Recorder(), Recorder()

    async def run_slowly(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        has_started.set()
        await continues.wait()
        return await first(batch)

    kind = JobKind(name="Embed", handler=run_slowly, batch_size=8, handover_delay_s=0.5)
    workers = [
        JobWorker(first_queue, [kind], lease_s=30),
        JobWorker(second_queue, [replace(kind, handler=second)], lease_s=30, poll_interval_s=0.01),
    ]
    for worker in workers:
        await worker.start()
    await eventually(lambda: second_clock.read_count >= 3)  # the start and the first look, which takes what it sees, have ended
    await _fill(first_queue, 1)
    await asyncio.wait_for(has_started.wait(), HANG_S)
    looks = second_clock.read_count
    await _fill(second_queue, 3)
    await eventually(lambda: second_clock.read_count >= looks + 6)
    continues.set()
    await eventually(lambda: len(first.batches) == 2)
    for worker in workers:
        await worker.stop()

    assert (first.batches, second.batches) == ([[0], [0, 1, 2]], [])


async def test_a_stopped_worker_releases_its_jobs_immediately(database: Database, clock: FakeClock) -> None:
    """The next worker need not wait for the lease."""
    queue, started = JobQueue(database, clock, uuid7), asyncio.Event()

    async def work_forever(_: Sequence[Job]) -> Mapping[str, JobOutcome]:
        started.set()
        await asyncio.Event().wait()
        return {}

    first, handler = JobWorker(queue, [JobKind(name="Embed", handler=work_forever)], lease_s=30), Recorder()
    await _fill(queue, 1)
    await first.start()
    await started.wait()
    await first.stop()

    assert await JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30).run_ready("Embed") == 1


async def test_jobs_of_a_dead_process_are_claimed_at_the_next_start(database: Database, clock: FakeClock) -> None:
    """After kill -9 the next start need not wait for the lease."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    await _fill(queue, 1)
    dead_claim = update(jobs).values(owner=earlier_worker_id(make_worker_id("x")), run_at=to_micros(clock() + timedelta(hours=1)))
    await database.write(lambda tx: tx.execute(dead_claim))

    next_worker = JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30)
    await next_worker.start()
    await eventually(lambda: handler.batches)
    await next_worker.stop()


async def test_jobs_of_an_earlier_process_with_this_pid_are_claimed_at_the_start(database: Database, clock: FakeClock) -> None:
    """A server that restarts in a container has the same process id."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    await _fill(queue, 1)
    dead_claim = update(jobs).values(owner=earlier_worker_id(make_worker_id("x")), run_at=to_micros(clock() + timedelta(hours=1)))
    await database.write(lambda tx: tx.execute(dead_claim))

    next_worker = JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30)
    await next_worker.start()
    await eventually(lambda: handler.batches)
    await next_worker.stop()
