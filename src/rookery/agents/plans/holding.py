"""Finding what a request names, and holding it: a plan's row is the lock of all that is in it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller, not_listed
from rookery.agents.errors import PhaseClosed, PlanArchived, PlanNotActive, TaskBlocked
from rookery.agents.models.plans import SWEEPER, By, Phase, PhaseStatus, Plan, PlanStatus, Task, Within
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.store import needs, phases, plans, tasks
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound


def the_plan(tx: Tx, within: Within, ref: str) -> Plan:
    """
    Return the plan that *ref*, a slug or an id, names.

    Raises:
        NotFound: There is none, or it may not be seen.
    """
    plan = plans.find(tx, within, ref)
    if plan is None:
        raise NotFound("plan", ref)
    return plan


def held(tx: Tx, within: Within, ref: str) -> Plan:
    """Do as `the_plan`, and let nobody else change anything of it until this transaction ends."""
    plan = plans.find(tx, within, ref, lock=True)
    if plan is None:
        raise NotFound("plan", ref)
    return plan


def writable(tx: Tx, within: Within, ref: str) -> Plan:
    """
    Do as `held`, for a plan in which something is to be changed.

    Raises:
        PlanArchived: It is read-only.
    """
    return _not_archived(held(tx, within, ref))


def the_phase(tx: Tx, plan: Plan, ref: str) -> Phase:
    """
    Return the phase of *plan* that *ref*, an id or a position, names.

    Raises:
        NotFound: There is none.
    """
    phase = phases.find(tx, plan.id, ref)
    if phase is None:
        raise NotFound("phase", ref)
    return phase


def the_task(tx: Tx, within: Within, task_id: str) -> tuple[Plan, Task]:
    """
    Return a task and its plan.

    Raises:
        NotFound: There is none, or its plan may not be seen.
    """
    task = tasks.find(tx, within.workspace_id, task_id)
    plan = None if task is None else plans.find(tx, within, task.plan_id)
    if task is None or plan is None:
        raise NotFound("task", task_id)
    return plan, task


def writable_task(tx: Tx, within: Within, task_id: str, journal: PlanJournal, now: datetime) -> tuple[Plan, Task]:
    """
    Do as `the_task`, hold the plan, and note it if the task's lease has run out.

    Raises:
        NotFound: As `the_task`.
        PlanArchived: It is read-only.
    """
    before = tasks.find(tx, within.workspace_id, task_id)
    plan = None if before is None else plans.find(tx, within, before.plan_id, lock=True)
    # Read anew: only since the plan is held does it stand still.
    task = None if plan is None else tasks.find(tx, within.workspace_id, task_id, lock=True)
    if plan is None or task is None:
        raise NotFound("task", task_id)
    return _not_archived(plan), settled(tx, task, journal, now)


def settled(tx: Tx, task: Task, journal: PlanJournal, now: datetime) -> Task:
    """Return *task*, whose plan is held, as it is at *now*, having written it so if its lease has run out (D-61)."""
    settled = task.at(now)
    if settled is not task and task.claim is not None:
        settled = replace(settled, version=task.version + 1)
        tasks.change(tx, settled)
        data: dict[str, object] = {"holder": task.claim.holder(), "attempts": settled.attempts}
        journal.task(tx, settled, "lease_expired", by=SWEEPER, at=now, data=data)
        if settled.status is not task.status and settled.error is not None:
            journal.task(tx, settled, "failed", by=SWEEPER, at=now, data={"error": settled.error})
    return settled


def begin(tx: Tx, plan: Plan, phase: Phase, journal: PlanJournal, *, by: By, now: datetime) -> None:
    """
    Have work begin in *phase* of *plan*, which is held: a draft becomes active by it, and a pending phase in progress.

    Raises:
        PlanNotActive: The plan is paused or completed.
        PhaseClosed: The phase is completed, skipped or on hold.
    """
    if plan.status is PlanStatus.DRAFT:
        activate(tx, plan, journal, by=by, now=now)
    elif plan.status is not PlanStatus.ACTIVE:
        raise PlanNotActive(plan.slug, plan.status)
    if phase.status is PhaseStatus.PENDING:
        started = replace(
            phase, status=PhaseStatus.IN_PROGRESS, started_at=phase.started_at or now, updated_at=now, version=phase.version + 1
        )
        phases.change(tx, started)
        journal.phase(tx, started, "started", by=by, at=now)
    elif phase.status is not PhaseStatus.IN_PROGRESS:
        raise PhaseClosed(phase.name, phase.status)


def activate(tx: Tx, plan: Plan, journal: PlanJournal, *, by: By, now: datetime) -> Plan:
    """Make *plan*, which is held, active."""
    name = "reopened" if plan.status is PlanStatus.COMPLETED else "resumed" if plan.status is PlanStatus.PAUSED else "started"
    active = replace(
        plan,
        status=PlanStatus.ACTIVE,
        started_at=plan.started_at or now,
        completed_at=None,
        updated_at=now,
        version=plan.version + 1,
    )
    plans.change(tx, active)
    journal.plan(tx, active, name, by=by, at=now)
    return active


def must_be_open(plan: Plan) -> None:
    """
    Do nothing if something may be added to *plan*.

    Raises:
        PlanNotActive: It is completed.
    """
    if plan.status is PlanStatus.COMPLETED:
        raise PlanNotActive(plan.slug, plan.status)


def must_not_wait(tx: Tx, task: Task) -> None:
    """
    Do nothing if all that *task* and its phase depend on is done.

    Raises:
        TaskBlocked: It is not.
    """
    depends = needs.of_items(tx, [task.id, task.phase_id])
    waiting = needs.open_tasks(tx, depends.get(task.id, [])) | needs.undone_phases(tx, depends.get(task.phase_id, []))
    if waiting:
        raise TaskBlocked(task.name, sorted(waiting))


def must_reach(caller: Caller, plan: Plan) -> None:
    """
    Do nothing if *caller* may have a plan in that org and project.

    Raises:
        PermissionDenied: It is outside of the key's orgs or projects: a key writes only what it could read.
    """
    if Within.of(caller).sees(plan):
        return
    if caller.orgs is not None and plan.org not in caller.orgs:
        raise not_listed("orgs", plan.org, caller.orgs)
    raise not_listed("projects", plan.project, caller.projects or ())


def _not_archived(plan: Plan) -> Plan:
    if plan.status is PlanStatus.ARCHIVED:
        raise PlanArchived(plan.slug)
    return plan
