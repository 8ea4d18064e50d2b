"""The org of memories that have a project and none (spec 4.4, brain:backfill-org, D-52)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.maintenance.rounds import Course, Rounds, batches
from rookery.memory.models import Memory
from rookery.memory.runs import Item, Report, Watch, unwatched
from rookery.memory.store import records, tidying
from rookery.memory.store.tidying import Range

_TICK = timedelta(microseconds=1)
_LONGEST_ORG = 100
_KNOWN_PROJECTS = 10_000
"""So many projects' orgs are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which workspace."""

    workspace_id: int
    dry_run: bool = False


class Backfill:
    """Gives an org where it is beyond doubt; a memory that has one is never touched, so a second run finds less to do."""

    def __init__(self, *, db: Database, clock: Clock, rounds: Rounds) -> None:
        self._db = db
        self._clock = clock
        self._rounds = rounds

    async def run(self, wanted: Wanted, *, watch: Watch | None = None) -> Report:
        """Give orgs, or tell which would be given; what was given one is Stale until `brain:reindex --stale` (D-45)."""
        watch = watch or unwatched()
        counts: Counter[str] = Counter({"changed": 0, "unknown": 0})
        orgs: OrderedDict[str, str | None] = OrderedDict()

        async def work(stretch: Sequence[Memory]) -> None:
            found = list[tuple[Memory, str]]()
            for memory in stretch:
                org = await self._org(orgs, wanted, memory.project or "")
                if org is None:
                    counts["unknown"] += 1
                else:
                    found.append((memory, org))
            given = {memory.id for memory, _ in found}
            if found and not wanted.dry_run:
                given = await self._db.write(lambda tx: self._write(tx, found))
            for memory, org in found:
                if memory.id in given:
                    counts["changed"] += 1
                    watch.item(Item(id=memory.id, action="change", why=f"the org of project {memory.project!r} is {org!r}"))

        within = Range(workspace_id=wanted.workspace_id, is_orgless=True)
        course = Course(name=f"backfill-org {wanted.workspace_id}", of=within, resume=False, is_kept=False)
        gone = await self._rounds.through(course, batches(within), work, watch=watch)
        return Report(
            total=gone.total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped
        )

    async def _org(self, orgs: OrderedDict[str, str | None], wanted: Wanted, project: str) -> str | None:
        named = named_org(project)
        if named is not None:
            return named
        if project not in orgs:
            orgs[project] = await self._db.read(lambda tx: tidying.only_org(tx, wanted.workspace_id, project))
            if len(orgs) > _KNOWN_PROJECTS:
                orgs.popitem(last=False)
        return orgs[project]

    def _write(self, tx: Tx, found: Sequence[tuple[Memory, str]]) -> set[str]:
        now, given = self._clock(), set[str]()
        for memory, org in found:
            was = records.locked(tx, memory.workspace_id, memory.id)
            if was is not None and was.org is None and was.project == memory.project:
                records.change(tx, was, replace(was, org=org, updated_at=max(now, was.updated_at + _TICK), index_failed_at=None))
                given.add(was.id)
        return given


def named_org(project: str) -> str | None:
    """Return the org that *project*, written `org/name`, names; None: it names none."""
    org, slash, name = project.partition("/")
    return org if slash and org.strip() and name.strip() and len(org) <= _LONGEST_ORG else None
