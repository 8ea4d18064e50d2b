"""The tables of sessions, and the mappers of their rows."""

from __future__ import annotations

from sqlalchemy import Index

from rookery.agents.models.sessions import AgentSession, Handoff, SessionEvent, TokenReport
from rookery.kernel.db import Nested, map_table

sessions, SESSIONS = map_table("agent_sessions", AgentSession)

Index("ix_agent_sessions_newest", sessions.c.workspace_id, sessions.c.started_at, sessions.c.id)
Index("ix_agent_sessions_plan", sessions.c.plan_id)
Index("ix_agent_sessions_project", sessions.c.workspace_id, sessions.c.project, sessions.c.started_at, sessions.c.id)
_is_open = sessions.c.ended_at.is_(None)
# At most one open session for each agent and plan, even if two start at the same moment.
Index(
    "uq_agent_sessions_open",
    sessions.c.workspace_id,
    sessions.c.plan_id,
    sessions.c.agent_id,
    unique=True,
    sqlite_where=_is_open,
)
Index("ix_agent_sessions_idle", sessions.c.last_activity_at, sqlite_where=_is_open)
_due = sessions.c.memories_due
Index("ix_agent_sessions_due", _due, sqlite_where=_due.is_not(None))

session_events, SESSION_EVENTS = map_table(
    "agent_session_events",
    SessionEvent,
    key=("session_id", "seq"),
    nested={"tokens": Nested(TokenReport, {"input": "tokens_in", "output": "tokens_out", "cached_input": "tokens_cached"})},
    sqlite_with_rowid=False,
)
_state = session_events.c.state
Index(
    "ix_agent_session_events_checkpoints",
    session_events.c.session_id,
    session_events.c.seq,
    sqlite_where=_state.is_not(None),
)
Index("ix_agent_session_events_workspace_id", session_events.c.workspace_id)

handoffs, HANDOFFS = map_table("agent_handoffs", Handoff, key=("session_id",))
Index("ix_agent_handoffs_plan_id", handoffs.c.plan_id, handoffs.c.written_at)
