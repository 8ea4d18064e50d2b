"""
The changes that plans, phases and tasks allow: look-ups with row locks, and status transitions.

The row of a plan is the lock of everything in the plan. Setting the current status again is not a transition and changes nothing. The only
way out of an archived plan is to restore it, which brings its previous status back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from rookery.access.models import Caller, not_in_allow_list
from rookery.agents.errors import PhaseClosed, PlanArchived, PlanNotActive, TaskBlocked, WrongTransition
from rookery.agents.models.plans import SYSTEM_ACTOR, EventActor, Phase, PhaseStatus, Plan, PlanAccessFilter, PlanStatus, Task, TaskStatus
from rookery.agents.plans.plan_events import PlanEventRecorder
from rookery.agents.store import dependencies, phases, plans
from rookery.agents.store.tables import PHASES, PLANS, TASKS
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound

PLAN_TRANSITIONS: Mapping[PlanStatus, frozenset[PlanStatus]] = MappingProxyType(
    {
        PlanStatus.DRAFT: frozenset({PlanStatus.ACTIVE, PlanStatus.ARCHIVED}),
        PlanStatus.ACTIVE: frozenset({PlanStatus.PAUSED, PlanStatus.COMPLETED, PlanStatus.ARCHIVED}),
        PlanStatus.PAUSED: frozenset({PlanStatus.ACTIVE, PlanStatus.COMPLETED, PlanStatus.ARCHIVED}),
        PlanStatus.COMPLETED: frozenset({PlanStatus.ACTIVE, PlanStatus.ARCHIVED}),
        PlanStatus.ARCHIVED: frozenset(),
    }
)
"""Transitions by a change of the status. Restoring an archived plan is a separate operation."""

PHASE_TRANSITIONS: Mapping[PhaseStatus, frozenset[PhaseStatus]] = MappingProxyType(
    {
        PhaseStatus.PENDING: frozenset({PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED, PhaseStatus.SKIPPED, PhaseStatus.ON_HOLD}),
        PhaseStatus.IN_PROGRESS: frozenset({PhaseStatus.PENDING, PhaseStatus.COMPLETED, PhaseStatus.SKIPPED, PhaseStatus.ON_HOLD}),
        PhaseStatus.ON_HOLD: frozenset({PhaseStatus.PENDING, PhaseStatus.IN_PROGRESS, PhaseStatus.SKIPPED}),
        PhaseStatus.COMPLETED: frozenset({PhaseStatus.IN_PROGRESS}),
        PhaseStatus.SKIPPED: frozenset({PhaseStatus.PENDING}),
    }
)

TASK_TRANSITIONS: Mapping[TaskStatus, frozenset[TaskStatus]] = MappingProxyType(
    {
        TaskStatus.PENDING: frozenset(
            {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, TaskStatus.ON_HOLD}
        ),
        TaskStatus.IN_PROGRESS: frozenset(
            {TaskStatus.PENDING, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED, TaskStatus.ON_HOLD}
        ),
        TaskStatus.ON_HOLD: frozenset({TaskStatus.PENDING, TaskStatus.SKIPPED}),
        TaskStatus.FAILED: frozenset({TaskStatus.PENDING, TaskStatus.SKIPPED}),
        TaskStatus.COMPLETED: frozenset({TaskStatus.PENDING}),
        TaskStatus.SKIPPED: frozenset({TaskStatus.PENDING}),
    }
)


class LeaseAction(StrEnum):
    """An operation on the lease of a task."""

    CLAIM = "claim"
    HEARTBEAT = "heartbeat"
    RELEASE = "release"
    COMPLETE = "complete"
    FAIL = "fail"


LEASE_TRANSITIONS: Mapping[LeaseAction, Mapping[TaskStatus, TaskStatus]] = MappingProxyType(
    {
        LeaseAction.CLAIM: {TaskStatus.PENDING: TaskStatus.IN_PROGRESS},
        LeaseAction.HEARTBEAT: {TaskStatus.IN_PROGRESS: TaskStatus.IN_PROGRESS},
        LeaseAction.RELEASE: {TaskStatus.IN_PROGRESS: TaskStatus.PENDING},
        LeaseAction.COMPLETE: {TaskStatus.IN_PROGRESS: TaskStatus.COMPLETED},
        LeaseAction.FAIL: {TaskStatus.IN_PROGRESS: TaskStatus.FAILED},
    }
)
"""The old and the new status for each operation. Any other status rejects the operation."""

FORCED_LEASE_TRANSITIONS: Mapping[LeaseAction, Mapping[TaskStatus, TaskStatus]] = MappingProxyType(
    {
        LeaseAction.RELEASE: {TaskStatus.IN_PROGRESS: TaskStatus.PENDING},
        LeaseAction.COMPLETE: {TaskStatus.PENDING: TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS: TaskStatus.COMPLETED},
        LeaseAction.FAIL: {TaskStatus.PENDING: TaskStatus.FAILED, TaskStatus.IN_PROGRESS: TaskStatus.FAILED},
    }
)
"""The same for operations by force, which need no lease and so also apply to tasks without a claim."""


def require_transition(kind: str, name: str, current: StrEnum, target: StrEnum, allowed: frozenset[StrEnum]) -> None:
    """
    Check that *target* is one of *allowed*.

    Raises:
        WrongTransition: It is not.
    """
    if target not in allowed:
        raise WrongTransition(kind, name, current, target, allowed=sorted(allowed))


def get_plan(tx: Tx, access_filter: PlanAccessFilter, ref: str) -> Plan:
    """
    Return the plan with the slug or id *ref*.

    Raises:
        NotFound: The plan does not exist, or *access_filter* excludes it.
    """
    plan = plans.find(tx, access_filter, ref)
    if plan is None:
        raise NotFound("plan", ref)
    return plan


def lock_plan(tx: Tx, access_filter: PlanAccessFilter, ref: str) -> Plan:
    """Return a plan as `get_plan` does, and lock it with everything in it until this transaction ends."""
    plan = plans.find(tx, access_filter, ref, lock=True)
    if plan is None:
        raise NotFound("plan", ref)
    return plan


def lock_writable_plan(tx: Tx, access_filter: PlanAccessFilter, ref: str) -> Plan:
    """
    Return a plan as `lock_plan` does, if it can be changed.

    Raises:
        PlanArchived: The plan is archived, and so read-only.
    """
    return _require_not_archived(lock_plan(tx, access_filter, ref))


def get_phase(tx: Tx, plan: Plan, ref: str) -> Phase:
    """
    Return the phase of *plan* with the id or position *ref*.

    Raises:
        NotFound: The plan has no such phase.
    """
    phase = phases.find(tx, plan, ref)
    if phase is None:
        raise NotFound("phase", ref)
    return phase


def get_task(tx: Tx, access_filter: PlanAccessFilter, task_id: str) -> tuple[Plan, Task]:
    """
    Return a task and its plan.

    Raises:
        NotFound: The task does not exist, or *access_filter* excludes its plan.
    """
    task = TASKS.find(tx, access_filter.workspace_id, id=task_id)
    plan = None if task is None else plans.find(tx, access_filter, task.plan_id)
    if task is None or plan is None:
        raise NotFound("task", task_id)
    return plan, task


def lock_writable_task(
    tx: Tx, access_filter: PlanAccessFilter, task_id: str, recorder: PlanEventRecorder, now: datetime
) -> tuple[Plan, Task]:
    """
    Return a task and its plan as `get_task` does, lock both, and expire the lease of the task if it is overdue.

    Raises:
        NotFound: As for `get_task`.
        PlanArchived: The plan is archived, and so read-only.
    """
    before = TASKS.find(tx, access_filter.workspace_id, id=task_id)
    plan = None if before is None else plans.find(tx, access_filter, before.plan_id, lock=True)
    # Read again: the task cannot change any further now that the plan is locked.
    task = None if plan is None else TASKS.find(tx, access_filter.workspace_id, id=task_id, lock=True)
    if plan is None or task is None:
        raise NotFound("task", task_id)
    return _require_not_archived(plan), expire_lease(tx, task, recorder, now)


def expire_lease(tx: Tx, task: Task, recorder: PlanEventRecorder, now: datetime) -> Task:
    """Return *task* as of *now*. Store the change and its events if the lease has expired. The plan must be locked."""
    current = task.as_of(now)
    if current is not task and task.claim is not None:
        current = replace(current, version=task.version + 1)
        TASKS.update(tx, current)
        data: dict[str, object] = {"holder": task.claim.holder, "attempts": current.attempts}
        recorder.record_task(tx, current, "lease_expired", actor=SYSTEM_ACTOR, at=now, data=data)
        if current.status is not task.status and current.error is not None:
            recorder.record_task(tx, current, "failed", actor=SYSTEM_ACTOR, at=now, data={"error": current.error})
    return current


def start_phase(tx: Tx, plan: Plan, phase: Phase, recorder: PlanEventRecorder, *, actor: EventActor, now: datetime) -> None:
    """
    Start work in *phase* of *plan*, which must be locked. A draft plan becomes active, a pending phase in progress.

    Raises:
        PlanNotActive: The plan is paused or completed.
        PhaseClosed: The phase is completed, skipped or on hold.
    """
    if plan.status is PlanStatus.DRAFT:
        activate_plan(tx, plan, recorder, actor=actor, now=now)
    elif plan.status is not PlanStatus.ACTIVE:
        raise PlanNotActive(plan.slug, plan.status)
    if phase.status is PhaseStatus.PENDING:
        started = replace(
            phase, status=PhaseStatus.IN_PROGRESS, started_at=phase.started_at or now, updated_at=now, version=phase.version + 1
        )
        PHASES.update(tx, started)
        recorder.record_phase(tx, started, "started", actor=actor, at=now)
    elif phase.status is not PhaseStatus.IN_PROGRESS:
        raise PhaseClosed(phase.name, phase.status)


def activate_plan(tx: Tx, plan: Plan, recorder: PlanEventRecorder, *, actor: EventActor, now: datetime) -> Plan:
    """Set *plan*, which must be locked, to active and return it."""
    name = "reopened" if plan.status is PlanStatus.COMPLETED else "resumed" if plan.status is PlanStatus.PAUSED else "started"
    active = replace(
        plan,
        status=PlanStatus.ACTIVE,
        started_at=plan.started_at or now,
        completed_at=None,
        updated_at=now,
        version=plan.version + 1,
    )
    PLANS.update(tx, active)
    recorder.record_plan(tx, active, name, actor=actor, at=now)
    return active


def require_open_plan(plan: Plan) -> None:
    """
    Check that phases and tasks can be added to *plan*.

    Raises:
        PlanNotActive: The plan is completed.
    """
    if plan.status is PlanStatus.COMPLETED:
        raise PlanNotActive(plan.slug, plan.status)


def require_unblocked(tx: Tx, task: Task) -> None:
    """
    Check that everything that *task* and its phase depend on is done.

    Raises:
        TaskBlocked: A dependency is not done.
    """
    depends = dependencies.list_by_items(tx, [task.id, task.phase_id])
    blocking_ids = dependencies.filter_open_tasks(tx, depends.get(task.id, [])) | dependencies.filter_unfinished_phases(
        tx, depends.get(task.phase_id, [])
    )
    if blocking_ids:
        raise TaskBlocked(task.name, sorted(blocking_ids))


def require_plan_access(caller: Caller, plan: Plan) -> None:
    """
    Check that the key of *caller* allows the org and project of *plan*. A key can write only what it can read.

    Raises:
        PermissionDenied: The org or project is not in the allow-lists of the key.
    """
    if PlanAccessFilter.from_caller(caller).allows(plan):
        return
    if caller.orgs is not None and plan.org not in caller.orgs:
        raise not_in_allow_list("orgs", plan.org, caller.orgs)
    raise not_in_allow_list("projects", plan.project, caller.projects or ())


def _require_not_archived(plan: Plan) -> Plan:
    if plan.status is PlanStatus.ARCHIVED:
        raise PlanArchived(plan.slug)
    return plan
