"""Plans: made whole, read, changed, archived and restored (D-60)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PlanHasOpenPhases
from rookery.agents.models.drafts import PlanChange, PlanDraft, PlanFilters
from rookery.agents.models.plans import OPEN_PHASE, By, Plan, PlanEvent, PlanStatus, Within
from rookery.agents.models.views import PlanView
from rookery.agents.plans.differing import differing
from rookery.agents.plans.holding import activate, held, must_reach, the_plan, writable
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.plans.making import make, must_fit
from rookery.agents.plans.reading import plan_view, plan_views
from rookery.agents.plans.transitions import PLAN, must_become
from rookery.agents.store import phases, plans
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.ids import Ids
from rookery.kernel.preconditions import Expected, require_match

_TOLD = 100
"""So many open phases are named when a plan cannot be completed."""


class Plans:
    """What may be done with a plan; one that the caller may not see is not there."""

    def __init__(self, *, db: Database, journal: PlanJournal, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._journal = journal
        self._clock = clock
        self._ids = ids

    async def create(self, caller: Caller, draft: PlanDraft) -> PlanView:
        """
        Store a plan with all that is in it.

        Raises:
            ValidationFailed, SlugTaken, PermissionDenied: As `making.make`.
        """
        must_fit(draft)
        return await self._db.write(lambda tx: self.create_in(tx, caller, draft))

    def create_in(self, tx: Tx, caller: Caller, draft: PlanDraft) -> PlanView:
        """Do as `create`, as a part of the transaction *tx*; *draft* must fit (`making.must_fit`)."""
        return make(tx, caller, draft, journal=self._journal, ids=self._ids, now=self._clock())

    async def page(self, caller: Caller, filters: PlanFilters, *, limit: int, offset: int) -> tuple[list[PlanView], int]:
        """
        Return a stretch of the plans, newest first, and how many there are in all.

        Raises:
            NotInList: The filter names an org or a project that the key's lists leave out.
        """
        caller.require_listed(org=filters.org, project=filters.project)

        def read(tx: Tx) -> tuple[list[PlanView], int]:
            found, total = plans.page(tx, Within.of(caller), filters, limit=limit, offset=offset)
            return plan_views(tx, found), total

        return await self._db.read(read)

    async def get(self, caller: Caller, ref: str, *, with_phases: bool = True, with_tasks: bool = True) -> PlanView:
        """
        Return a plan, an archived one too.

        Raises:
            NotFound: There is none.
        """
        now = self._clock()
        return await self._db.read(
            lambda tx: plan_view(tx, the_plan(tx, Within.of(caller), ref), now, with_phases=with_phases, with_tasks=with_tasks)
        )

    async def events(self, caller: Caller, ref: str, *, after: int, limit: int, offset: int) -> tuple[list[PlanEvent], int]:
        """
        Return a stretch of what was done with a plan past the event *after*, oldest first, and how many there are past it.

        Raises:
            NotFound: There is no such plan.
        """
        return await self._db.read(
            lambda tx: plans.events(tx, the_plan(tx, Within.of(caller), ref).id, after=after, limit=limit, offset=offset)
        )

    async def change(self, caller: Caller, ref: str, change: PlanChange, *, expected: Expected = None) -> PlanView:
        """
        Change what *change* gives; what changes nothing writes nothing.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: It is not there, read-only, or another than the caller knows.
            PermissionDenied: It would leave the key's orgs and projects.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = writable(tx, Within.of(caller), ref)
            require_match("plan", plan.version, expected)
            changed = replace(
                plan,
                title=change.title if "title" in change.given else plan.title,
                description=change.description if "description" in change.given else plan.description,
                org=change.org if "org" in change.given else plan.org,
                project=change.project if "project" in change.given else plan.project,
                metadata=change.metadata if "metadata" in change.given else plan.metadata,
            )
            fields = differing(plan, changed, "title", "description", "org", "project", "metadata")
            if fields:
                must_reach(caller, changed)
                changed = replace(changed, updated_at=now, version=plan.version + 1)
                plans.change(tx, changed)
                self._journal.plan(tx, changed, "updated", by=By.of(caller), at=now, data={"changed": fields})
            return _shown(tx, changed, now)

        return await self._db.write(write)

    async def set_status(
        self, caller: Caller, ref: str, wanted: PlanStatus, *, force: bool = False, reason: str | None = None, expected: Expected = None
    ) -> PlanView:
        """
        Bring a plan into the status *wanted*; if it is there already, nothing happens.

        Args:
            force: Complete it whatever is open in it; recorded.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            WrongTransition: There is no way.
            PlanHasOpenPhases: It cannot be completed yet.
        """
        if wanted is PlanStatus.ARCHIVED:
            return await self.archive(caller, ref, reason=reason, expected=expected)
        now, by = self._clock(), By.of(caller)

        def write(tx: Tx) -> PlanView:
            plan = writable(tx, Within.of(caller), ref)
            require_match("plan", plan.version, expected)
            if plan.status is wanted:
                return _shown(tx, plan, now)
            must_become("plan", plan.slug, plan.status, wanted, PLAN[plan.status])
            if wanted is PlanStatus.ACTIVE:
                return _shown(tx, activate(tx, plan, self._journal, by=by, now=now), now)
            data: dict[str, object] = {} if reason is None else {"reason": reason}
            if wanted is PlanStatus.COMPLETED:
                open_phases = [phase for phase in phases.of_plan(tx, plan.id) if phase.status in OPEN_PHASE]
                told: list[dict[str, object]] = [
                    {"id": phase.id, "position": phase.position, "name": phase.name, "status": phase.status.value}
                    for phase in open_phases[:_TOLD]
                ]
                if open_phases and not force:
                    raise PlanHasOpenPhases(plan.slug, told)
                if open_phases:
                    data |= {"forced": True, "open_phases": [each["id"] for each in told]}
                changed = complete(tx, plan, self._journal, by=by, now=now, data=data)
            else:
                changed = replace(plan, status=wanted, updated_at=now, version=plan.version + 1)
                plans.change(tx, changed)
                self._journal.plan(tx, changed, "paused", by=by, at=now, data=data)
            return _shown(tx, changed, now)

        return await self._db.write(write)

    async def archive(self, caller: Caller, ref: str, *, reason: str | None = None, expected: Expected = None) -> PlanView:
        """
        Archive a plan, which makes it read-only; an archived one only gets the reason, if it is another one.

        Raises:
            NotFound, PreconditionFailed: As `change`.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = held(tx, Within.of(caller), ref)
            require_match("plan", plan.version, expected)
            if plan.status is not PlanStatus.ARCHIVED:
                plan = replace(
                    plan,
                    status=PlanStatus.ARCHIVED,
                    archived_from=plan.status,
                    archive_reason=reason,
                    archived_at=now,
                    updated_at=now,
                    version=plan.version + 1,
                )
                plans.change(tx, plan)
                self._journal.plan(tx, plan, "archived", by=By.of(caller), at=now, data={} if reason is None else {"reason": reason})
            elif reason not in {None, plan.archive_reason}:
                changes = differing(plan, replace(plan, archive_reason=reason), "archive_reason")
                plan = replace(plan, archive_reason=reason, updated_at=now, version=plan.version + 1)
                plans.change(tx, plan)
                self._journal.plan(tx, plan, "updated", by=By.of(caller), at=now, data={"changed": changes})
            return _shown(tx, plan, now)

        return await self._db.write(write)

    async def restore(self, caller: Caller, ref: str, *, expected: Expected = None) -> PlanView:
        """
        Bring an archived plan back to the status that it had; one that is not archived stays as it is.

        Raises:
            NotFound, PreconditionFailed: As `change`.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = held(tx, Within.of(caller), ref)
            require_match("plan", plan.version, expected)
            if plan.status is PlanStatus.ARCHIVED:
                plan = replace(
                    plan,
                    status=plan.archived_from or PlanStatus.PAUSED,
                    archived_from=None,
                    archive_reason=None,
                    archived_at=None,
                    updated_at=now,
                    version=plan.version + 1,
                )
                plans.change(tx, plan)
                self._journal.plan(tx, plan, "restored", by=By.of(caller), at=now, data={"status": plan.status.value})
            return _shown(tx, plan, now)

        return await self._db.write(write)


def complete(tx: Tx, plan: Plan, journal: PlanJournal, *, by: By, now: datetime, data: dict[str, object]) -> Plan:
    """Make *plan*, which is held, completed."""
    completed = replace(plan, status=PlanStatus.COMPLETED, completed_at=now, updated_at=now, version=plan.version + 1)
    plans.change(tx, completed)
    journal.plan(tx, completed, "completed", by=by, at=now, data=data)
    return completed


def _shown(tx: Tx, plan: Plan, now: datetime) -> PlanView:
    return plan_view(tx, plan, now, with_phases=False, with_tasks=False)
