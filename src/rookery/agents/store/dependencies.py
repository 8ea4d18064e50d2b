"""Queries for dependencies between tasks and between phases, unfinished dependencies, and task counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import bindparam, delete, exists, func, insert, or_, select
from sqlalchemy.sql import ColumnElement

from rookery.agents.models.plans import OPEN_TASK_STATUSES, PhaseStatus
from rookery.agents.store.tables import dependencies, phases, tasks
from rookery.kernel.db import Tx

OPEN_TASK_STATUS_VALUES = sorted(OPEN_TASK_STATUSES)
CLOSED_PHASE_STATUS_VALUES = [PhaseStatus.COMPLETED.value, PhaseStatus.SKIPPED.value]

_other_phases = phases.alias("other")


def is_unfinished(phase: ColumnElement[str], status: ColumnElement[str]) -> ColumnElement[bool]:
    """Return the SQL condition that a phase blocks its dependents: it is open, and has an open task or no tasks."""
    any_task = exists().where(tasks.c.phase_id == phase)
    open_task = exists().where(tasks.c.phase_id == phase, tasks.c.status.in_(OPEN_TASK_STATUS_VALUES))
    return status.not_in(CLOSED_PHASE_STATUS_VALUES) & or_(~any_task, open_task)


_ADD = insert(dependencies)
_BY_ITEMS = select(dependencies.c.item_id, dependencies.c.needs_id).where(dependencies.c.item_id.in_(bindparam("items", expanding=True)))
_BY_PLAN = select(dependencies.c.item_id, dependencies.c.needs_id).where(dependencies.c.plan_id == bindparam("plan"))
_OPEN_TASKS = (
    select(tasks.c.id)
    .select_from(tasks.join(phases, phases.c.id == tasks.c.phase_id))
    .where(
        tasks.c.id.in_(bindparam("ids", expanding=True)),
        tasks.c.status.in_(OPEN_TASK_STATUS_VALUES),
        phases.c.status.not_in(CLOSED_PHASE_STATUS_VALUES),
    )
)
_UNFINISHED_PHASES = select(_other_phases.c.id).where(
    _other_phases.c.id.in_(bindparam("ids", expanding=True)), is_unfinished(_other_phases.c.id, _other_phases.c.status)
)
_DELETE_OF_ITEM = delete(dependencies).where(dependencies.c.item_id == bindparam("item"))
_DELETE_WITH_ITEMS = delete(dependencies).where(
    or_(dependencies.c.item_id.in_(bindparam("items", expanding=True)), dependencies.c.needs_id.in_(bindparam("items", expanding=True)))
)
_TASK_COUNTS = (
    select(tasks.c.plan_id, tasks.c.phase_id, tasks.c.status, func.count().label("found"))
    .where(tasks.c.plan_id.in_(bindparam("plans", expanding=True)))
    .group_by(tasks.c.plan_id, tasks.c.phase_id, tasks.c.status)
)
_TASK_COUNTS_OF_PHASE = (
    select(tasks.c.plan_id, tasks.c.phase_id, tasks.c.status, func.count().label("found"))
    .where(tasks.c.phase_id == bindparam("phase"))
    .group_by(tasks.c.plan_id, tasks.c.phase_id, tasks.c.status)
)

_MAX_IDS_PER_STATEMENT = 500
"""Ids in one statement. SQLite allows 32,766 parameters, PostgreSQL 65,535; larger batches are not faster."""


def add(tx: Tx, workspace_id: int, plan_id: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Store new dependencies. The first id of each pair depends on the second."""
    rows = [{"item_id": item, "needs_id": other, "workspace_id": workspace_id, "plan_id": plan_id} for item, other in pairs]
    tx.execute_many(_ADD, rows)


def replace(tx: Tx, workspace_id: int, plan_id: str, item_id: str, depends_on_ids: Collection[str]) -> None:
    """Replace the dependencies of *item_id* by *depends_on_ids*."""
    tx.execute(_DELETE_OF_ITEM, {"item": item_id})
    add(tx, workspace_id, plan_id, [(item_id, other) for other in depends_on_ids])


def remove_items(tx: Tx, items: Sequence[str]) -> None:
    """Delete all dependencies of *items* and on *items*."""
    for start in range(0, len(items), _MAX_IDS_PER_STATEMENT):
        tx.execute(_DELETE_WITH_ITEMS, {"items": items[start : start + _MAX_IDS_PER_STATEMENT]})


def list_by_items(tx: Tx, items: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the dependencies of each of *items*. Items without dependencies are left out."""
    needed_ids: dict[str, list[str]] = defaultdict(list)
    for start in range(0, len(items), _MAX_IDS_PER_STATEMENT):
        for row in tx.fetch_all(_BY_ITEMS, {"items": items[start : start + _MAX_IDS_PER_STATEMENT]}):
            needed_ids[row.text("item_id")].append(row.text("needs_id"))
    return needed_ids


def list_by_plan(tx: Tx, plan_id: str) -> Mapping[str, list[str]]:
    """Return all dependencies of the plan: of tasks on tasks and of phases on phases."""
    needed_ids: dict[str, list[str]] = defaultdict(list)
    for row in tx.fetch_all(_BY_PLAN, {"plan": plan_id}):
        needed_ids[row.text("item_id")].append(row.text("needs_id"))
    return needed_ids


def filter_open_tasks(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Return those of *ids* that are open tasks in open phases."""
    open_ids = set[str]()
    for start in range(0, len(ids), _MAX_IDS_PER_STATEMENT):
        open_ids |= {row.text("id") for row in tx.fetch_all(_OPEN_TASKS, {"ids": ids[start : start + _MAX_IDS_PER_STATEMENT]})}
    return open_ids


def filter_unfinished_phases(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Return those of *ids* that are unfinished phases."""
    return {row.text("id") for row in tx.fetch_all(_UNFINISHED_PHASES, {"ids": ids})} if ids else set()


def count_tasks_by_status(tx: Tx, plan_ids: Sequence[str]) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Return the number of tasks by plan id, phase id and status. Phases without tasks are left out."""
    counts: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in tx.fetch_all(_TASK_COUNTS, {"plans": plan_ids}):
        counts[row.text("plan_id")][row.text("phase_id")][row.text("status")] = row.integer("found")
    return counts


def count_phase_tasks_by_status(tx: Tx, phase_id: str) -> Mapping[str, int]:
    """Return the number of tasks of the phase in each status."""
    return {row.text("status"): row.integer("found") for row in tx.fetch_all(_TASK_COUNTS_OF_PHASE, {"phase": phase_id})}
