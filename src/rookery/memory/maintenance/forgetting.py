"""Memories are forgotten for good, in whatever state: by id, or all of an agent, a session, an org, a project (D-04, D-41)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import Bus, MemoryDeleted
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.erasing import DELETED, Erasing
from rookery.memory.maintenance.rounds import Course, Rounds, batches
from rookery.memory.models import Memory
from rookery.memory.records import remove, take_out
from rookery.memory.runs import Item, Report, Watch, unwatched
from rookery.memory.store import forgetting as store
from rookery.memory.store import records
from rookery.memory.store.tidying import Range


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Which memories of a workspace to forget: those that meet all that is given, archived and expired ones too.

    Attributes:
        ids: Only these; without them, all that the others leave.
        traces: Leave no traces, also of what was deleted otherwise; without criteria, nothing else.
    """

    workspace_id: int
    ids: tuple[str, ...] = ()
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    traces: bool = False
    dry_run: bool = False

    @property
    def has_criteria(self) -> bool:
        """Tell whether anything narrows it: all of a workspace goes with the workspace alone."""
        return bool(self.ids) or any(each is not None for each in (self.org, self.project, self.agent_id, self.session_id))

    @property
    def why(self) -> str:
        """What an item says of itself."""
        named = {"org": self.org, "project": self.project, "agent": self.agent_id, "session": self.session_id}
        said = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
        return said or "named by its id"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forgotten:
    memory: Memory
    left_in: str | None


class Forgetting:
    """
    Deletes from every store, and then what is left in their files; killed in the middle, the same command again ends it.

    What was merged into another memory is taken out of that one again. The indexes are cleared at once, and by a job where
    their engine is down.
    """

    def __init__(self, *, db: Database, jobs: Jobs, indexer: Indexer, bus: Bus, clock: Clock, rounds: Rounds, erasing: Erasing) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._rounds = rounds
        self._erasing = erasing

    async def run(self, wanted: Wanted, *, watch: Watch | None = None) -> Report:
        """Forget, or tell what would be forgotten."""
        watch = watch or unwatched()
        counts: Counter[str] = Counter({"deleted": 0})

        async def work(stretch: Sequence[Memory]) -> None:
            gone = [_Forgotten(memory=memory, left_in=None) for memory in stretch]
            if not wanted.dry_run:
                gone = await self._db.write(lambda tx: self._write(tx, stretch))
                # Who forgets wants it gone now, also where no server runs; the jobs are for when this cannot be done.
                with contextlib.suppress(*OUTAGES):
                    await self._indexer.drop(wanted.workspace_id, [each.memory.id for each in gone])
            for each in gone:
                counts["deleted"] += 1
                left = f"; its words were merged into {each.left_in} and changed there since: look at that one" if each.left_in else ""
                watch.item(Item(id=each.memory.id, action="delete", why=wanted.why + left))

        within = Range(
            workspace_id=wanted.workspace_id,
            ids=wanted.ids or None,
            org=wanted.org,
            project=wanted.project,
            agent_id=wanted.agent_id,
            session_id=wanted.session_id,
        )

        async def clear() -> None:
            nonlocal left
            if wanted.traces and not wanted.dry_run:
                await self._db.write(lambda tx: self._erasing.owe(tx, DELETED))
            left = None if wanted.dry_run else await self._erasing.settle()

        left: str | None = None
        course = Course(name=f"forget {wanted.workspace_id}", of=within, resume=False, is_kept=False)
        read = batches(within) if wanted.has_criteria else _none
        gone = await self._rounds.through(course, read, work, watch=watch, last=clear)
        if wanted.ids:
            counts["absent"] = len(set(wanted.ids)) - gone.done
        total = gone.total if wanted.has_criteria else 0
        return Report(
            total=total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped or left
        )

    def _write(self, tx: Tx, stretch: Sequence[Memory]) -> list[_Forgotten]:
        now, gone = self._clock(), list[_Forgotten]()
        for each in stretch:
            memory = records.locked(tx, each.workspace_id, each.id)
            if memory is None:
                continue
            left_in = take_out(tx, self._jobs, memory, at=now)
            store.unjudge(tx, memory.workspace_id, memory.id)
            remove(tx, self._jobs, self._bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
            self._erasing.owe(tx, DELETED)
            gone.append(_Forgotten(memory=memory, left_in=left_in))
        return gone


def _none(_: Tx, __: str) -> Sequence[Memory]:
    """Go through nothing."""
    return ()
