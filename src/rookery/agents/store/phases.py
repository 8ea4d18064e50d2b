"""Queries for phases and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, func, select, update

from rookery.agents.models.plans import Checkpoint, Phase
from rookery.agents.store.tables import CHECKPOINTS, PHASES, checkpoints, phases, tasks
from rookery.kernel.db import Tx, fetch_count

_c = phases.c
_BY_PLANS = select(phases).where(_c.plan_id.in_(bindparam("plans", expanding=True))).order_by(_c.plan_id, _c.position)
_BY_PLAN = select(phases).where(_c.plan_id == bindparam("plan")).order_by(_c.position)
_BY_IDS = select(phases).where(_c.id.in_(bindparam("ids", expanding=True)))
_BY_ID = select(phases).where(_c.plan_id == bindparam("plan"), _c.id == bindparam("phase"))
_BY_POSITION = select(phases).where(_c.plan_id == bindparam("plan"), _c.position == bindparam("place"))
_COUNT = select(func.count().label("found")).select_from(phases).where(_c.plan_id == bindparam("plan"))
_SHIFT = (
    update(phases)
    .where(_c.plan_id == bindparam("plan"), _c.position >= bindparam("first"), _c.position <= bindparam("last"))
    .values(position=_c.position + bindparam("by"))
)
_FIXED_COLUMNS = ("id", "workspace_id", "plan_id", "created_at")
_CHANGE = update(phases).where(_c.id == bindparam("phase"))
_DELETE = delete(phases).where(_c.id == bindparam("phase"))
_DELETE_CHECKPOINTS = delete(checkpoints).where(checkpoints.c.plan_id == bindparam("plan"), checkpoints.c.phase_id == bindparam("phase"))
_DELETE_TASKS = delete(tasks).where(tasks.c.phase_id == bindparam("phase"))

_CHECKPOINTS = (
    select(checkpoints)
    .where(checkpoints.c.plan_id == bindparam("plan"))
    .order_by(checkpoints.c.phase_id, checkpoints.c.created_at, checkpoints.c.id)
)
_CHECKPOINT_COUNT = (
    select(func.count().label("found"))
    .select_from(checkpoints)
    .where(checkpoints.c.plan_id == bindparam("plan"), checkpoints.c.phase_id == bindparam("phase"))
)


def add(tx: Tx, new_phases: Sequence[Phase]) -> None:
    """Store *new_phases*. Their positions must be free."""
    PHASES.add(tx, *new_phases)


def list_by_plan(tx: Tx, plan_id: str) -> list[Phase]:
    """Return the phases of the plan, ordered by position."""
    return PHASES.fetch_all(tx, _BY_PLAN, {"plan": plan_id})


def list_by_plans(tx: Tx, plan_ids: Sequence[str]) -> dict[str, list[Phase]]:
    """Return the phases of each plan, ordered by position."""
    phases_by_plan: dict[str, list[Phase]] = {plan_id: [] for plan_id in plan_ids}
    for phase in PHASES.fetch_all(tx, _BY_PLANS, {"plans": plan_ids}):
        phases_by_plan[phase.plan_id].append(phase)
    return phases_by_plan


def find_by_ids(tx: Tx, ids: Sequence[str]) -> dict[str, Phase]:
    return {phase.id: phase for phase in PHASES.fetch_all(tx, _BY_IDS, {"ids": ids})}


def find(tx: Tx, plan_id: str, ref: str) -> Phase | None:
    """Return the phase of the plan with the id or position *ref*, or None."""
    if ref.isascii() and ref.isdigit() and len(ref) < 10:
        return PHASES.fetch_one(tx, _BY_POSITION, {"plan": plan_id, "place": int(ref)})
    return PHASES.fetch_one(tx, _BY_ID, {"plan": plan_id, "phase": ref})


def count(tx: Tx, plan_id: str) -> int:
    """Return the number of phases of the plan."""
    return fetch_count(tx, _COUNT, {"plan": plan_id})


def shift(tx: Tx, plan_id: str, first: int, last: int, *, offset: int) -> None:
    """Add *offset* to the positions from *first* to *last*."""
    tx.execute(_SHIFT, {"plan": plan_id, "first": first, "last": last, "by": offset})


def change(tx: Tx, phase: Phase) -> None:
    """Store the changeable columns of *phase*."""
    tx.execute(_CHANGE, {"phase": phase.id, **PHASES.to_changes(phase, _FIXED_COLUMNS)})


def remove(tx: Tx, phase: Phase) -> int:
    """Delete *phase* with its tasks and checkpoints. Return the number of deleted tasks."""
    tx.execute(_DELETE_CHECKPOINTS, {"plan": phase.plan_id, "phase": phase.id})
    deleted_count = tx.execute(_DELETE_TASKS, {"phase": phase.id})
    tx.execute(_DELETE, {"phase": phase.id})
    return deleted_count


def add_checkpoint(tx: Tx, checkpoint: Checkpoint) -> None:
    CHECKPOINTS.add(tx, checkpoint)


def count_checkpoints(tx: Tx, phase: Phase) -> int:
    """Return the number of checkpoints of *phase*."""
    return fetch_count(tx, _CHECKPOINT_COUNT, {"plan": phase.plan_id, "phase": phase.id})


def list_checkpoints(tx: Tx, plan_id: str) -> Mapping[str, tuple[Checkpoint, ...]]:
    """Return the checkpoints of the plan by phase id, oldest first."""
    checkpoints_by_phase: dict[str, tuple[Checkpoint, ...]] = {}
    for checkpoint in CHECKPOINTS.fetch_all(tx, _CHECKPOINTS, {"plan": plan_id}):
        checkpoints_by_phase[checkpoint.phase_id] = (*checkpoints_by_phase.get(checkpoint.phase_id, ()), checkpoint)
    return checkpoints_by_phase
