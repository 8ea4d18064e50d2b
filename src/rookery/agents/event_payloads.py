"""The data of the webhook events of plans and sessions: as GET returns them, without nested lists that could be large."""

from __future__ import annotations

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.agents.build import AgentServices
from rookery.agents.events import AgentSessionEvent, PhaseChanged, PlanChanged, TaskChanged
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.plans.transitions import get_phase, get_plan, get_task
from rookery.agents.plans.views import load_phase_view, load_plan_view, load_task_view
from rookery.agents.schemas.plan_responses import to_phase_response, to_plan_response, to_task_response
from rookery.agents.schemas.sessions import to_session_response
from rookery.kernel.errors import NotFound
from rookery.kernel.schema import to_json


def _render_plan(context: EventContext, event: PlanChanged) -> EventData:
    try:
        plan = get_plan(context.tx, PlanAccessFilter.from_caller(context.viewer), event.plan_id)
    except NotFound:
        return {"id": event.plan_id}
    view = load_plan_view(context.tx, plan, context.runtime.clock(), with_phases=False, with_tasks=False)
    return to_json(to_plan_response(context.viewer, view))


def _render_phase(context: EventContext, event: PhaseChanged) -> EventData:
    try:
        phase = get_phase(context.tx, get_plan(context.tx, PlanAccessFilter.from_caller(context.viewer), event.plan_id), event.phase_id)
    except NotFound:
        return {"id": event.phase_id, "plan_id": event.plan_id}
    response = to_phase_response(load_phase_view(context.tx, phase, context.runtime.clock(), with_tasks=False))
    # The context of a checkpoint is for the workers of the plan only.
    checkpoints = [{name: value for name, value in to_json(note).items() if name != "context"} for note in response.checkpoints]
    return {**to_json(response), "checkpoints": checkpoints}


def _render_task(context: EventContext, event: TaskChanged) -> EventData:
    try:
        task = get_task(context.tx, PlanAccessFilter.from_caller(context.viewer), event.task_id)[1]
    except NotFound:
        return {"id": event.task_id, "plan_id": event.plan_id}
    return to_json(to_task_response(load_task_view(context.tx, task, context.runtime.clock())))  # its claim has no token


def _render_session(context: EventContext, event: AgentSessionEvent) -> EventData:
    view = context.runtime.use(AgentServices).sessions.records.find_view(context.tx, context.viewer, event.session_id)
    return {"id": event.session_id} if view is None else to_json(to_session_response(context.viewer, view))


RENDERERS: Renderers = {
    PlanChanged: _render_plan,
    PhaseChanged: _render_phase,
    TaskChanged: _render_task,
    AgentSessionEvent: _render_session,
}
