"""What claiming and completing tasks means to the session in which it is done (D-61, D-62)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.models.plans import EventActor, Task
from rookery.agents.models.sessions import HandoffOutcome
from rookery.agents.sessions.end import touch_session
from rookery.agents.store import handoffs
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx


@dataclass(frozen=True, slots=True)
class ClaimHooks:
    """Hears of claims, each within its transaction."""

    clock: Clock

    def record_activity(self, tx: Tx, caller: Caller, session_id: str) -> str | None:
        """
        Record that the session is being worked in, and return the id of its plan, if it has one.

        Raises:
            NotFound: There is none that *caller* may know of.
            PermissionDenied: It is another agent's.
            SessionEnded: It is over.
        """
        return touch_session(tx, caller, session_id, at=self.clock()).plan_id

    def on_task_completed(self, tx: Tx, task: Task, actor: EventActor, at: datetime) -> None:
        """Offer the hand-off no more that the session was offered, now that its reader goes on with the work."""
        if actor.session_id is None:
            return
        session = store.find(tx, task.workspace_id, actor.session_id)
        if session is not None and session.offered_id is not None and session.plan_id == task.plan_id:
            handoffs.mark_taken(
                tx, session.workspace_id, session.offered_id, taken_by=session.id, outcome=HandoffOutcome.TASK_COMPLETED, at=at
            )
