"""Queries for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, or_, select, update

from rookery.agents.models.drafts import TaskState
from rookery.agents.models.plans import MAX_TASK_ATTEMPTS, Phase, PhaseStatus, Plan, PlanAccessFilter, PlanStatus, Task, TaskStatus
from rookery.agents.store.dependencies import CLOSED_PHASE_STATUS_VALUES, OPEN_TASK_STATUS_VALUES, is_unfinished
from rookery.agents.store.plans import access_condition
from rookery.agents.store.tables import TASKS, dependencies, phases, plans, tasks
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice, check_position

_c = tasks.c
_IN_PLAN = (plans.c.id, phases.c.position, _c.position, _c.id)
_POSITIONS = select(_c.id, _c.phase_id, _c.name, _c.position).where(_c.plan_id == bindparam("plan"))
_COUNT = select(func.count().label("n")).select_from(tasks).where(_c.plan_id == bindparam("plan"))
_LAST_POSITION = select(func.max(_c.position).label("last")).where(_c.phase_id == bindparam("phase"))
_SHIFT = (
    update(tasks)
    .where(_c.phase_id == bindparam("phase"), _c.position >= bindparam("first"), _c.position <= bindparam("last"))
    .values(position=_c.position + bindparam("by"))
)

_task_dependency, _required_task, _required_task_phase = dependencies.alias("n"), tasks.alias("d"), phases.alias("dp")
_phase_dependency, _required_phase = dependencies.alias("pn"), phases.alias("needed")

HAS_OPEN_DEPENDENCY = (
    exists()
    .where(
        _task_dependency.c.item_id == _c.id,
        _required_task.c.id == _task_dependency.c.needs_id,
        _required_task.c.status.in_(OPEN_TASK_STATUS_VALUES),
        _required_task_phase.c.id == _required_task.c.phase_id,
        _required_task_phase.c.status.not_in(CLOSED_PHASE_STATUS_VALUES),
    )
    .correlate(tasks)
)
"""SQL condition on a row of `tasks`: it depends on an open task in an open phase."""

PHASE_IS_BLOCKED = (
    exists()
    .where(
        _phase_dependency.c.item_id == phases.c.id,
        _required_phase.c.id == _phase_dependency.c.needs_id,
        is_unfinished(_required_phase.c.id, _required_phase.c.status),
    )
    .correlate(phases)
)
"""SQL condition on a row of `phases`: it depends on an unfinished phase."""

WORKABLE_PHASE_STATUSES = [PhaseStatus.PENDING.value, PhaseStatus.IN_PROGRESS.value]


def list_by_plan(tx: Tx, plan: Plan) -> dict[str, list[Task]]:
    """Return the tasks of the plan by phase id, ordered by position."""
    tasks_by_phase: dict[str, list[Task]] = {}
    for task in TASKS.find_all(tx, plan.workspace_id, "phase_id", "position", plan_id=plan.id):
        tasks_by_phase.setdefault(task.phase_id, []).append(task)
    return tasks_by_phase


def list_by_phase(tx: Tx, phase: Phase) -> list[Task]:
    """Return the tasks of a phase, ordered by position."""
    return TASKS.find_all(tx, phase.workspace_id, "position", phase_id=phase.id)


def list_positions(tx: Tx, plan_id: str) -> list[tuple[str, str, str, int]]:
    """Return (id, phase id, name, position) of each task of the plan."""
    rows = tx.fetch_all(_POSITIONS, {"plan": plan_id})
    return [(row.text("id"), row.text("phase_id"), row.text("name"), row.integer("position")) for row in rows]


def count_of_plan(tx: Tx, plan_id: str) -> int:
    """Return the number of tasks of the plan, from an index that has no workspace. The caller has read the plan in its workspace."""
    return fetch_count(tx, _COUNT, {"plan": plan_id})


def get_last_position(tx: Tx, phase_id: str) -> int:
    """Return the position of the last task of the phase, or 0 if it has none."""
    return fetch_count(tx, _LAST_POSITION, {"phase": phase_id})


def shift(tx: Tx, phase_id: str, first: int, last: int, *, offset: int) -> None:
    """Add *offset* to the positions from *first* to *last*."""
    tx.execute(_SHIFT, {"phase": phase_id, "first": first, "last": last, "by": offset})


def list_page(
    tx: Tx,
    access_filter: PlanAccessFilter,
    state: TaskState | None,
    *,
    plan_id: str | None,
    phase_id: str | None,
    session_id: str | None,
    at: datetime,
    page: PageSlice,
) -> ListPage[Task]:
    """
    Return a page of the tasks in *state*, and the total count. Tasks of archived plans are left out unless *plan_id* is given.

    Ready tasks are in the order of claims, other tasks in the order of their plans, phases and positions.
    """
    conditions = [access_condition(access_filter), *_state_conditions(state, to_micros(at))]
    if plan_id is None:
        conditions.append(plans.c.status != PlanStatus.ARCHIVED.value)
    else:
        conditions.append(_c.plan_id == plan_id)
    if state is TaskState.READY and plan_id is None:
        conditions.append(plans.c.status == PlanStatus.ACTIVE.value)
    if phase_id is not None:
        conditions.append(_c.phase_id == phase_id)
    if session_id is not None:
        conditions.append(_c.claim_session_id == session_id)
    joined = tasks.join(phases, phases.c.id == _c.phase_id).join(plans, plans.c.id == _c.plan_id)
    order = (_c.priority, *_IN_PLAN) if state is TaskState.READY else _IN_PLAN
    rows = KeysetList(select(tasks).select_from(joined).where(*conditions), *order)
    task_page = TASKS.fetch_page(tx, rows, _locate(tx, access_filter.workspace_id, replace(page, limit=page.limit + 1), order))
    ids = [*(task.id for task in task_page.items), ""]
    positions = [(*position, ids[number + 1]) for number, position in enumerate(task_page.positions[: page.limit])]
    return ListPage(task_page.items[: page.limit], task_page.total, positions, len(task_page.items) > page.limit)


def _locate(tx: Tx, workspace_id: int, page: PageSlice, order: Sequence[ColumnElement[Any]]) -> PageSlice:
    """
    Return *page* with the place that its position has now.

    Deleting or moving a task changes the positions of others. So a position also has the id of the task after it. The page begins with
    that task, or after the task itself if the other one was deleted.
    """
    if page.after is None:
        return page
    *values, task_id, next_id = check_position(page.after, [*(column.type.python_type for column in order), str])
    columns = [column.label(f"term_{number}") for number, column in enumerate(order)]
    joined = tasks.join(phases, phases.c.id == _c.phase_id).join(plans, plans.c.id == _c.plan_id)
    statement = select(*columns).select_from(joined).where(_c.id == bindparam("task"), _c.workspace_id == bindparam("workspace"))
    for anchor in (str(next_id), str(task_id)):
        row = tx.fetch_one(statement, {"task": anchor, "workspace": workspace_id})
        if row is not None:
            place = cast("tuple[str | int, ...]", tuple(row.values))
            # Positions in a phase are unique: nothing is between the task before and an empty id at the position of the next one.
            return replace(page, after=(*place[:-1], "") if anchor == next_id else place)
    return replace(page, after=(*values, task_id))


def _state_conditions(state: TaskState | None, at: int) -> list[ColumnElement[bool]]:
    """Return the SQL conditions for *state*. An expired lease does not count (`Task.as_of`)."""
    is_lapsed = and_(_c.claim_expires_at.is_not(None), _c.claim_expires_at <= at)
    is_pending = or_(_c.status == TaskStatus.PENDING.value, is_lapsed & (_c.attempts < MAX_TASK_ATTEMPTS))
    is_blocked = or_(HAS_OPEN_DEPENDENCY, PHASE_IS_BLOCKED)
    match state:
        case None:
            return []
        case TaskState.READY:
            return [is_pending, phases.c.status.in_(WORKABLE_PHASE_STATUSES), ~is_blocked]
        case TaskState.BLOCKED:
            return [is_pending, is_blocked]
        case TaskState.PENDING:
            return [is_pending]
        case TaskState.IN_PROGRESS:
            return [_c.status == TaskStatus.IN_PROGRESS.value, ~is_lapsed]
        case TaskState.FAILED:
            return [or_(_c.status == TaskStatus.FAILED.value, is_lapsed & (_c.attempts >= MAX_TASK_ATTEMPTS))]
        case TaskState.COMPLETED | TaskState.SKIPPED | TaskState.ON_HOLD:
            return [_c.status == state.value]
