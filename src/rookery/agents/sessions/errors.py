"""
Errors of sessions, in addition to those of `agents.errors`.

    RookeryError
    ├── TooManyStreams          429  too_many_streams
    └── Conflict
        ├── SessionActive       409  session_active
        ├── SessionEnded        409  session_ended
        ├── SessionResumed      409  session_resumed
        ├── SessionFull         409  session_full
        └── NoHandoffOffered    409  no_handoff_offered
"""

from __future__ import annotations

from rookery.agents.models.sessions import AgentSession
from rookery.kernel.clock import format_iso
from rookery.kernel.errors import Conflict, RookeryError


class SessionActive(Conflict):
    """The agent has an open session on the plan, or the session to resume is active. Continue it, or send `takeover`."""

    code = "session_active"
    fields = "`session_id`, `status`"

    def __init__(self, session: AgentSession) -> None:
        super().__init__(
            f"The agent {session.agent_id!r} has the open session {session.id!r} ({session.status.value}, last activity at "
            f"{format_iso(session.last_activity_at)}). Continue in it, or send takeover: true to end it and continue from it.",
            session_id=session.id,
            status=session.status.value,
        )


class SessionEnded(Conflict):
    """The session has ended; another one can continue it."""

    code = "session_ended"
    fields = "`session_id`, `status`, `reason`"

    def __init__(self, session: AgentSession) -> None:
        reason = f" ({session.end_reason})" if session.end_reason else ""
        ended = f"The session {session.id!r} is {session.status.value}{reason} and read-only."
        super().__init__(
            f"{ended} POST /sessions/{session.id}/resume starts a session that continues it.",
            session_id=session.id,
            status=session.status.value,
            reason=session.end_reason,
        )
        self.tool_message = f"{ended} session_resume starts a session that continues it."


class SessionResumed(Conflict):
    """Another session already continues this one."""

    code = "session_resumed"
    fields = "`resumed_by`"

    def __init__(self, session_id: str, resumed_by: str) -> None:
        super().__init__(f"The session {session_id!r} was already resumed by {resumed_by!r}; resume that one.", resumed_by=resumed_by)


class SessionFull(Conflict):
    """The session has 100,000 events or 64 MiB of events; end it and start another."""

    code = "session_full"
    fields = "`limit`"

    def __init__(self, session_id: str, limit: str) -> None:
        super().__init__(f"The session {session_id!r} has reached its limit of {limit} of events; end it and start another.", limit=limit)


class NoHandoffOffered(Conflict):
    """The session acknowledged a hand-off that it was not offered."""

    code = "no_handoff_offered"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"No hand-off was offered to the session {session_id!r} at its start, so it has no hand-off to acknowledge.")


class TooManyStreams(RookeryError):
    """The workspace follows 200 sessions in this process, which is the maximum."""

    status, code = 429, "too_many_streams"
    fields = "`limit`, `retry_after`"

    def __init__(self, limit: int, *, retry_after_s: int = 10) -> None:
        super().__init__(
            f"This workspace has reached its limit of {limit:,} open streams; close one, or try again in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            limit=limit,
            retry_after=retry_after_s,
        )
