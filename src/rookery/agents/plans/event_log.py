"""The event log of a plan: each change adds a row in its transaction, and an event on the bus after the commit (D-64)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.agents.models.plans import EventActor, Phase, Plan, PlanEvent, Task
from rookery.agents.store import plans
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus, PhaseChanged, PlanChanged, TaskChanged

_NO_DATA: Mapping[str, object] = {}
_MAX_SHORT_LENGTH = 200
"""Characters of a text value that an event stores in full."""


@dataclass(frozen=True, slots=True)
class PlanEventRecorder:
    """Writes plan events."""

    bus: EventBus

    def record_plan(self, tx: Tx, plan: Plan, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA) -> None:
        """Record a change of the plan itself. *name* is the action, such as `paused`."""
        event = self._record(tx, plan.id, plan.workspace_id, f"plan.{name}", actor=actor, at=at, data=data)
        announcement = PlanChanged(name=event.type, workspace_id=plan.workspace_id, plan_id=plan.id, seq=event.seq, at=at)
        self.bus.publish_on_commit(tx, announcement)

    def record_phase(
        self, tx: Tx, phase: Phase, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA
    ) -> None:
        """Record a change of a phase."""
        event = self._record(tx, phase.plan_id, phase.workspace_id, f"phase.{name}", actor=actor, at=at, data=data, phase_id=phase.id)
        announcement = PhaseChanged(
            name=event.type, workspace_id=phase.workspace_id, plan_id=phase.plan_id, phase_id=phase.id, seq=event.seq, at=at
        )
        self.bus.publish_on_commit(tx, announcement)

    def record_task(self, tx: Tx, task: Task, name: str, *, actor: EventActor, at: datetime, data: Mapping[str, object] = _NO_DATA) -> None:
        """Record a change of a task."""
        event = self._record(
            tx, task.plan_id, task.workspace_id, f"task.{name}", actor=actor, at=at, data=data, phase_id=task.phase_id, task_id=task.id
        )
        announcement = TaskChanged(
            name=event.type, workspace_id=task.workspace_id, plan_id=task.plan_id, task_id=task.id, seq=event.seq, at=at
        )
        self.bus.publish_on_commit(tx, announcement)

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


def diff_fields(old: object, new: object, *fields: str) -> Mapping[str, object]:
    """Return the event data for the changed *fields*: `{"from": …, "to": …}` for short values, else `true`."""
    changes = dict[str, object]()
    for field in fields:
        before: object = getattr(old, field)
        after: object = getattr(new, field)
        if before != after:
            changes[field] = {"from": before, "to": after} if _is_short(before) and _is_short(after) else True
    return changes


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int) or (isinstance(value, str) and len(value) <= _MAX_SHORT_LENGTH)
