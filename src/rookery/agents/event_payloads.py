"""Webhook payloads of plans, phases, tasks and sessions (D-81): as GET returns them, without nested lists that could be large."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.plans.transitions import get_phase, get_plan, get_task
from rookery.agents.plans.views import load_phase_view, load_plan_view, load_task_view
from rookery.agents.schemas.plan_responses import to_phase_response, to_plan_response, to_task_response
from rookery.agents.schemas.sessions import to_session_response
from rookery.agents.sessions.records import SessionRecords
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.schema import to_json


@dataclass(frozen=True, slots=True)
class AgentEventPayloads:
    """Renders resources as of the end of the transaction that publishes the event. For deleted resources, returns only their ids."""

    records: SessionRecords
    clock: Clock

    def render_plan(self, tx: Tx, viewer: Caller, plan_id: str) -> Mapping[str, object]:
        """Return the plan without its phases."""
        try:
            plan = get_plan(tx, PlanAccessFilter.from_caller(viewer), plan_id)
        except NotFound:
            return {"id": plan_id}
        return to_json(to_plan_response(viewer, load_plan_view(tx, plan, self.clock(), with_phases=False, with_tasks=False)))

    def render_phase(self, tx: Tx, viewer: Caller, plan_id: str, phase_id: str) -> Mapping[str, object]:
        """Return the phase without its tasks, and its checkpoints without their context, which is for the workers only."""
        try:
            phase = get_phase(tx, get_plan(tx, PlanAccessFilter.from_caller(viewer), plan_id), phase_id)
        except NotFound:
            return {"id": phase_id, "plan_id": plan_id}
        phase_response = to_phase_response(load_phase_view(tx, phase, self.clock(), with_tasks=False))
        notes = [
            {name: value for name, value in to_json(checkpoint).items() if name != "context"} for checkpoint in phase_response.checkpoints
        ]
        return {**to_json(phase_response), "checkpoints": notes}

    def render_task(self, tx: Tx, viewer: Caller, plan_id: str, task_id: str) -> Mapping[str, object]:
        """Return the task. Its claim has no token."""
        try:
            _, task = get_task(tx, PlanAccessFilter.from_caller(viewer), task_id)
        except NotFound:
            return {"id": task_id, "plan_id": plan_id}
        return to_json(to_task_response(load_task_view(tx, task, self.clock())))

    def render_session(self, tx: Tx, viewer: Caller, session_id: str) -> Mapping[str, object]:
        """Return the session."""
        view = self.records.find_view(tx, viewer, session_id)
        return {"id": session_id} if view is None else to_json(to_session_response(viewer, view))
