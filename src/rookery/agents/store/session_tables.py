"""The tables of sessions, and the mappers of their rows. `migrations/versions/0012_sessions.py` creates the same tables."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from rookery.agents.models.sessions import AgentSession, Handoff, SessionEvent, TokenReport
from rookery.kernel.db import Mapper, metadata

sessions = Table(
    "agent_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("agent_type", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("plan_id", Text),
    Column("org", Text),
    Column("project", Text),
    Column("status", Text, nullable=False),
    Column("goal", Text),
    Column("context", Text, nullable=False),
    Column("summary", Text),
    Column("resumed_from", Text),
    Column("resumed_by", Text),
    Column("offered_id", Text),
    Column("end_reason", Text),
    Column("started_at", BigInteger, nullable=False),
    Column("last_activity_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("memories_due", BigInteger),
    Column("last_seq", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
)

SESSIONS = Mapper(AgentSession, sessions)
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

session_events = Table(
    "agent_session_events",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("state", Text),
    Column("task_id", Text),
    Column("tokens_in", BigInteger, nullable=False),
    Column("tokens_out", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("tokens_cached", BigInteger, nullable=False, server_default="0"),
    Column("model", Text),
    Column("cost_nanos", BigInteger),
    Column("currency", Text),
    sqlite_with_rowid=False,
)
_TOKENS = Mapper(TokenReport, session_events, columns={"input": "tokens_in", "output": "tokens_out", "cached_input": "tokens_cached"})
SESSION_EVENTS = Mapper(SessionEvent, session_events, nested={"tokens": _TOKENS})
_state = session_events.c.state
Index(
    "ix_agent_session_events_checkpoints",
    session_events.c.session_id,
    session_events.c.seq,
    sqlite_where=_state.is_not(None),
)
Index("ix_agent_session_events_workspace_id", session_events.c.workspace_id)

handoffs = Table(
    "agent_handoffs",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("plan_id", Text),
    Column("agent_id", Text, nullable=False),
    Column("notes", Text, nullable=False),
    Column("written_at", BigInteger, nullable=False),
    Column("taken_by", Text),
    Column("taken_at", BigInteger),
    Column("taken_how", Text),
)
HANDOFFS = Mapper(Handoff, handoffs)
Index("ix_agent_handoffs_plan_id", handoffs.c.plan_id, handoffs.c.written_at)
