"""
Queued generations: the jobs that run them.

A job runs at least once. If a worker exits during a call, another one takes the job over and calls the provider again, because a
generation can be repeated. The row says `running` until the end, counts its runs, and is given up after `MAX_RUNS` of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.content.budgets import Budgets
from rookery.content.errors import BudgetExhausted, GenerationQueueFull, ModelNotPriced, ProviderRateLimited, ProviderUnavailable
from rookery.content.execution import INTERRUPTED, GenerationRunner
from rookery.content.models import Generation, GenerationOutcome, GenerationStatus
from rookery.content.store.tables import GENERATIONS
from rookery.kernel.clock import Clock, parse_retry_after
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES, RookeryError
from rookery.kernel.jobs import Job, JobDone, JobOutcome, JobQueue

GENERATE_JOB = "GenerateContent"

MAX_QUEUED_PER_WORKSPACE = 10_000
"""Maximum generations of a workspace that wait or run."""

MAX_RUNS = 4
"""Maximum calls of one queued generation, by workers that exited and after failures of the provider that may pass."""

_RETRY_DELAYS_S = (10.0, 60.0, 300.0)
_MAX_DELAY_S = 3600.0
_PASSING_ERRORS = (ProviderUnavailable, ProviderRateLimited)
_GIVEN_UP_MESSAGE = f"The workers exited during {MAX_RUNS} calls, so the generation was given up."


def enqueue(tx: Tx, jobs: JobQueue, generations: Sequence[Generation], *, delay_s: float = 0) -> None:
    """Add the jobs that run *generations*."""
    jobs.enqueue_many(
        tx, GENERATE_JOB, [(generation.workspace_id, {"generation_id": generation.id}) for generation in generations], delay_s=delay_s
    )


async def require_room(jobs: JobQueue, workspace_id: int, count: int) -> None:
    """Raise GenerationQueueFull if *count* more queued generations would exceed the limit of the workspace."""
    if await jobs.count_pending(GENERATE_JOB, workspace_id) + count > MAX_QUEUED_PER_WORKSPACE:
        raise GenerationQueueFull(MAX_QUEUED_PER_WORKSPACE)


class QueuedGenerations:
    """Runs the jobs of queued generations."""

    def __init__(self, db: Database, runner: GenerationRunner, budgets: Budgets, jobs: JobQueue, *, clock: Clock) -> None:
        self._db = db
        self._runner = runner
        self._budgets = budgets
        self._jobs = jobs
        self._clock = clock

    async def handle(self, jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
        """Run the generations of *jobs* one after the other. A generation that is final already is skipped."""
        for job in jobs:
            await self._run(job)
        return {job.id: JobDone() for job in jobs}

    def fail_job(self, tx: Tx, job: Job) -> None:
        """Mark the generation of a job as failed, because the job failed repeatedly."""
        current = GENERATIONS.find(tx, job.workspace_id, id=str(job.payload["generation_id"]), lock=True)
        if current is not None and current.is_open:
            message = "The generation could not be run. The log of the server has the details."
            self._runner.end(tx, current, _failure("internal_error", message), self._clock())

    async def _run(self, job: Job) -> None:
        workspace_id, generation_id = job.workspace_id, str(job.payload["generation_id"])
        now = self._clock()
        try:
            generation = await self._db.write(lambda tx: self._claim(tx, workspace_id, generation_id, now))
        except (BudgetExhausted, ModelNotPriced) as error:
            refused = _failure(error.code, error.message)
            await self._db.write(lambda tx: self._end_open(tx, workspace_id, generation_id, refused))
            return
        if generation is None:
            return
        call = asyncio.ensure_future(self._runner.complete(generation, plan_retry=self._plan_retry))
        try:
            await asyncio.wait({call})
        except asyncio.CancelledError:
            # The process stops. Its job is released, and the next worker begins again.
            with contextlib.suppress(*OUTAGES):
                await self._db.write(lambda tx: self._runner.end(tx, generation, _REQUEUED, self._clock()))
            call.cancel()
            await asyncio.wait({call})
            raise
        call.result()

    def _plan_retry(self, generation: Generation, error: RookeryError) -> Callable[[Tx], None] | None:
        """Return a function that queues the generation again if the provider may answer later."""
        if not isinstance(error, _PASSING_ERRORS) or generation.run_count >= MAX_RUNS:
            return None
        asked_s = parse_retry_after(error.headers.get("Retry-After"), self._clock()) or 0.0
        delay_s = min(max(asked_s, _RETRY_DELAYS_S[min(generation.run_count, len(_RETRY_DELAYS_S)) - 1]), _MAX_DELAY_S)
        return lambda tx: enqueue(tx, self._jobs, [generation], delay_s=delay_s)

    def _claim(self, tx: Tx, workspace_id: int, generation_id: str, now: datetime) -> Generation | None:
        """Return the generation as a running one of this process; None if there is nothing to run."""
        current = GENERATIONS.find(tx, workspace_id, id=generation_id, lock=True)
        if current is None or not current.is_open:
            return None
        if current.run_count >= MAX_RUNS:
            self._runner.end(tx, current, _failure(INTERRUPTED, _GIVEN_UP_MESSAGE), now)
            return None
        # The usage of an interrupted call is unknown. Its reservation is released before the next one.
        self._budgets.settle(tx, current, spent_nanos=0, now=now)
        running = self._runner.begin(tx, replace(current, reserved_nanos=0, reserved_on=None), now)
        GENERATIONS.update(tx, running)
        return running

    def _end_open(self, tx: Tx, workspace_id: int, generation_id: str, outcome: GenerationOutcome) -> None:
        current = GENERATIONS.find(tx, workspace_id, id=generation_id, lock=True)
        if current is not None and current.is_open:
            self._runner.end(tx, current, outcome, self._clock())


def _failure(code: str, message: str) -> GenerationOutcome:
    return GenerationOutcome(status=GenerationStatus.FAILED, latency_ms=0.0, attempts=0, error_code=code, error_message=message)


_REQUEUED = GenerationOutcome(status=GenerationStatus.QUEUED, latency_ms=0.0, attempts=0)
