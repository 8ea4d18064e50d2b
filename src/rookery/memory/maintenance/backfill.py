"""Backfill of the org of memories that have a project but no org, for `brain:backfill-org`."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.authorship import Author
from rookery.memory.batch_runs import SILENT, RunItem, RunObserver, RunReport
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.models import Memory
from rookery.memory.records import next_version
from rookery.memory.store import maintenance, records
from rookery.memory.store.maintenance import MemorySelection
from rookery.memory.store.tables import MEMORIES

_MAX_ORG_CHARS = 100
_MAX_CACHED_PROJECTS = 10_000
"""Maximum projects whose orgs are cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRequest:
    """The parameters of a backfill. *by* becomes the author of the changes."""

    workspace_id: int
    dry_run: bool = False
    by: Actor = SYSTEM_ACTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """A backfill that sets an org where it is unambiguous. Memories that have an org are not changed, so a second run has less to do."""

    db: Database
    clock: Clock
    runner: BatchRunner

    async def run(self, request: BackfillRequest, *, observer: RunObserver = SILENT) -> RunReport:
        """Set missing orgs, or report them in a dry run. Changed memories are stale until `brain:reindex --stale`."""
        counts: Counter[str] = Counter({"changed": 0, "unknown": 0})
        orgs: OrderedDict[str, str | None] = OrderedDict()

        async def work(batch: Sequence[Memory]) -> None:
            memory_orgs = list[tuple[Memory, str]]()
            for memory in batch:
                org = await self._resolve_org(orgs, request, memory.project or "")
                if org is None:
                    counts["unknown"] += 1
                else:
                    memory_orgs.append((memory, org))
            changed_ids = {memory.id for memory, _ in memory_orgs}
            if memory_orgs and not request.dry_run:
                changed_ids = await self.db.write(lambda tx: self._write(tx, memory_orgs, by=Author.from_actor(request.by)))
            for memory, org in memory_orgs:
                if memory.id in changed_ids:
                    counts["changed"] += 1
                    observer.on_item(RunItem(id=memory.id, action="change", why=f"the org of project {memory.project!r} is {org!r}"))

        selection = MemorySelection(workspace_id=request.workspace_id, is_orgless=True)
        batch_run = BatchRun(name=f"backfill-org {request.workspace_id}", selection=selection)
        return await self.runner.run(batch_run, batch_reader(selection), work, observer=observer, counts=counts)

    async def _resolve_org(self, orgs: OrderedDict[str, str | None], request: BackfillRequest, project: str) -> str | None:
        org = parse_org(project)
        if org is not None:
            return org
        if project not in orgs:
            orgs[project] = await self.db.read(lambda tx: maintenance.find_single_org(tx, request.workspace_id, project))
            if len(orgs) > _MAX_CACHED_PROJECTS:
                orgs.popitem(last=False)
        return orgs[project]

    def _write(self, tx: Tx, memory_orgs: Sequence[tuple[Memory, str]], *, by: Author) -> set[str]:
        now, changed_ids = self.clock(), set[str]()
        for memory, org in memory_orgs:
            current = MEMORIES.find(tx, memory.workspace_id, id=memory.id, lock=True)
            if current is not None and current.org is None and current.project == memory.project:
                records.update_memory(tx, current, next_version(current, replace(current, org=org), by=by, at=now))
                changed_ids.add(current.id)
        return changed_ids


def parse_org(project: str) -> str | None:
    """Return the org of a *project* written as `org/name`. None if it has another form."""
    org, slash, name = project.partition("/")
    return org if slash and org.strip() and name.strip() and len(org) <= _MAX_ORG_CHARS else None
