"""Queries for phases and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, update

from rookery.agents.models.plans import Checkpoint, Phase, Plan
from rookery.agents.store.tables import CHECKPOINTS, PHASES, TASKS, phases
from rookery.kernel.db import Tx

_c = phases.c
_SHIFT = (
    update(phases)
    .where(_c.plan_id == bindparam("plan"), _c.position >= bindparam("first"), _c.position <= bindparam("last"))
    .values(position=_c.position + bindparam("by"))
)


def list_by_plan(tx: Tx, plan: Plan) -> list[Phase]:
    """Return the phases of the plan, ordered by position."""
    return PHASES.find_all(tx, plan.workspace_id, "position", plan_id=plan.id)


def list_by_plans(tx: Tx, workspace_id: int, plan_ids: Sequence[str]) -> dict[str, list[Phase]]:
    """Return the phases of each plan, ordered by position."""
    phases_by_plan: dict[str, list[Phase]] = {plan_id: [] for plan_id in plan_ids}
    for phase in PHASES.find_all(tx, workspace_id, "plan_id", "position", plan_id=plan_ids):
        phases_by_plan[phase.plan_id].append(phase)
    return phases_by_plan


def find(tx: Tx, plan: Plan, ref: str) -> Phase | None:
    """Return the phase of the plan with the id or position *ref*, or None."""
    if ref.isascii() and ref.isdigit() and len(ref) < 10:
        return PHASES.find(tx, plan.workspace_id, plan_id=plan.id, position=int(ref))
    return PHASES.find(tx, plan.workspace_id, plan_id=plan.id, id=ref)


def shift(tx: Tx, plan_id: str, first: int, last: int, *, offset: int) -> None:
    """Add *offset* to the positions from *first* to *last*."""
    tx.execute(_SHIFT, {"plan": plan_id, "first": first, "last": last, "by": offset})


def remove(tx: Tx, phase: Phase) -> int:
    """Delete *phase* with its tasks and checkpoints. Return the number of deleted tasks."""
    CHECKPOINTS.delete(tx, phase.workspace_id, plan_id=phase.plan_id, phase_id=phase.id)
    deleted_count = TASKS.delete(tx, phase.workspace_id, phase_id=phase.id)
    PHASES.delete(tx, phase.workspace_id, id=phase.id)
    return deleted_count


def list_checkpoints(tx: Tx, workspace_id: int, plan_id: str) -> Mapping[str, tuple[Checkpoint, ...]]:
    """Return the checkpoints of the plan by phase id, oldest first."""
    checkpoints_by_phase: dict[str, tuple[Checkpoint, ...]] = {}
    for checkpoint in CHECKPOINTS.find_all(tx, workspace_id, "phase_id", "created_at", "id", plan_id=plan_id):
        checkpoints_by_phase[checkpoint.phase_id] = (*checkpoints_by_phase.get(checkpoint.phase_id, ()), checkpoint)
    return checkpoints_by_phase
