"""The webhook events of plans, phases, tasks and sessions (D-81): as GET returns them, without nested lists that could be large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from rookery.access.event_sources import AnyEventSource, EventData, EventSource, EventType
from rookery.access.models import Caller
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.plans.transitions import get_phase, get_plan, get_task
from rookery.agents.plans.views import load_phase_view, load_plan_view, load_task_view
from rookery.agents.schemas.plan_responses import to_phase_response, to_plan_response, to_task_response
from rookery.agents.schemas.sessions import to_session_response
from rookery.agents.wiring import AgentServices
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.events import AgentSessionEnded, AgentSessionStarted, AgentSessionUpdated, PhaseChanged, PlanChanged, TaskChanged
from rookery.kernel.runtime import Runtime
from rookery.kernel.schema import to_json

SessionEvent = TypeVar("SessionEvent", AgentSessionStarted, AgentSessionUpdated, AgentSessionEnded)

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


def _render_plan(runtime: Runtime, tx: Tx, viewer: Caller, event: PlanChanged, _: bool) -> EventData:  # noqa: FBT001
    try:
        plan = get_plan(tx, PlanAccessFilter.from_caller(viewer), event.plan_id)
    except NotFound:
        return {"id": event.plan_id}
    return to_json(to_plan_response(viewer, load_plan_view(tx, plan, runtime.clock(), with_phases=False, with_tasks=False)))


def _render_phase(runtime: Runtime, tx: Tx, viewer: Caller, event: PhaseChanged, _: bool) -> EventData:  # noqa: FBT001
    try:
        phase = get_phase(tx, get_plan(tx, PlanAccessFilter.from_caller(viewer), event.plan_id), event.phase_id)
    except NotFound:
        return {"id": event.phase_id, "plan_id": event.plan_id}
    response = to_phase_response(load_phase_view(tx, phase, runtime.clock(), with_tasks=False))
    # The context of a checkpoint is for the workers of the plan only.
    checkpoints = [{name: value for name, value in to_json(note).items() if name != "context"} for note in response.checkpoints]
    return {**to_json(response), "checkpoints": checkpoints}


def _render_task(runtime: Runtime, tx: Tx, viewer: Caller, event: TaskChanged, _: bool) -> EventData:  # noqa: FBT001
    try:
        task = get_task(tx, PlanAccessFilter.from_caller(viewer), event.task_id)[1]
    except NotFound:
        return {"id": event.task_id, "plan_id": event.plan_id}
    return to_json(to_task_response(load_task_view(tx, task, runtime.clock())))  # its claim has no token


def _render_session(runtime: Runtime, tx: Tx, viewer: Caller, event: SessionEvent, _: bool) -> EventData:  # noqa: FBT001
    view = runtime.use(AgentServices).sessions.records.find_view(tx, viewer, event.session_id)
    return {"id": event.session_id} if view is None else to_json(to_session_response(viewer, view))


def _plan_types(descriptions: Mapping[str, str], data: str, resource: str) -> list[EventType]:
    return [
        EventType(
            name=name,
            description=description,
            data=data,
            scope="plans.read",
            resource=None if name in _DELETIONS else resource,
        )
        for name, description in descriptions.items()
    ]


def _session_source(event: type[SessionEvent], name: str, description: str) -> EventSource[SessionEvent]:
    resource = "/api/agent/sessions/{session_id}"
    event_type = EventType(name=name, description=description, data="the session", scope="sessions.read", resource=resource)
    return EventSource(event=event, types=[event_type], select=lambda _: [name], render=_render_session)


EVENTS: tuple[AnyEventSource, ...] = (
    EventSource(
        event=PlanChanged,
        types=_plan_types(_PLAN_DESCRIPTIONS, "the plan, without its phases", "/api/agent/plans/{plan}"),
        select=lambda event: [event.name],
        render=_render_plan,
    ),
    EventSource(
        event=PhaseChanged,
        types=_plan_types(
            _PHASE_DESCRIPTIONS,
            "the phase, without its tasks and the content of its checkpoints",
            "/api/agent/plans/{plan}/phases/{phase}",
        ),
        select=lambda event: [event.name],
        render=_render_phase,
    ),
    EventSource(
        event=TaskChanged,
        types=_plan_types(_TASK_DESCRIPTIONS, "the task", "/api/agent/tasks/{task}"),
        select=lambda event: [event.name],
        render=_render_task,
    ),
    _session_source(AgentSessionStarted, "session.started", "A session started."),
    _session_source(AgentSessionUpdated, "session.noted", "An event was added to a session, or the session was paused or resumed."),
    _session_source(AgentSessionEnded, "session.ended", "A session ended."),
)
"""The events of plans and sessions."""
