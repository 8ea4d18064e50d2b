"""Plans: create, read, update, archive and restore them."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PlanHasOpenPhases
from rookery.agents.models.drafts import PlanDraft, PlanFilter, PlanPatch
from rookery.agents.models.plans import OPEN_PHASE_STATUSES, EventActor, Plan, PlanAccessFilter, PlanEvent, PlanSettings, PlanStatus
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plan_builder import create_plan, validate_size
from rookery.agents.plans.plan_events import PlanEventRecorder, diff_fields
from rookery.agents.plans.transitions import (
    PLAN_TRANSITIONS,
    activate_plan,
    get_plan,
    lock_plan,
    lock_writable_plan,
    require_plan_access,
    require_transition,
)
from rookery.agents.plans.views import load_plan_view, load_plan_views
from rookery.agents.store import phases, plans
from rookery.agents.store.tables import PLANS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.ids import IdFactory
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match

_MAX_LISTED_PHASES = 100
"""Open phases listed in the error when a plan cannot be completed."""


_DIFF_FIELDS = tuple(field.name for field in fields(PlanSettings))


class Plans:
    """Operations on plans. A plan that the caller has no access to is not found."""

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._recorder = recorder
        self._clock = clock
        self._ids = ids

    async def create(self, caller: Caller, draft: PlanDraft) -> PlanView:
        """
        Store a plan with its phases and tasks.

        Raises:
            ValidationFailed, SlugTaken, PermissionDenied: As for `factory.create_plan` and `factory.validate_size`.
        """
        validate_size(draft)
        return await self._db.write(lambda tx: self.create_in_transaction(tx, caller, draft))

    def create_in_transaction(self, tx: Tx, caller: Caller, draft: PlanDraft) -> PlanView:
        """Store a plan as `create` does, within the transaction *tx*. *draft* must have passed `factory.validate_size`."""
        return create_plan(tx, caller, draft, recorder=self._recorder, ids=self._ids, now=self._clock())

    async def list_page(self, caller: Caller, filters: PlanFilter, *, page: PageSlice) -> ListPage[PlanView]:
        """
        Return a page of the plans, newest first, and the total count.

        Raises:
            NotInAllowList: The filter names an org or project that is not in the allow-lists of the key.
        """
        caller.require_in_allow_lists(org=filters.org, project=filters.project)

        def read(tx: Tx) -> ListPage[PlanView]:
            plan_page = plans.list_page(tx, PlanAccessFilter.from_caller(caller), filters, page=page)
            return plan_page.with_items(load_plan_views(tx, plan_page.items))

        return await self._db.read(read)

    async def get(self, caller: Caller, ref: str, *, with_phases: bool = True, with_tasks: bool = True) -> PlanView:
        """
        Return a plan, including an archived one.

        Raises:
            NotFound: The plan does not exist.
        """
        now = self._clock()
        return await self._db.read(
            lambda tx: load_plan_view(
                tx, get_plan(tx, PlanAccessFilter.from_caller(caller), ref), now, with_phases=with_phases, with_tasks=with_tasks
            )
        )

    async def list_events(self, caller: Caller, ref: str, *, after: int, page: PageSlice) -> ListPage[PlanEvent]:
        """
        Return a page of the events of a plan with a seq greater than *after*, oldest first, and their total count.

        Raises:
            NotFound: The plan does not exist.
        """
        return await self._db.read(
            lambda tx: plans.list_events(tx, get_plan(tx, PlanAccessFilter.from_caller(caller), ref).id, after=after, page=page)
        )

    async def change(self, caller: Caller, ref: str, change: PlanPatch, *, expected: ExpectedETags = None) -> PlanView:
        """
        Update the fields of a plan that *change* sets. Values that are already stored write nothing.

        Raises:
            NotFound: The plan does not exist.
            PlanArchived: The plan is read-only.
            PreconditionFailed: *expected* does not match the version of the plan.
            PermissionDenied: The new org or project is not in the allow-lists of the key.
        """
        now = self._clock()

        def write(tx: Tx) -> PlanView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), ref)
            require_match("plan", plan.version, expected)
            changed_plan = change.apply_to(plan)
            fields = diff_fields(plan, changed_plan, *_DIFF_FIELDS)
            if fields:
                require_plan_access(caller, changed_plan)
                changed_plan = replace(changed_plan, updated_at=now, version=plan.version + 1)
                PLANS.update(tx, changed_plan)
                self._recorder.record_plan(
                    tx, changed_plan, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": fields}
                )
            return _build_view(tx, changed_plan, now)

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
        Change the status of a plan. A plan that already has the status stays unchanged.

        Args:
            force: Complete the plan although phases are open. The event records it.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As for `change`.
            WrongTransition: The current status does not allow the new one.
            PlanHasOpenPhases: The plan has open phases and *force* is not set.
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
                return _build_view(tx, activate_plan(tx, plan, self._recorder, actor=by, now=now), now)
            data: dict[str, object] = {} if reason is None else {"reason": reason}
            if status is PlanStatus.COMPLETED:
                open_phases = [phase for phase in phases.list_by_plan(tx, plan) if phase.status in OPEN_PHASE_STATUSES]
                phase_fields: list[dict[str, object]] = [
                    {"id": phase.id, "position": phase.position, "name": phase.name, "status": phase.status.value}
                    for phase in open_phases[:_MAX_LISTED_PHASES]
                ]
                if open_phases and not force:
                    raise PlanHasOpenPhases(plan.slug, phase_fields)
                if open_phases:
                    data |= {"forced": True, "open_phases": [item["id"] for item in phase_fields]}
                changed_plan = complete_plan(tx, plan, self._recorder, actor=by, now=now, data=data)
            else:
                changed_plan = replace(plan, status=status, updated_at=now, version=plan.version + 1)
                PLANS.update(tx, changed_plan)
                self._recorder.record_plan(tx, changed_plan, "paused", actor=by, at=now, data=data)
            return _build_view(tx, changed_plan, now)

        return await self._db.write(write)

    async def archive(self, caller: Caller, ref: str, *, reason: str | None = None, expected: ExpectedETags = None) -> PlanView:
        """
        Archive a plan, which makes it read-only. If it is already archived, only a new reason is stored.

        Raises:
            NotFound, PreconditionFailed: As for `change`.
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
                PLANS.update(tx, plan)
                self._recorder.record_plan(
                    tx, plan, "archived", actor=EventActor.from_caller(caller), at=now, data={} if reason is None else {"reason": reason}
                )
            elif reason not in {None, plan.archive_reason}:
                changes = diff_fields(plan, replace(plan, archive_reason=reason), "archive_reason")
                plan = replace(plan, archive_reason=reason, updated_at=now, version=plan.version + 1)
                PLANS.update(tx, plan)
                self._recorder.record_plan(tx, plan, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": changes})
            return _build_view(tx, plan, now)

        return await self._db.write(write)

    async def restore(self, caller: Caller, ref: str, *, expected: ExpectedETags = None) -> PlanView:
        """
        Restore an archived plan to its previous status. A plan that is not archived stays unchanged.

        Raises:
            NotFound, PreconditionFailed: As for `change`.
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
                PLANS.update(tx, plan)
                self._recorder.record_plan(
                    tx, plan, "restored", actor=EventActor.from_caller(caller), at=now, data={"status": plan.status.value}
                )
            return _build_view(tx, plan, now)

        return await self._db.write(write)


def complete_plan(tx: Tx, plan: Plan, recorder: PlanEventRecorder, *, actor: EventActor, now: datetime, data: dict[str, object]) -> Plan:
    """Set *plan*, which must be locked, to completed and return it."""
    completed_plan = replace(plan, status=PlanStatus.COMPLETED, completed_at=now, updated_at=now, version=plan.version + 1)
    PLANS.update(tx, completed_plan)
    recorder.record_plan(tx, completed_plan, "completed", actor=actor, at=now, data=data)
    return completed_plan


def _build_view(tx: Tx, plan: Plan, now: datetime) -> PlanView:
    return load_plan_view(tx, plan, now, with_phases=False, with_tasks=False)
