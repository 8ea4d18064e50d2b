"""The events of plans, and the notification of requests that wait for a ready task."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rookery.agents.events import PhaseChanged, PlanChanged, TaskChanged
from rookery.agents.models.plans import EventActor, Phase, Plan, PlanEvent, Task
from rookery.agents.store import plans
from rookery.agents.store.tables import PLAN_EVENTS
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus
from rookery.kernel.wakeups import Wakeups

_NO_DATA: Mapping[str, object] = {}
_MAX_SHORT_LENGTH = 200
"""Characters of a text value that an event stores in full."""


@dataclass(frozen=True, slots=True)
class PlanEventRecorder:
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
        PLAN_EVENTS.insert(tx, event)
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


_WAKEUP_TOPIC = "plans"
_IRRELEVANT_EVENTS = frozenset({"task.claimed", "plan.archived", "plan.paused", "phase.checkpoint"})
"""Events that never make a task ready."""


class ReadyTaskNotifier:
    """
    Wakes the waiting requests of a workspace after each change there that may have made a task ready.

    Changes of other processes are seen if the record store has a channel for wake-ups. Waiting requests poll for all others.
    """

    def __init__(self, bus: EventBus, wakeups: Wakeups) -> None:
        self._wakeups = wakeups
        self._waiters: dict[int, set[asyncio.Future[None]]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        bus.subscribe(PlanChanged, self._on_change)
        bus.subscribe(PhaseChanged, self._on_change)
        bus.subscribe(TaskChanged, self._on_change)
        wakeups.subscribe(_WAKEUP_TOPIC, self._on_wakeup)

    def subscribe(self, workspace_id: int) -> asyncio.Future[None]:
        """Return a future that the next relevant change resolves. Subscribe before reading, so that no change is missed in between."""
        self._loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = self._loop.create_future()
        if self._is_closed:
            future.set_result(None)
            return future
        waiters = self._waiters[workspace_id]
        waiters.add(future)

        def forget(done: asyncio.Future[None]) -> None:
            waiters.discard(done)
            if not waiters and self._waiters.get(workspace_id) is waiters:
                del self._waiters[workspace_id]

        future.add_done_callback(forget)
        return future

    def count_waiters(self, workspace_id: int) -> int:
        """Return the number of waiting requests in the workspace."""
        return len(self._waiters.get(workspace_id, ()))

    @property
    def is_closed(self) -> bool:
        """True while the server stops: no request should wait."""
        return self._is_closed

    def close(self) -> None:
        """Wake all waiting requests and let later ones return at once. Safe to call from any thread or signal handler."""
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for waiters in list(self._waiters.values()):
            _resolve_all(waiters)

    def _on_change(self, event: PlanChanged | PhaseChanged | TaskChanged) -> None:
        if event.name in _IRRELEVANT_EVENTS:
            return
        if event.workspace_id in self._waiters:
            _resolve_all(self._waiters[event.workspace_id])
        self._wakeups.send(_WAKEUP_TOPIC, str(event.workspace_id))

    def _on_wakeup(self, key: str | None) -> None:
        for workspace_id, waiters in list(self._waiters.items()):
            if key is None or key == str(workspace_id):
                _resolve_all(waiters)


def _resolve_all(waiters: set[asyncio.Future[None]]) -> None:
    for future in list(waiters):
        if not future.done():
            future.set_result(None)
