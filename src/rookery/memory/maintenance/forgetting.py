"""Memories are forgotten for good, in whatever state: by id, or all of an agent, a session, an org, a project (D-04, D-41)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus, MemoryDeleted
from rookery.kernel.jobs import JobQueue
from rookery.memory.batch_runs import RunItem, RunObserver, RunReport, null_observer
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.maintenance.erasure import DELETED_TEXT, Erasure
from rookery.memory.models import Memory
from rookery.memory.records import delete_memory, remove_from_primaries
from rookery.memory.store import feedback_deletion as store
from rookery.memory.store import records
from rookery.memory.store.maintenance import MemorySelection


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """
    Which memories of a workspace to forget: those that meet all that is given, archived and expired ones too.

    Attributes:
        ids: Only these; without them, all that the others leave.
        erase_traces: Leave no traces, also of what was deleted otherwise; without criteria, nothing else.
    """

    workspace_id: int
    ids: tuple[str, ...] = ()
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    erase_traces: bool = False
    dry_run: bool = False

    @property
    def has_criteria(self) -> bool:
        """Tell whether anything narrows it: all of a workspace goes with the workspace alone."""
        return bool(self.ids) or any(each is not None for each in (self.org, self.project, self.agent_id, self.session_id))

    @property
    def reason(self) -> str:
        """What an item says of itself."""
        named = {"org": self.org, "project": self.project, "agent": self.agent_id, "session": self.session_id}
        said = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        return said or "named by its id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForgottenMemory:
    memory: Memory
    remaining_in: str | None


class Forgetting:
    """
    Deletes from every store, and then what is left in their files; killed in the middle, the same command again ends it.

    What was merged into another memory is taken out of that one again. The indexes are cleared at once, and by a job where
    their engine is down.
    """

    def __init__(
        self, *, db: Database, jobs: JobQueue, indexer: Indexer, bus: EventBus, clock: Clock, runner: BatchRunner, erasure: Erasure
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._runner = runner
        self._erasure = erasure

    async def run(self, request: ForgetRequest, *, observer: RunObserver | None = None) -> RunReport:
        """Forget, or tell what would be forgotten."""
        observer = observer or null_observer()
        counts: Counter[str] = Counter({"deleted": 0})

        async def work(stretch: Sequence[Memory]) -> None:
            gone = [_ForgottenMemory(memory=memory, remaining_in=None) for memory in stretch]
            if not request.dry_run:
                gone = await self._db.write(lambda tx: self._write(tx, stretch))
                # Who forgets wants it gone now, also where no server runs; the jobs are for when this cannot be done.
                with contextlib.suppress(*OUTAGES):
                    await self._indexer.delete(request.workspace_id, [each.memory.id for each in gone])
            for each in gone:
                counts["deleted"] += 1
                left = (
                    f"; its words were merged into {each.remaining_in} and changed there since: look at that one"
                    if each.remaining_in
                    else ""
                )
                observer.on_item(RunItem(id=each.memory.id, action="delete", why=request.reason + left))

        within = MemorySelection(
            workspace_id=request.workspace_id,
            ids=request.ids or None,
            org=request.org,
            project=request.project,
            agent_id=request.agent_id,
            session_id=request.session_id,
        )

        async def clear() -> None:
            nonlocal left
            if request.erase_traces and not request.dry_run:
                await self._db.write(lambda tx: self._erasure.add_pending(tx, DELETED_TEXT))
            left = None if request.dry_run else await self._erasure.run()

        left: str | None = None
        course = BatchRun(name=f"forget {request.workspace_id}", selection=within, resume=False, is_resumable=False)
        read = batch_reader(within) if request.has_criteria else _read_nothing
        gone = await self._runner.run(course, read, work, observer=observer, after_all=clear)
        if request.ids:
            counts["absent"] = len(set(request.ids)) - gone.done
        total = gone.total if request.has_criteria else 0
        return RunReport(
            total=total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped or left
        )

    def _write(self, tx: Tx, stretch: Sequence[Memory]) -> list[_ForgottenMemory]:
        now, gone = self._clock(), list[_ForgottenMemory]()
        for each in stretch:
            memory = records.lock_memory(tx, each.workspace_id, each.id)
            if memory is None:
                continue
            left_in = remove_from_primaries(tx, self._jobs, memory, at=now)
            store.delete_feedback(tx, memory.workspace_id, memory.id)
            delete_memory(tx, self._jobs, self._bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
            self._erasure.add_pending(tx, DELETED_TEXT)
            gone.append(_ForgottenMemory(memory=memory, remaining_in=left_in))
        return gone


def _read_nothing(_: Tx, __: str) -> Sequence[Memory]:
    """Go through nothing."""
    return ()
