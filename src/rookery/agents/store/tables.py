"""The tables of plans and sessions, and the mappers of their rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import orjson
from sqlalchemy import BigInteger, Column, Index, Table, Text

from rookery.agents.models.plans import Checkpoint, Criterion, Phase, Plan, PlanEvent, Task, TaskClaim
from rookery.agents.models.sessions import AgentSession, Handoff, SessionEvent, TokenReport
from rookery.kernel.db import Codec, Nested, encode_json, map_table, metadata

_CLAIM_COLUMNS = {
    "token": "claim_token",
    "key_id": "claim_key_id",
    "agent_id": "claim_agent_id",
    "session_id": "claim_session_id",
    "expires_at": "claim_expires_at",
}


def _decode_criteria(json_text: str) -> tuple[Criterion, ...]:
    return tuple(Criterion(text=text, checked=checked) for text, checked in cast("list[tuple[str, bool]]", orjson.loads(json_text)))


def _encode_criteria(criteria: Iterable[Criterion]) -> str:
    return encode_json([(criterion.text, criterion.checked) for criterion in criteria])


_CRITERIA = Codec((str,), _decode_criteria, _encode_criteria)

plans, PLANS = map_table(
    "plans", Plan, fixed=("slug", "template", "template_version", "variables", "created_by", "event_seq", "created_at")
)
Index("ix_plans_slug", plans.c.workspace_id, plans.c.slug, unique=True)
Index("ix_plans_newest", plans.c.workspace_id, plans.c.created_at, plans.c.id)
Index("ix_plans_status", plans.c.workspace_id, plans.c.status, plans.c.id)

phases, PHASES = map_table("plan_phases", Phase, codecs={"acceptance_criteria": _CRITERIA}, fixed=("plan_id", "created_at"))
Index("ix_plan_phases_position", phases.c.plan_id, phases.c.position)

tasks, TASKS = map_table(
    "plan_tasks",
    Task,
    codecs={"acceptance_criteria": _CRITERIA},
    nested={"claim": Nested(TaskClaim, _CLAIM_COLUMNS)},
    fixed=("plan_id", "phase_id", "created_at"),
)
"""The `claim_…` columns and `claimed_at` hold a lease, or are all null."""

# For the next task and the open tasks of a phase: each is the first row of an index range.
Index("ix_plan_tasks_next", tasks.c.phase_id, tasks.c.status, tasks.c.priority, tasks.c.position)
Index("ix_plan_tasks_urgent", tasks.c.plan_id, tasks.c.status, tasks.c.priority)
Index("ix_plan_tasks_counted", tasks.c.plan_id, tasks.c.phase_id, tasks.c.status)
Index("ix_plan_tasks_newest", tasks.c.workspace_id, tasks.c.created_at, tasks.c.id)
# Partial indexes, since few tasks are claimed at a time.
_expires, _session = tasks.c.claim_expires_at, tasks.c.claim_session_id
Index("ix_plan_tasks_leases", _expires, sqlite_where=_expires.is_not(None))
Index("ix_plan_tasks_session", _session, sqlite_where=_session.is_not(None))

dependencies = Table(
    "plan_needs",
    metadata,
    Column("item_id", Text, primary_key=True),
    Column("needs_id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("plan_id", Text, nullable=False),
    sqlite_with_rowid=False,
)
"""Dependencies of tasks on tasks and of phases on phases, within one plan. Ids are unique across both kinds."""

Index("ix_plan_needs_plan_id", dependencies.c.plan_id)
Index("ix_plan_needs_needs_id", dependencies.c.needs_id)

checkpoints, CHECKPOINTS = map_table("phase_checkpoints", Checkpoint)
Index("ix_phase_checkpoints_plan", checkpoints.c.plan_id, checkpoints.c.phase_id, checkpoints.c.id)

plan_events, PLAN_EVENTS = map_table("plan_events", PlanEvent, key=("plan_id", "seq"), sqlite_with_rowid=False)
_in_session = plan_events.c.session_id.is_not(None)
Index("ix_plan_events_session_id", plan_events.c.session_id, sqlite_where=_in_session)


_WRITTEN_ONCE = ("agent_id", "agent_type", "key_id", "plan_id", "org", "project", "resumed_from", "started_at")
_COUNTED = ("last_seq", "size", "tokens_in", "tokens_out")
"""Columns to which each event adds, without reading the session first."""

sessions, SESSIONS = map_table("agent_sessions", AgentSession, fixed=(*_WRITTEN_ONCE, *_COUNTED))

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
