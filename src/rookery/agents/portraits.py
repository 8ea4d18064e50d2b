"""How agent work looks to the outside (D-81): as its GET gives it, but for what would make each event as long as its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.plans import Within
from rookery.agents.plans.holding import the_phase, the_plan, the_task
from rookery.agents.plans.reading import phase_view, plan_view, task_view
from rookery.agents.schemas.plan_answers import phase_answer, plan_answer, task_answer
from rookery.agents.schemas.sessions import session_answer
from rookery.agents.sessions.working import Working
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.wire import plain


@dataclass(frozen=True, slots=True)
class AgentPortraits:
    """Each as it is at the end of the transaction that announces it; of what is gone, its ids."""

    working: Working
    clock: Clock

    def plan(self, tx: Tx, viewer: Caller, plan_id: str) -> Mapping[str, object]:
        """Return a plan without its phases."""
        try:
            plan = the_plan(tx, Within.of(viewer), plan_id)
        except NotFound:
            return {"id": plan_id}
        return plain(plan_answer(viewer, plan_view(tx, plan, self.clock(), with_phases=False, with_tasks=False)))

    def phase(self, tx: Tx, viewer: Caller, plan_id: str, phase_id: str) -> Mapping[str, object]:
        """Return a phase without its tasks, and its checkpoints without their context: that is for whoever works on it."""
        try:
            phase = the_phase(tx, the_plan(tx, Within.of(viewer), plan_id), phase_id)
        except NotFound:
            return {"id": phase_id, "plan_id": plan_id}
        answer = phase_answer(phase_view(tx, phase, self.clock(), with_tasks=False))
        notes = [{name: value for name, value in plain(each).items() if name != "context"} for each in answer.checkpoints]
        return {**plain(answer), "checkpoints": notes}

    def task(self, tx: Tx, viewer: Caller, plan_id: str, task_id: str) -> Mapping[str, object]:
        """Return a task; its claim without the token."""
        try:
            _, task = the_task(tx, Within.of(viewer), task_id)
        except NotFound:
            return {"id": task_id, "plan_id": plan_id}
        return plain(task_answer(task_view(tx, task, self.clock())))

    def session(self, tx: Tx, viewer: Caller, session_id: str) -> Mapping[str, object]:
        """Return a session."""
        shown = self.working.seen_in(tx, viewer, session_id)
        return {"id": session_id} if shown is None else plain(session_answer(viewer, shown))
