"""Plans: made whole, read, changed, archived and restored (D-60)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PlanHasOpenPhases
from rookery.agents.models.drafts import PlanChange, PlanDraft, PlanFilter
from rookery.agents.models.plans import OPEN_PHASE_STATUSES, EventActor, Plan, PlanAccessFilter, PlanEvent, PlanStatus
from rookery.agents.models.views import PlanView
from rookery.agents.plans.diff import diff_fields
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.factory import create_plan, validate_size
from rookery.agents.plans.locking import activate_plan, get_plan, lock_plan, lock_writable_plan, require_plan_access
from rookery.agents.plans.transitions import PLAN_TRANSITIONS, require_transition
from rookery.agents.plans.view_builder import load_plan_view, load_plan_views
from rookery.agents.store import phases, plans
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.ids import IdFactory
from rookery.kernel.preconditions import ExpectedETags, require_match

_MAX_LISTED_PHASES = 100
"""So many open phases are named when a plan cannot be completed."""


class Plans:
    """What may be done with a plan; one that the caller may not see is not there."""

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._journal = recorder
        self._clock = clock
        self._ids = ids

    async def create(self, caller: Caller, draft: PlanDraft) -> PlanView:
        """
        Store a plan with all that is in it.

        Raises:
            ValidationFailed, SlugTaken, PermissionDenied: As `making.create_plan`.
        """
        validate_size(draft)
        return await self._db.write(lambda tx: self.create_in_transaction(tx, caller, draft))

    def create_in_transaction(self, tx: Tx, caller: Caller, draft: PlanDraft) -> PlanView:
        """Do as `create`, as a part of the transaction *tx*; *draft* must fit (`making.validate_size`)."""
        return create_plan(tx, caller, draft, recorder=self._journal, ids=self._ids, now=self._clock())

    async def list_page(self, caller: Caller, filters: PlanFilter, *, limit: int, offset: int) -> tuple[list[PlanView], int]:
        """
        Return a stretch of the plans, newest first, and how many there are in all.

        Raises:
            NotInList: The filter names an org or a project that the key's lists leave out.
        """
        caller.require_in_allow_lists(org=filters.org, project=filters.project)

        def read(tx: Tx) -> tuple[list[PlanView], int]:
            found, total = plans.list_page(tx, PlanAccessFilter.from_caller(caller), filters, limit=limit, offset=offset)
            return load_plan_views(tx, found), total

        return await self._db.read(read)

    async def get(self, caller: Caller, ref: str, *, with_phases: bool = True, with_tasks: bool = True) -> PlanView:
        """
        Return a plan, an archived one too.

        Raises:
            NotFound: There is none.
        """
        now = self._clock()
        return await self._db.read(
            lambda tx: load_plan_view(
                tx, get_plan(tx, PlanAccessFilter.from_caller(caller), ref), now, with_phases=with_phases, with_tasks=with_tasks
            )
        )

    async def list_events(self, caller: Caller, ref: str, *, after: int, limit: int, offset: int) -> tuple[list[PlanEvent], int]:
        """
        Return a stretch of what was done with a plan past the event *after*, oldest first, and how many there are past it.

        Raises:
            NotFound: There is no such plan.
        """
        return await self._db.read(
            lambda tx: plans.list_events(
                tx, get_plan(tx, PlanAccessFilter.from_caller(caller), ref).id, after=after, limit=limit, offset=offset
            )
        )

    async def change(self, caller: Caller, ref: str, change: PlanChange, *, expected: ExpectedETags = None) -> PlanView:
        """
        Change what *change* gives; what changes nothing writes nothing.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: It is not there, read-only, or another than the caller knows.
            PermissionDenied: It would leave the key's orgs and projects.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), ref)
            require_match("plan", plan.version, expected)
            changed = replace(
                plan,
                title=change.title if "title" in change.fields_set else plan.title,
                description=change.description if "description" in change.fields_set else plan.description,
                org=change.org if "org" in change.fields_set else plan.org,
                project=change.project if "project" in change.fields_set else plan.project,
                metadata=change.metadata if "metadata" in change.fields_set else plan.metadata,
            )
            fields = diff_fields(plan, changed, "title", "description", "org", "project", "metadata")
            if fields:
                require_plan_access(caller, changed)
                changed = replace(changed, updated_at=now, version=plan.version + 1)
                plans.change(tx, changed)
                self._journal.record_plan(tx, changed, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": fields})
            return _build_view(tx, changed, now)

        return await self._db.write(write)

    async def set_status(
        self,
        caller: Caller,
        ref: str,
        status: PlanStatus,
        *,
        force: bool = False,
        reason: str | None = None,
        expected: ExpectedETags = None,
    ) -> PlanView:
        """
        Bring a plan into the status *status*; if it is there already, nothing happens.

        Args:
            force: Complete it whatever is open in it; recorded.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            WrongTransition: There is no way.
            PlanHasOpenPhases: It cannot be completed yet.
        """
        if status is PlanStatus.ARCHIVED:
            return await self.archive(caller, ref, reason=reason, expected=expected)
        now, by = self._clock(), EventActor.from_caller(caller)

        def write(tx: Tx) -> PlanView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), ref)
            require_match("plan", plan.version, expected)
            if plan.status is status:
                return _build_view(tx, plan, now)
            require_transition("plan", plan.slug, plan.status, status, PLAN_TRANSITIONS[plan.status])
            if status is PlanStatus.ACTIVE:
                return _build_view(tx, activate_plan(tx, plan, self._journal, actor=by, now=now), now)
            data: dict[str, object] = {} if reason is None else {"reason": reason}
            if status is PlanStatus.COMPLETED:
                open_phases = [phase for phase in phases.list_by_plan(tx, plan.id) if phase.status in OPEN_PHASE_STATUSES]
                told: list[dict[str, object]] = [
                    {"id": phase.id, "position": phase.position, "name": phase.name, "status": phase.status.value}
                    for phase in open_phases[:_MAX_LISTED_PHASES]
                ]
                if open_phases and not force:
                    raise PlanHasOpenPhases(plan.slug, told)
                if open_phases:
                    data |= {"forced": True, "open_phases": [each["id"] for each in told]}
                changed = complete_plan(tx, plan, self._journal, actor=by, now=now, data=data)
            else:
                changed = replace(plan, status=status, updated_at=now, version=plan.version + 1)
                plans.change(tx, changed)
                self._journal.record_plan(tx, changed, "paused", actor=by, at=now, data=data)
            return _build_view(tx, changed, now)

        return await self._db.write(write)

    async def archive(self, caller: Caller, ref: str, *, reason: str | None = None, expected: ExpectedETags = None) -> PlanView:
        """
        Archive a plan, which makes it read-only; an archived one only gets the reason, if it is another one.

        Raises:
            NotFound, PreconditionFailed: As `change`.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = lock_plan(tx, PlanAccessFilter.from_caller(caller), ref)
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
                self._journal.record_plan(
                    tx, plan, "archived", actor=EventActor.from_caller(caller), at=now, data={} if reason is None else {"reason": reason}
                )
            elif reason not in {None, plan.archive_reason}:
                changes = diff_fields(plan, replace(plan, archive_reason=reason), "archive_reason")
                plan = replace(plan, archive_reason=reason, updated_at=now, version=plan.version + 1)
                plans.change(tx, plan)
                self._journal.record_plan(tx, plan, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": changes})
            return _build_view(tx, plan, now)

        return await self._db.write(write)

    async def restore(self, caller: Caller, ref: str, *, expected: ExpectedETags = None) -> PlanView:
        """
        Bring an archived plan back to the status that it had; one that is not archived stays as it is.

        Raises:
            NotFound, PreconditionFailed: As `change`.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = lock_plan(tx, PlanAccessFilter.from_caller(caller), ref)
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
                self._journal.record_plan(
                    tx, plan, "restored", actor=EventActor.from_caller(caller), at=now, data={"status": plan.status.value}
                )
            return _build_view(tx, plan, now)

        return await self._db.write(write)


def complete_plan(tx: Tx, plan: Plan, recorder: PlanEventRecorder, *, actor: EventActor, now: datetime, data: dict[str, object]) -> Plan:
    """Make *record_plan*, which is held, completed."""
    completed = replace(plan, status=PlanStatus.COMPLETED, completed_at=now, updated_at=now, version=plan.version + 1)
    plans.change(tx, completed)
    recorder.record_plan(tx, completed, "completed", actor=actor, at=now, data=data)
    return completed


def _build_view(tx: Tx, plan: Plan, now: datetime) -> PlanView:
    return load_plan_view(tx, plan, now, with_phases=False, with_tasks=False)
