"""The events of plans, phases, tasks and sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import Event, EventType, NamedEvent

_PLAN_DESCRIPTIONS = {
    "plan.created": "A plan was created.",
    "plan.updated": "Fields of a plan were changed.",
    "plan.started": "Work on a plan started.",
    "plan.paused": "A plan was paused.",
    "plan.resumed": "A paused plan was resumed.",
    "plan.completed": "A plan was completed.",
    "plan.reopened": "A completed plan was reopened.",
    "plan.archived": "A plan was archived.",
    "plan.restored": "An archived plan was restored.",
}
_PHASE_DESCRIPTIONS = {
    "phase.created": "A phase was added to a plan.",
    "phase.updated": "Fields of a phase were changed.",
    "phase.started": "Work on a phase started.",
    "phase.completed": "A phase was completed.",
    "phase.skipped": "A phase was skipped.",
    "phase.held": "A phase was put on hold.",
    "phase.reset": "A phase was reset to pending.",
    "phase.reopened": "A completed phase was reopened.",
    "phase.checkpoint": "A checkpoint was added to a phase.",
    "phase.deleted": "A phase was deleted.",
}
_TASK_DESCRIPTIONS = {
    "task.created": "A task was added to a phase.",
    "task.updated": "Fields of a task were changed.",
    "task.claimed": "An agent claimed a task.",
    "task.released": "An agent released a task.",
    "task.lease_expired": "The lease of a claimed task expired. The task is pending again, or failed.",
    "task.started": "Work on a task started without a claim.",
    "task.completed": "A task was completed.",
    "task.failed": "A task failed.",
    "task.skipped": "A task was skipped.",
    "task.held": "A task was put on hold.",
    "task.reset": "A task was reset to pending.",
    "task.reopened": "A completed task was reopened and is pending again.",
    "task.deleted": "A task was deleted.",
}
_DELETIONS = frozenset({"phase.deleted", "task.deleted"})
"""The events whose subject GET no longer returns."""


def _plan_types(descriptions: Mapping[str, str], data: str, resource: str) -> tuple[EventType, ...]:
    return tuple(
        EventType(
            name=name,
            description=description,
            data=data,
            scope="plans.read",
            resource=None if name in _DELETIONS else resource,
        )
        for name, description in descriptions.items()
    )


def _session_type(name: str, description: str) -> EventType:
    resource = "/api/agent/sessions/{session_id}"
    return EventType(name=name, description=description, data="the session", scope="sessions.read", resource=resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChanged(NamedEvent):
    """A plan changed. `name` is the change, such as `plan.paused`, and *seq* its number in the events of the plan."""

    types = _plan_types(_PLAN_DESCRIPTIONS, "the plan, without its phases", "/api/agent/plans/{plan}")

    workspace_id: int
    plan_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged(NamedEvent):
    """A phase changed, such as `phase.completed`."""

    types = _plan_types(
        _PHASE_DESCRIPTIONS,
        "the phase, without its tasks and the content of its checkpoints",
        "/api/agent/plans/{plan}/phases/{phase}",
    )

    workspace_id: int
    plan_id: str
    phase_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChanged(NamedEvent):
    """A task changed, such as `task.claimed` or `task.lease_expired`."""

    types = _plan_types(_TASK_DESCRIPTIONS, "the task", "/api/agent/tasks/{task}")

    workspace_id: int
    plan_id: str
    task_id: str
    seq: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionEvent(Event):
    """The base of the events of a session."""

    workspace_id: int
    session_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionStarted(AgentSessionEvent):
    """An agent started a session, new or as a successor."""

    types = (_session_type("session.started", "A session started."),)

    agent_id: str
    org: str | None
    project: str | None
    plan_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionUpdated(AgentSessionEvent):
    """An event was added to a session, or the session was paused or continued. *seq* is the number of its newest event."""

    types = (_session_type("session.noted", "An event was added to a session, or the session was paused or resumed."),)

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionEnded(AgentSessionEvent):
    """A session was ended by its agent or by another session, or timed out."""

    types = (_session_type("session.ended", "A session ended."),)

    agent_id: str
    plan_id: str | None
    status: str
