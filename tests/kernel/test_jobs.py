"""The jobs table and its worker."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import Job, JobFailed, JobKind, JobOutcome, JobPaused, JobQueue, JobWorker, jobs
from rookery.kernel.worker_ids import make_worker_id
from tests.conftest import FakeClock, eventually
from tests.processes import earlier_worker_id


class Recorder:
    """A handler that notes what it was given and answers what it was told."""

    def __init__(self, answer: JobOutcome | Exception | None = None) -> None:
        self.answer = answer
        self.batches: list[list[object]] = []

    async def __call__(self, batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        self.batches.append([job.payload["n"] for job in batch])
        if isinstance(self.answer, Exception):
            raise self.answer
        return {} if self.answer is None else {job.id: self.answer for job in batch}


async def _fill(queue: JobQueue, count: int, kind: str = "Embed") -> None:
    def work(tx: Tx) -> None:
        for number in range(count):
            queue.enqueue(tx, kind, workspace_id=1, payload={"n": number})

    await queue.db.write(work)


async def test_jobs_are_taken_in_order_in_batches_once(database: Database, clock: FakeClock) -> None:
    """Issue, kernel: claim in batches with a lease."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=4)], lease_s=30)
    await _fill(queue, 6)

    taken = [await worker.run_ready("Embed") for _ in range(3)]

    assert taken == [4, 2, 0]
    assert handler.batches == [[0, 1, 2, 3], [4, 5]]
    assert await queue.count_pending("Embed", 1) == 0


async def test_a_failing_job_is_retried_on_its_schedule_then_daily(database: Database, clock: FakeClock) -> None:
    """Spec 3.4 and D-51: after 10, then 60, then 300 seconds; then failed, tried again daily."""
    queue, handler, exhausted = JobQueue(database, clock, uuid7), Recorder(JobFailed("no")), list[str]()
    kind = JobKind(name="Embed", handler=handler, on_failed=lambda tx, job: exhausted.append(job.id))
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
    assert len(exhausted) == 2
    [(job, reason)] = await queue.list_failed()
    assert (job.attempts, reason) == (5, "no")
    assert await queue.count_pending("Embed", 1) == 0


@pytest.mark.parametrize("outage", [EngineUnavailable("vectors", "gone"), StorageFull("The disk is full.")])
async def test_an_engine_that_is_down_spends_no_attempt(database: Database, clock: FakeClock, outage: RookeryError) -> None:
    """D-51: an engine that is down pauses the kind. Issue 14 (attack 7): so does a full disk."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder(outage)
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=2)], lease_s=30)
    await _fill(queue, 2)

    for _ in range(6):
        assert await worker.run_ready("Embed") == 2
    handler.answer = JobPaused("still gone")
    await worker.run_ready("Embed")
    handler.answer = JobFailed("once")
    await worker.run_ready("Embed")
    clock.advance(seconds=10)

    assert await worker.run_ready("Embed") == 2
    assert await queue.list_failed() == []


async def test_one_bad_job_does_not_take_its_batch_with_it(database: Database, clock: FakeClock) -> None:
    """D-51: jobs taken in batches fail alone."""
    queue = JobQueue(database, clock, uuid7)
    done = list[object]()

    async def handler(batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        if any(job.payload["n"] == 2 for job in batch):
            raise ZeroDivisionError
        done.extend(job.payload["n"] for job in batch)
        return {}

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=4)], lease_s=30)
    await _fill(queue, 4)
    await worker.run_ready("Embed")

    assert done == [0, 1, 3]
    assert await queue.count_pending("Embed", 1) == 1


async def test_a_lease_that_runs_out_frees_the_job_without_an_attempt(database: Database, clock: FakeClock) -> None:
    """D-51: a lost lease is no attempt; and who lost it can no longer settle the job."""
    queue = JobQueue(database, clock, uuid7)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Sequence[Job]) -> Mapping[str, JobOutcome]:
        started.set()
        await go_on.wait()
        return {}

    quick = Recorder(JobFailed("the second one failed"))
    first = JobWorker(queue, [JobKind(name="Embed", handler=slow)], lease_s=30)
    second = JobWorker(queue, [JobKind(name="Embed", handler=quick)], lease_s=30)
    await _fill(queue, 1)
    losing = asyncio.create_task(first.run_ready("Embed"))
    await started.wait()
    assert await second.run_ready("Embed") == 0
    clock.advance(seconds=31)
    assert await second.run_ready("Embed") == 1
    go_on.set()
    await losing

    clock.advance(seconds=10)
    assert await second.run_ready("Embed") == 1
    assert quick.batches == [[0], [0]]


async def test_workers_share_the_jobs_and_do_each_once(database: Database, clock: FakeClock) -> None:
    """Issue, kernel: claims never overlap, on every database."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    workers = [JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=3)], lease_s=30) for _ in range(4)]
    await _fill(queue, 60)

    while sum(await asyncio.gather(*(worker.run_ready("Embed") for worker in workers))):
        pass

    assert sorted(number for batch in handler.batches for number in batch if isinstance(number, int)) == list(range(60))


async def test_a_running_worker_wakes_for_a_new_job_and_stops_cleanly(database: Database, clock: FakeClock) -> None:
    """House 6, async: every task has an owner that ends it."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=8)], lease_s=30)
    await worker.start()
    await _fill(queue, 3)
    await eventually(lambda: handler.batches)
    await worker.stop()

    assert handler.batches == [[0, 1, 2]]
    await _fill(queue, 1)
    assert await queue.count_pending("Embed", 1) == 1


async def test_what_becomes_ready_while_a_worker_gives_way_goes_into_one_batch(database: Database, clock: FakeClock) -> None:
    """D-51: those who wait for an answer go first, and an engine is not woken for each job of a moment."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def give_way() -> None:
        asked.set()
        await go_on.wait()

    worker = JobWorker(queue, [JobKind(name="Embed", handler=handler, batch_size=8, before_claim=give_way)], lease_s=30)
    await worker.start()
    assert not asked.is_set()
    for _ in range(3):
        await _fill(queue, 1)
    await asyncio.wait_for(asked.wait(), 10)
    await _fill(queue, 2)
    before = list(handler.batches)
    go_on.set()
    await eventually(lambda: handler.batches)
    await worker.stop()

    assert (before, handler.batches) == ([], [[0, 0, 0, 0, 1]])


async def test_a_stopped_worker_gives_its_jobs_back_at_once(database: Database, clock: FakeClock) -> None:
    """Issue, done when: stopping at any moment loses nothing; the next worker need not wait for the lease."""
    queue, started = JobQueue(database, clock, uuid7), asyncio.Event()

    async def endless(_: Sequence[Job]) -> Mapping[str, JobOutcome]:
        started.set()
        await asyncio.Event().wait()
        return {}

    first, handler = JobWorker(queue, [JobKind(name="Embed", handler=endless)], lease_s=30), Recorder()
    await _fill(queue, 1)
    await first.start()
    await started.wait()
    await first.stop()

    assert await JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30).run_ready("Embed") == 1


async def test_jobs_of_a_dead_process_are_taken_at_the_next_start(database: Database, clock: FakeClock) -> None:
    """Issue, done when: after kill -9 indexing goes on at the next start, not after a lease."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    await _fill(queue, 1)
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    held = update(jobs).values(owner=f"{socket.gethostname()}:{dead.pid}:x", run_at=to_micros(clock() + timedelta(hours=1)))
    await database.write(lambda tx: tx.execute(held))

    heir = JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30)
    await heir.start()
    await eventually(lambda: handler.batches)
    await heir.stop()


async def test_jobs_of_an_earlier_process_with_this_pid_are_taken_at_the_start(database: Database, clock: FakeClock) -> None:
    """D-51: a server that restarts in a container has the same process id."""
    queue, handler = JobQueue(database, clock, uuid7), Recorder()
    await _fill(queue, 1)
    held = update(jobs).values(owner=earlier_worker_id(make_worker_id("x")), run_at=to_micros(clock() + timedelta(hours=1)))
    await database.write(lambda tx: tx.execute(held))

    heir = JobWorker(queue, [JobKind(name="Embed", handler=handler)], lease_s=30)
    await heir.start()
    await eventually(lambda: handler.batches)
    await heir.stop()
