"""
What a session can meet, beyond the errors of agent work (D-62).

    RookeryError
    ├── TooManyStreams          429  too_many_streams
    └── Conflict
        ├── SessionActive       409  session_active
        ├── SessionEnded        409  session_ended
        ├── SessionResumed      409  session_resumed
        ├── SessionFull         409  session_full
        └── NothingOffered      409  no_handoff_offered
"""

from __future__ import annotations

from rookery.agents.models.sessions import AgentSession
from rookery.kernel.clock import format_iso
from rookery.kernel.errors import Conflict, RookeryError


class SessionActive(Conflict):
    """The agent has an open session already, on the same plan, or that is to be resumed."""

    code = "session_active"

    def __init__(self, session: AgentSession) -> None:
        super().__init__(
            f"{session.agent_id!r} has the session {session.id!r}, which is {session.status.value} since its last activity at "
            f"{format_iso(session.last_activity_at)}; go on in it, or say takeover: true to end it and go on from it.",
            session_id=session.id,
            status=session.status.value,
        )


class SessionEnded(Conflict):
    """The session is over: nothing in it can be changed, but another one can go on from it."""

    code = "session_ended"

    def __init__(self, session: AgentSession) -> None:
        why = f" ({session.end_reason})" if session.end_reason else ""
        super().__init__(
            f"The session {session.id!r} is {session.status.value}{why}; POST /sessions/{session.id}/resume goes on from it.",
            session_id=session.id,
            status=session.status.value,
            reason=session.end_reason,
        )


class SessionResumed(Conflict):
    """Another session goes on from this one already."""

    code = "session_resumed"

    def __init__(self, session_id: str, resumed_by: str) -> None:
        super().__init__(f"The session {session_id!r} was resumed already, by {resumed_by!r}; resume that one.", resumed_by=resumed_by)


class SessionFull(Conflict):
    """The session has as many events as it may, or they take as much room as they may."""

    code = "session_full"

    def __init__(self, session_id: str, limit: str) -> None:
        super().__init__(f"The session {session_id!r} has {limit} of events, as many as it may; end it and start another.", limit=limit)


class NoHandoffOffered(Conflict):
    """There is no hand-off that the session could acknowledge."""

    code = "no_handoff_offered"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"The session {session_id!r} was offered no hand-off at its start.")


class TooManyStreams(RookeryError):
    """The workspace follows as many sessions at once as it may."""

    status, code = 429, "too_many_streams"

    def __init__(self, limit: int, *, retry_after_s: int = 10) -> None:
        super().__init__(
            f"This workspace has {limit:,} streams open, as many as it may; close one, or try again in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            limit=limit,
            retry_after=retry_after_s,
        )
