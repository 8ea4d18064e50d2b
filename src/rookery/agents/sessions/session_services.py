"""The session services, and the effects of task claims and completions on the session in which they are made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.models.plans import EventActor, Task
from rookery.agents.models.sessions import HandoffOutcome
from rookery.agents.sessions.boot import BootLoader
from rookery.agents.sessions.end import SessionEnder, SessionSweeper, touch_session
from rookery.agents.sessions.records import SessionRecords
from rookery.agents.sessions.start import SessionStarter
from rookery.agents.sessions.stream import SessionStreams
from rookery.agents.store import handoffs
from rookery.agents.store.tables import SESSIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx


@dataclass(frozen=True, slots=True)
class ClaimHooks:
    """Callbacks of `Claims`, called within the transaction of the claim or completion."""

    clock: Clock

    def record_activity(self, tx: Tx, caller: Caller, session_id: str) -> str | None:
        """
        Record activity in the session and return the id of its plan, or None.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            PermissionDenied: The session belongs to another agent.
            SessionEnded: The session has ended.
        """
        return touch_session(tx, caller, session_id, at=self.clock()).plan_id

    def on_task_completed(self, tx: Tx, task: Task, actor: EventActor, at: datetime) -> None:
        """Mark the hand-off offered to the session as taken, since the session has completed a task of the same plan."""
        if actor.session_id is None:
            return
        session = SESSIONS.find(tx, task.workspace_id, id=actor.session_id)
        if session is not None and session.offered_id is not None and session.plan_id == task.plan_id:
            handoffs.mark_taken(
                tx, session.workspace_id, session.offered_id, taken_by=session.id, outcome=HandoffOutcome.TASK_COMPLETED, at=at
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices:
    """The session services that routes, tools and periodic tasks call."""

    starter: SessionStarter
    boot_loader: BootLoader
    records: SessionRecords
    ender: SessionEnder
    streams: SessionStreams
    sweeper: SessionSweeper
