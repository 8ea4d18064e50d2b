"""
The allowed status transitions of plans, phases and tasks (D-60). Pure.

Setting the current status again is not a transition and changes nothing. The only way out of an archived plan is to restore it,
which brings its previous status back.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from rookery.agents.errors import WrongTransition
from rookery.agents.models.plans import PhaseStatus, PlanStatus, TaskStatus

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
    """An operation on the lease of a task (D-61)."""

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
