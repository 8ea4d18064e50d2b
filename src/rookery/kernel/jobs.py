"""
The job queue: a table, so that a job is committed with the change that needs it and survives kill -9.

A job runs at least once. A claim moves its `run_at` to the end of a lease. When a worker exits, the lease expires and another worker
takes the job, which does not count as an attempt.

Jobs run in their order, but workspaces take turns: if more jobs are ready than a batch takes, each workspace gets an equal part of it.
So the backlog of one workspace does not delay the others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import NoneType

import structlog
from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, case, delete, exists, func, insert, literal, select, update
from sqlalchemy.sql import Select

from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Codec, Database, Mapper, Row, Tx, Value, encode_json, fetch_count, metadata
from rookery.kernel.db.leases import Leases, make_worker_id
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import IdFactory
from rookery.kernel.logs import FailureLog, LimitedWarning
from rookery.kernel.wakeups import Wakeups
from rookery.kernel.workspace_shares import WorkspaceShares

_log = structlog.stdlib.get_logger("rookery.jobs")

_POLL_INTERVAL_S = 1.0
_WAKEUP_TOPIC = "jobs"
_MAX_SMALL_BATCH = 4
"""Jobs of a batch while several workspaces are active, and of a workspace that need not wait for the backlogs of others."""

_BACKLOG_INTERVAL_S = 0.02
"""Pause of a process that leaves the backlogs to another one."""

_PAUSE_DELAYS_S = (1.0, 2.0, 5.0, 10.0, 30.0)
_FAILED_RETRY_INTERVAL = timedelta(days=1)
_MAX_REASON_LENGTH = 2000

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("payload", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("run_at", BigInteger, nullable=False),
    Column("owner", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("failed_at", BigInteger),
    Column("last_error", Text),
    Index("ix_jobs_ready", "kind", "run_at"),
    Index("ix_jobs_workspace", "workspace_id", "kind", "run_at"),
)

_ENQUEUE = insert(jobs)
_IS_READY = (jobs.c.kind == bindparam("of_kind"), jobs.c.run_at <= bindparam("now"))
_SELECT_READY = (
    select(jobs).where(*_IS_READY).order_by(jobs.c.run_at, jobs.c.id).limit(bindparam("at_most")).with_for_update(skip_locked=True)
)
_SELECT_READY_OF_WORKSPACE = _SELECT_READY.where(jobs.c.workspace_id == bindparam("workspace"))


def _select_ready_workspaces() -> Select[tuple[int]]:
    """Return the statement that lists workspaces with ready jobs. By the index it goes from one workspace to the next, past their jobs."""
    first = select(select(func.min(jobs.c.workspace_id)).where(jobs.c.workspace_id > bindparam("past")).scalar_subquery().label("id"))
    workspaces = first.cte("workspaces", recursive=True)
    following = select(func.min(jobs.c.workspace_id)).where(jobs.c.workspace_id > workspaces.c.id).scalar_subquery()
    workspaces = workspaces.union_all(select(following).where(workspaces.c.id.is_not(None)))
    has_ready = exists(select(literal(1)).where(*_IS_READY, jobs.c.workspace_id == workspaces.c.id))
    return select(workspaces.c.id).where(workspaces.c.id.is_not(None), has_ready).limit(bindparam("at_most"))


_SELECT_READY_WORKSPACES = _select_ready_workspaces()
_BEFORE_ALL_WORKSPACES = -1
_LEASES = Leases(jobs, owner=jobs.c.owner, until=jobs.c.run_at)
_TAKEN_OVER = "taken over"
"""The owner of a released job that was taken over, so that the next run knows it too. No worker has this id."""

_FINISH = delete(jobs).where(_LEASES.is_held)
_FAIL = (
    update(jobs)
    .where(_LEASES.is_held)
    .values(
        owner=bindparam("mark"),
        attempts=jobs.c.attempts + 1,
        run_at=bindparam("at"),
        failed_at=bindparam("failed"),
        last_error=bindparam("reason"),
    )
)
_RETRY_FAILED = update(jobs).where(jobs.c.kind == bindparam("of_kind"), jobs.c.failed_at.is_not(None)).values(run_at=bindparam("now"))
_COUNT_PENDING = (
    select(func.count())
    .select_from(jobs)
    .where(jobs.c.workspace_id == bindparam("workspace"), jobs.c.kind == bindparam("of_kind"), jobs.c.failed_at.is_(None))
)
_READY_TIMES = (
    select(jobs.c.run_at)
    .where(jobs.c.kind == bindparam("of_kind"), jobs.c.run_at <= bindparam("now"))
    .order_by(jobs.c.run_at)
    .limit(bindparam("at_most"))
    .subquery()
)
_IS_CLAIMED = exists().where(
    jobs.c.kind == bindparam("of_kind"), jobs.c.run_at > bindparam("now"), jobs.c.owner.not_in([bindparam("holder"), _TAKEN_OVER])
)
_MEASURE_READY = select(
    func.count().label("ready"),
    func.min(_READY_TIMES.c.run_at).label("oldest_at"),
    case((_IS_CLAIMED, 1), else_=0).label("is_claimed"),
).select_from(_READY_TIMES)
_SELECT_FAILED = select(jobs).where(jobs.c.failed_at.is_not(None)).order_by(jobs.c.failed_at).limit(bindparam("at_most"))
_SELECT_WAITING = (
    select(jobs)
    .where(jobs.c.kind == bindparam("of_kind"), jobs.c.id > bindparam("past"), jobs.c.owner.is_(None))
    .order_by(jobs.c.id)
    .limit(bindparam("at_most"))
)
_SELECT_HELD = select(jobs.c.id).where(jobs.c.kind == bindparam("of_kind"), jobs.c.owner == bindparam("holder"))
_SELECT_STATS = (
    select(
        jobs.c.kind,
        func.count().filter(jobs.c.failed_at.is_(None)).label("waiting"),
        func.count(jobs.c.failed_at).label("failed"),
        func.min(jobs.c.created_at).filter(jobs.c.failed_at.is_(None)).label("oldest_at"),
    )
    .select_from(jobs)
    .group_by(jobs.c.kind)
)
_PURGE = delete(jobs).where(jobs.c.workspace_id == bindparam("workspace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    One job.

    Attributes:
        attempts: Number of failed runs so far.
        ready_at: The time from which on it could run.
        is_taken_over: The worker that had the job exited or exceeded the lease, so the job may be partly done.
    """

    id: str
    kind: str
    workspace_id: int
    payload: Mapping[str, object]
    attempts: int
    created_at: datetime
    ready_at: datetime
    is_taken_over: bool = False


@dataclass(frozen=True, slots=True)
class JobDone:
    """The job is done. Its row is deleted."""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job failed. It is retried with the delays of its kind, then daily."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobPaused:
    """An engine is unavailable. The kind pauses, and this does not count as an attempt."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobDeferred:
    """The batch was too much work, so the job did not run. It keeps its place, and this does not count as an attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueueStats:
    """
    Statistics of the jobs of one kind in the whole store.

    Attributes:
        waiting: Number of jobs that are not done, including those in progress, without *failed* ones.
        oldest_age: Age of the oldest waiting job; zero if no job waits.
    """

    waiting: int
    failed: int
    oldest_age: timedelta


def _is_owned(owner: str | None) -> bool:
    return owner is not None


def _get_mark(job: Job) -> str | None:
    return _TAKEN_OVER if job.is_taken_over else None


_JOBS = Mapper(
    Job, jobs, columns={"is_taken_over": "owner", "ready_at": "run_at"}, codecs={"is_taken_over": Codec((str, NoneType), _is_owned)}
)

JobOutcome = JobDone | JobFailed | JobPaused | JobDeferred
JobHandler = Callable[[Sequence[Job]], Awaitable[Mapping[str, JobOutcome]]]
"""Runs a batch. A job without an outcome counts as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """
    A kind of job.

    Attributes:
        handler: Must be idempotent, because it may receive a job again that it has done.
        batch_size: Most jobs per call of the handler.
        retry_delays_s: Seconds before each retry. After the last one the job is marked as failed and retried daily.
        worker_count: Number of batches that one process runs at the same time.
        before_claim: Awaited before ready jobs are claimed, so that a batch can grow. It must return without outside help.
        handover_delay_s: Seconds for which fewer jobs than a batch are left to a process that runs a batch already, or else to the one that
            added them. Otherwise every process would claim one or two of them, and a small batch costs about as much as a large one.
            0: any process claims them at once.
        on_failed: Called in the transaction that marks a job as failed.
        shares: While several workspaces are active, batches are small, those with few jobs go first, and one process at a time works on the
            backlogs of the others. None: batches are always as large as they may be.
    """

    name: str
    handler: JobHandler
    batch_size: int = 1
    retry_delays_s: tuple[int, ...] = (10, 60, 300)
    worker_count: int = 1
    before_claim: Callable[[], Awaitable[None]] | None = None
    handover_delay_s: float = 0.0
    on_failed: Callable[[Tx, Job], None] | None = None
    shares: WorkspaceShares | None = None

    @property
    def is_contended(self) -> bool:
        """True if several workspaces are active."""
        return self.shares is not None and self.shares.is_contended()


@dataclass(slots=True)
class JobQueue:
    """The job table and the wake-up events of the workers in this process."""

    db: Database
    clock: Clock
    ids: IdFactory
    wakeups: Wakeups = field(default_factory=Wakeups)
    _wake_events: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    _local_batch_sizes: dict[str, int] = field(default_factory=dict[str, int])
    """The kinds whose jobs are left to the workers of this process at first, with the size of a batch."""

    def __post_init__(self) -> None:
        self.wakeups.subscribe(_WAKEUP_TOPIC, self._on_wakeup)

    def enqueue(self, tx: Tx, kind: str, *, workspace_id: int, payload: Mapping[str, object], delay_s: float = 0) -> str:
        """Add a job in the caller's transaction and return its id. Workers wake up after the commit."""
        return self.enqueue_many(tx, kind, [(workspace_id, payload)], delay_s=delay_s)[0]

    def enqueue_many(self, tx: Tx, kind: str, new_jobs: Sequence[tuple[int, Mapping[str, object]]], *, delay_s: float = 0) -> list[str]:
        """Add a job for each pair of workspace id and payload, as `enqueue` does; return the ids in order."""
        if not new_jobs:
            return []
        now = self.clock()
        ids = [self.ids() for _ in new_jobs]
        run_at, created_at = to_micros(now + timedelta(seconds=delay_s)), to_micros(now)
        rows: list[dict[str, Value]] = [
            {
                "id": job_id,
                "kind": kind,
                "workspace_id": workspace_id,
                "payload": encode_json(payload),
                "attempts": 0,
                "run_at": run_at,
                "owner": None,
                "created_at": created_at,
                "failed_at": None,
                "last_error": None,
            }
            for job_id, (workspace_id, payload) in zip(ids, new_jobs, strict=True)
        ]
        tx.execute_many(_ENQUEUE, rows)
        tx.after_commit(self.wake_event(kind).set)
        if delay_s <= 0 and len(new_jobs) >= self._local_batch_sizes.get(kind, 0):
            tx.after_commit(lambda: self.wakeups.send(_WAKEUP_TOPIC, kind))
        return ids

    def set_local(self, kinds: Iterable[JobKind], *, is_local: bool) -> None:
        """Leave the jobs of *kinds* that have a handover delay to the workers of this process at first, or no longer."""
        for kind in kinds:
            if is_local and kind.handover_delay_s:
                self._local_batch_sizes[kind.name] = kind.batch_size
            else:
                self._local_batch_sizes.pop(kind.name, None)

    def wake_event(self, kind: str) -> asyncio.Event:
        """Return the event that is set when a job of *kind* may be ready."""
        return self._wake_events.setdefault(kind, asyncio.Event())

    def _on_wakeup(self, kind: str | None) -> None:
        for name, event in self._wake_events.items():
            if kind is None or kind == name:
                event.set()

    async def count_pending(self, kind: str, workspace_id: int) -> int:
        """Return the number of jobs of *kind* in the workspace, without failed ones."""
        return await self.db.read(lambda tx: fetch_count(tx, _COUNT_PENDING, {"workspace": workspace_id, "of_kind": kind}))

    async def get_stats(self) -> Mapping[str, JobQueueStats]:
        """Return the statistics of each kind that has jobs."""
        now = to_micros(self.clock())
        return {
            row.text("kind"): JobQueueStats(
                waiting=row.integer("waiting"),
                failed=row.integer("failed"),
                oldest_age=timedelta(microseconds=max(0, now - (row.maybe_integer("oldest_at") or now))),
            )
            for row in await self.db.read(lambda tx: tx.fetch_all(_SELECT_STATS))
        }

    async def list_waiting(self, kind: str, *, after_id: str, limit: int) -> list[Job]:
        """Return jobs of *kind* that no worker has, from the one after *after_id* on, in the order of their ids."""
        look = {"of_kind": kind, "past": after_id, "at_most": limit}
        return [_JOBS.from_row(row) for row in await self.db.read(lambda tx: tx.fetch_all(_SELECT_WAITING, look))]

    async def list_failed(self, limit: int = 100) -> list[tuple[Job, str]]:
        """Return failed jobs with their last error, the longest failed first."""
        rows = await self.db.read(lambda tx: tx.fetch_all(_SELECT_FAILED, {"at_most": limit}))
        return [(_JOBS.from_row(row), row.maybe_text("last_error") or "") for row in rows]

    def purge(self, tx: Tx, workspace_id: int) -> int:
        """Delete all jobs of a workspace; return their number."""
        return tx.execute(_PURGE, {"workspace": workspace_id})


class JobWorker:
    """
    A worker that runs the jobs of some kinds in this process until it is stopped.

    Args:
        poll_interval_s: Longest time between two looks for ready jobs while no wake-up arrives.
    """

    def __init__(self, jobs: JobQueue, kinds: Iterable[JobKind], *, lease_s: int, poll_interval_s: float = _POLL_INTERVAL_S) -> None:
        self._jobs = jobs
        self._kinds = tuple(kinds)
        self._lease = timedelta(seconds=lease_s)
        self._poll_interval_s = poll_interval_s
        self._worker_id = make_worker_id(jobs.ids())
        self._tasks: list[asyncio.Task[None]] = []
        self._running_ids: set[str] = set()
        self._interrupted_kinds: set[str] = set()
        """The kinds whose last claim or outcome may have been lost with a connection to the record store."""
        self._last_workspaces: dict[str, int] = {}
        """The workspace that had the last turn, by kind."""
        self._paused = {kind.name: LimitedWarning(_log, "jobs.paused") for kind in self._kinds}

    async def start(self) -> None:
        """Release the jobs of dead processes on this host, then start to work. Call `stop` afterwards."""
        await self._jobs.db.write(lambda tx: _LEASES.end_orphaned(tx, at=self._jobs.clock()))
        self._jobs.set_local(self._kinds, is_local=True)
        for kind in self._kinds:
            for number in range(kind.worker_count):
                self._tasks.append(asyncio.create_task(self._run_kind(kind), name=f"worker-{kind.name}-{number}"))

    async def stop(self) -> None:
        """Stop the worker and release its jobs at once."""
        self._jobs.set_local(self._kinds, is_local=False)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A claim may have been committed after its task was cancelled, so its jobs have no worker.
        now = self._jobs.clock()
        with contextlib.suppress(*OUTAGES):
            await self._jobs.db.write(lambda tx: _LEASES.end(tx, [self._worker_id], at=now))

    async def run_ready(self, kind_name: str) -> int:
        """Run one batch of *kind_name* if any job is ready; return the number of jobs."""
        kind = next(kind for kind in self._kinds if kind.name == kind_name)
        if kind.is_contended:
            return len((await self._run_contended(kind))[0])
        batch = await self._claim(kind) if await self._is_ready(kind) else []
        if batch:
            await self._run_batch(kind, batch)
        return len(batch)

    async def _run_kind(self, kind: JobKind) -> None:
        pauses = 0
        failures = FailureLog(_log, "jobs.failed")
        wake = self._jobs.wake_event(kind.name)
        is_woken = True
        while True:
            is_woken = is_woken or wake.is_set()
            wake.clear()
            is_paused, delay_s = False, self._poll_interval_s
            try:
                if kind.name in self._interrupted_kinds:
                    await self._release_lost(kind)
                delay_s = await self._get_claim_delay(kind, is_woken=is_woken)
                if delay_s:
                    batch = []
                elif kind.is_contended:
                    batch, is_paused = await self._run_contended(kind)
                    delay_s = _BACKLOG_INTERVAL_S
                else:
                    batch = await self._claim_next(kind)
                    if batch:
                        is_paused = await self._run_batch(kind, batch)
            except Exception as error:
                failures.report(error, kind=kind.name)
                self._interrupted_kinds.add(kind.name)
                batch, is_paused = [], True
            if is_paused:
                await asyncio.sleep(_PAUSE_DELAYS_S[min(pauses, len(_PAUSE_DELAYS_S) - 1)])
                pauses += 1
            elif batch:
                if pauses:
                    pauses = 0
                    await self._retry_failed_jobs(kind)
            else:
                is_woken = await wait_until_set(wake, timeout_s=delay_s or self._poll_interval_s)

    async def _run_contended(self, kind: JobKind) -> tuple[list[Job], bool]:
        """
        Run a small batch while several workspaces are active; return it, and whether the kind should pause.

        Workspaces with few ready jobs go first. The others have backlogs, on which one process at a time works.
        """
        batch = await self._claim_few(kind)
        if batch:
            return batch, await self._run_batch(kind, batch)
        with kind.shares.try_indexing() if kind.shares is not None else nullcontext(True) as is_own_turn:
            batch = await self._claim(kind, limit=_MAX_SMALL_BATCH) if is_own_turn else []
            return batch, await self._run_batch(kind, batch) if batch else False

    async def _claim_few(self, kind: JobKind) -> list[Job]:
        """Claim the jobs of workspaces that have at most `_MAX_SMALL_BATCH` ready ones."""
        now = self._jobs.clock()
        look = {"of_kind": kind.name, "now": to_micros(now), "at_most": kind.batch_size, "past": _BEFORE_ALL_WORKSPACES}

        def select_few(tx: Tx) -> list[Row]:
            rows = list[Row]()
            for workspace in tx.fetch_all(_SELECT_READY_WORKSPACES, look):
                own = {**look, "workspace": workspace.integer("id"), "at_most": _MAX_SMALL_BATCH + 1}
                ready = tx.fetch_all(_SELECT_READY_OF_WORKSPACE, own)
                if len(ready) <= _MAX_SMALL_BATCH and len(rows) + len(ready) <= kind.batch_size:
                    rows += ready
            return rows

        def claim(tx: Tx) -> list[Row]:
            rows = select_few(tx)
            if rows:
                _LEASES.acquire(tx, [row.text("id") for row in rows], self._worker_id, until=now + self._lease)
            return rows

        if not await self._jobs.db.lookup(select_few):
            return []
        return [_JOBS.from_row(row) for row in await self._jobs.db.write(claim)]

    async def _claim_next(self, kind: JobKind) -> list[Job]:
        if kind.before_claim is not None:
            await kind.before_claim()
        return await self._claim(kind)

    async def _get_claim_delay(self, kind: JobKind, *, is_woken: bool) -> float:
        """
        Return the seconds after which to look again; 0 if jobs are ready and not left to another process.

        Args:
            is_woken: This process added jobs, or was woken up for them.
        """
        if not kind.handover_delay_s:
            return 0 if await self._is_ready(kind) else self._poll_interval_s
        now = self._jobs.clock()
        look = {"of_kind": kind.name, "now": to_micros(now), "at_most": kind.batch_size, "holder": self._worker_id}
        row = await self._jobs.db.lookup(lambda tx: tx.fetch_one(_MEASURE_READY, look))
        oldest_at = None if row is None else row.maybe_integer("oldest_at")
        if row is None or oldest_at is None:
            return self._poll_interval_s
        if kind.is_contended:
            return 0
        is_batch = row.integer("ready") >= kind.batch_size
        is_left_over = oldest_at <= to_micros(now - timedelta(seconds=kind.handover_delay_s))
        if is_batch or is_left_over or (is_woken and not row.flag("is_claimed")):
            return 0
        return min(kind.handover_delay_s, self._poll_interval_s)

    async def _is_ready(self, kind: JobKind) -> bool:
        """Return whether a job is ready. This only reads; the write lock is taken only to claim."""
        look = {"of_kind": kind.name, "now": to_micros(self._jobs.clock()), "at_most": 1}
        return await self._jobs.db.lookup(lambda tx: tx.fetch_one(_SELECT_READY, look)) is not None

    async def _claim(self, kind: JobKind, *, limit: int | None = None) -> list[Job]:
        now, size = self._jobs.clock(), limit or kind.batch_size
        look = {"of_kind": kind.name, "now": to_micros(now), "at_most": size}

        def claim(tx: Tx) -> list[Row]:
            rows = tx.fetch_all(_SELECT_READY, look)
            if len(rows) >= size:
                rows = self._share_batch(tx, kind, look, rows, size=size)
            if rows:
                _LEASES.acquire(tx, [row.text("id") for row in rows], self._worker_id, until=now + self._lease)
            return rows

        rows = await self._jobs.db.write(claim)
        if rows:
            self._last_workspaces[kind.name] = rows[-1].integer("workspace_id")
        return [_JOBS.from_row(row) for row in rows]

    def _share_batch(self, tx: Tx, kind: JobKind, look: Mapping[str, Value], oldest_rows: Sequence[Row], *, size: int) -> list[Row]:
        """
        Return a batch in which each workspace with ready jobs has an equal part, beginning with the one after the last turn.

        The jobs of a workspace keep their order.

        Args:
            oldest_rows: The oldest ready jobs, with which the batch is filled up.
        """
        last = self._last_workspaces.get(kind.name, _BEFORE_ALL_WORKSPACES)
        most = max(2, size)
        listing = {**look, "at_most": most}
        ids = [row.integer("id") for row in tx.fetch_all(_SELECT_READY_WORKSPACES, {**listing, "past": last})]
        if len(ids) < most and last != _BEFORE_ALL_WORKSPACES:
            first_rows = tx.fetch_all(_SELECT_READY_WORKSPACES, {**listing, "past": _BEFORE_ALL_WORKSPACES})
            ids = list(dict.fromkeys([*ids, *(row.integer("id") for row in first_rows)]))
        if len(ids) < 2:
            return list(oldest_rows)
        ids = ids[:size]
        share = {**look, "at_most": size // len(ids)}
        rows = [row for workspace in ids for row in tx.fetch_all(_SELECT_READY_OF_WORKSPACE, {**share, "workspace": workspace})]
        claimed_ids = {row.text("id") for row in rows}
        rest = [row for row in oldest_rows if row.text("id") not in claimed_ids][: size - len(rows)]
        places = {workspace: place for place, workspace in enumerate(ids)}  # the last one has the last turn
        return sorted([*rows, *rest], key=lambda row: places.get(row.integer("workspace_id"), -1))

    async def _run_batch(self, kind: JobKind, batch: Sequence[Job]) -> bool:
        """Run the batch and store the outcome of each job; return whether the kind should pause."""
        ids = {job.id for job in batch}
        self._running_ids |= ids
        try:
            return await self._run_and_record(kind, batch)
        finally:
            self._running_ids -= ids

    async def _run_and_record(self, kind: JobKind, batch: Sequence[Job]) -> bool:
        keeper = asyncio.create_task(self._renew_lease(batch))
        try:
            outcomes = await self._call_handler(kind, batch)
        except asyncio.CancelledError:
            await self._release(batch)
            raise
        finally:
            keeper.cancel()
        settling = asyncio.ensure_future(self._jobs.db.write(lambda tx: self._record_outcomes(tx, kind, batch, outcomes)))
        try:
            await asyncio.shield(settling)
        except asyncio.CancelledError:
            await asyncio.wait([settling])  # outcomes must be stored, or the jobs would run again
            raise
        finally:
            await asyncio.gather(keeper, return_exceptions=True)
        pause_reasons = [outcome.reason for outcome in outcomes.values() if isinstance(outcome, JobPaused)]
        if pause_reasons:
            self._paused[kind.name].warn(kind=kind.name, reason=pause_reasons[0])
        return bool(pause_reasons)

    async def _call_handler(self, kind: JobKind, batch: Sequence[Job]) -> Mapping[str, JobOutcome]:
        try:
            return await kind.handler(batch)
        except OUTAGES as error:
            return {job.id: JobPaused(error.message) for job in batch}
        except Exception as error:
            if len(batch) > 1:
                # One bad job must not fail the others of its batch.
                single_outcomes = [await self._call_handler(kind, [job]) for job in batch]
                return {job_id: outcome for outcomes in single_outcomes for job_id, outcome in outcomes.items()}
            _log.exception("jobs.handler_failed", kind=kind.name, job=batch[0].id)
            return {batch[0].id: JobFailed(f"{type(error).__name__}: {error}")}

    def _record_outcomes(self, tx: Tx, kind: JobKind, batch: Sequence[Job], outcomes: Mapping[str, JobOutcome]) -> None:
        now = self._jobs.clock()
        done_ids, paused, deferred = list[str](), list[Job](), list[Job]()
        for job in batch:
            match outcomes.get(job.id, JobDone()):
                case JobDone():
                    done_ids.append(job.id)
                case JobPaused():
                    paused.append(job)
                case JobDeferred():
                    deferred.append(job)
                case JobFailed(reason):
                    self._fail(tx, kind, job, reason, now)
        if done_ids:
            tx.execute(_FINISH, {"held_ids": done_ids, "holder": self._worker_id})
        self._give_back(tx, paused, at=now)
        if deferred:
            self._give_back(tx, deferred, at=min(job.ready_at for job in deferred))

    def _give_back(self, tx: Tx, batch: Sequence[Job], *, at: datetime) -> None:
        """Release jobs that have not run, ready from *at* on."""
        for mark in (None, _TAKEN_OVER):
            ids = [job.id for job in batch if _get_mark(job) == mark]
            if ids:
                _LEASES.release(tx, ids, self._worker_id, at=at, mark=mark)

    def _fail(self, tx: Tx, kind: JobKind, job: Job, reason: str, now: datetime) -> None:
        is_last = job.attempts >= len(kind.retry_delays_s)
        at = now + (_FAILED_RETRY_INTERVAL if is_last else timedelta(seconds=kind.retry_delays_s[job.attempts]))
        tx.execute(
            _FAIL,
            {
                "held_ids": [job.id],
                "holder": self._worker_id,
                "mark": _get_mark(job),
                "at": to_micros(at),
                "failed": to_micros(now) if is_last else None,
                "reason": reason[:_MAX_REASON_LENGTH].replace("\x00", ""),
            },
        )
        if is_last and kind.on_failed is not None:
            kind.on_failed(tx, job)

    async def _release_lost(self, kind: JobKind) -> None:
        """
        Release the jobs that this worker has and does not run, so that they do not wait for the end of their lease.

        The store may have committed a claim whose answer was lost, or not have stored the outcome of a batch. Then the jobs have run.
        """
        now, look = self._jobs.clock(), {"of_kind": kind.name, "holder": self._worker_id}

        def release(tx: Tx) -> None:
            held_ids = [row.text("id") for row in tx.fetch_all(_SELECT_HELD, look)]
            lost_ids = [job_id for job_id in held_ids if job_id not in self._running_ids]
            if lost_ids:
                _LEASES.release(tx, lost_ids, self._worker_id, at=now, mark=_TAKEN_OVER)

        await self._jobs.db.write(release)
        self._interrupted_kinds.discard(kind.name)

    async def _renew_lease(self, batch: Sequence[Job]) -> None:
        """Renew the lease for as long as the batch runs."""
        ids = [job.id for job in batch]
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            until = self._jobs.clock() + self._lease
            with contextlib.suppress(*OUTAGES):
                await self._jobs.db.write(lambda tx, until=until: _LEASES.renew(tx, self._worker_id, until=until, ids=ids))

    async def _release(self, batch: Sequence[Job]) -> None:
        now = self._jobs.clock()
        with contextlib.suppress(*OUTAGES):
            await self._jobs.db.write(lambda tx: self._give_back(tx, batch, at=now))

    async def _retry_failed_jobs(self, kind: JobKind) -> None:
        """Make failed jobs ready, because the engine that failed them may be available again."""
        now = to_micros(self._jobs.clock())
        await self._jobs.db.write(lambda tx: tx.execute(_RETRY_FAILED, {"of_kind": kind.name, "now": now}))
