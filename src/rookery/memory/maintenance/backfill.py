"""The org of memories that have a project and none (spec 4.4, brain:backfill-org, D-52)."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.batch_runs import RunItem, RunObserver, RunReport, null_observer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.models import Memory
from rookery.memory.store import maintenance, records
from rookery.memory.store.maintenance import MemorySelection

_MIN_TIME_STEP = timedelta(microseconds=1)
_MAX_ORG_CHARS = 100
_MAX_CACHED_PROJECTS = 10_000
"""So many projects' orgs are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """Which workspace."""

    workspace_id: int
    dry_run: bool = False


class Backfill:
    """Gives an org where it is beyond doubt; a memory that has one is never touched, so a second run finds less to do."""

    def __init__(self, *, db: Database, clock: Clock, runner: BatchRunner) -> None:
        self._db = db
        self._clock = clock
        self._runner = runner

    async def run(self, request: BackfillRequest, *, observer: RunObserver | None = None) -> RunReport:
        """Give orgs, or tell which would be given; what was given one is Stale until `brain:reindex --stale` (D-45)."""
        observer = observer or null_observer()
        counts: Counter[str] = Counter({"changed": 0, "unknown": 0})
        orgs: OrderedDict[str, str | None] = OrderedDict()

        async def work(stretch: Sequence[Memory]) -> None:
            found = list[tuple[Memory, str]]()
            for memory in stretch:
                org = await self._resolve_org(orgs, request, memory.project or "")
                if org is None:
                    counts["unknown"] += 1
                else:
                    found.append((memory, org))
            given = {memory.id for memory, _ in found}
            if found and not request.dry_run:
                given = await self._db.write(lambda tx: self._write(tx, found))
            for memory, org in found:
                if memory.id in given:
                    counts["changed"] += 1
                    observer.on_item(RunItem(id=memory.id, action="change", why=f"the org of project {memory.project!r} is {org!r}"))

        within = MemorySelection(workspace_id=request.workspace_id, is_orgless=True)
        course = BatchRun(name=f"backfill-org {request.workspace_id}", selection=within, resume=False, is_resumable=False)
        gone = await self._runner.run(course, batch_reader(within), work, observer=observer)
        return RunReport(
            total=gone.total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped
        )

    async def _resolve_org(self, orgs: OrderedDict[str, str | None], request: BackfillRequest, project: str) -> str | None:
        named = parse_org(project)
        if named is not None:
            return named
        if project not in orgs:
            orgs[project] = await self._db.read(lambda tx: maintenance.find_single_org(tx, request.workspace_id, project))
            if len(orgs) > _MAX_CACHED_PROJECTS:
                orgs.popitem(last=False)
        return orgs[project]

    def _write(self, tx: Tx, found: Sequence[tuple[Memory, str]]) -> set[str]:
        now, given = self._clock(), set[str]()
        for memory, org in found:
            was = records.lock_memory(tx, memory.workspace_id, memory.id)
            if was is not None and was.org is None and was.project == memory.project:
                records.update_memory(
                    tx, was, replace(was, org=org, updated_at=max(now, was.updated_at + _MIN_TIME_STEP), index_failed_at=None)
                )
                given.add(was.id)
        return given


def parse_org(project: str) -> str | None:
    """Return the org that *project*, written `org/name`, names; None: it names none."""
    org, slash, name = project.partition("/")
    return org if slash and org.strip() and name.strip() and len(org) <= _MAX_ORG_CHARS else None
