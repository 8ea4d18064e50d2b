"""Every change is a row of the plan's events, written with it, and an event on the bus once it is committed (D-64)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.agents.models.plans import EventActor, Phase, Plan, PlanEvent, Task
from rookery.agents.store import plans
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus, PhaseChanged, PlanChanged, TaskChanged

_NO_DATA: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class PlanEventRecorder:
    """Writes down what was done, by whom."""

    bus: EventBus

    def record_plan(self, tx: Tx, plan: Plan, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA) -> None:
        """Note a change of the plan itself; *name* is what was done, such as `paused`."""
        event = self._record(tx, plan.id, plan.workspace_id, f"plan.{name}", actor=actor, at=at, data=data)
        said = PlanChanged(name=event.type, workspace_id=plan.workspace_id, plan_id=plan.id, seq=event.seq, at=at)
        self.bus.publish_on_commit(tx, said)

    def record_phase(
        self, tx: Tx, phase: Phase, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA
    ) -> None:
        """Note a change of a phase."""
        event = self._record(tx, phase.plan_id, phase.workspace_id, f"phase.{name}", actor=actor, at=at, data=data, phase_id=phase.id)
        said = PhaseChanged(
            name=event.type, workspace_id=phase.workspace_id, plan_id=phase.plan_id, phase_id=phase.id, seq=event.seq, at=at
        )
        self.bus.publish_on_commit(tx, said)

    def record_task(self, tx: Tx, task: Task, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA) -> None:
        """Note a change of a task."""
        event = self._record(
            tx, task.plan_id, task.workspace_id, f"task.{name}", actor=actor, at=at, data=data, phase_id=task.phase_id, task_id=task.id
        )
        said = TaskChanged(name=event.type, workspace_id=task.workspace_id, plan_id=task.plan_id, task_id=task.id, seq=event.seq, at=at)
        self.bus.publish_on_commit(tx, said)

    def _record(
        self,
        tx: Tx,
        plan_id: str,
        workspace_id: int,
        type: str,
        *,
        actor: EventActor,
        at: datetime,
        data: Mapping[str, object],
        phase_id: str | None = None,
        task_id: str | None = None,
    ) -> PlanEvent:
        event = PlanEvent(
            plan_id=plan_id,
            workspace_id=workspace_id,
            seq=plans.reserve_event_seq(tx, plan_id),
            type=type,
            at=at,
            key_id=actor.key_id,
            agent_id=actor.agent_id,
            session_id=actor.session_id,
            phase_id=phase_id,
            task_id=task_id,
            data=data,
        )
        plans.add_event(tx, event)
        return event
