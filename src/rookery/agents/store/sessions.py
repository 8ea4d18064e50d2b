"""Queries for sessions. Most statements are constants that are compiled once. `purge` deletes all data of the domain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import BigInteger, ColumnElement, and_, bindparam, case, delete, literal, or_, select, update
from sqlalchemy.sql.elements import KeyedColumnElement

from rookery.agents.models.sessions import AgentSession, SessionFilter, SessionStatus
from rookery.agents.store.hooks import client_sessions, hook_marks
from rookery.agents.store.repositories import project_names, repositories
from rookery.agents.store.tables import (
    SESSIONS,
    checkpoints,
    dependencies,
    handoffs,
    phases,
    plan_events,
    plans,
    session_events,
    sessions,
    tasks,
)
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, Value
from rookery.kernel.pages import ListPage, PageSlice

MAX_PREDECESSORS = 100
"""Sessions in a chain of resumed ones that are looked up."""

_c = sessions.c
_IS_SESSION = (_c.workspace_id == bindparam("workspace"), _c.id == bindparam("session"))
_BY_IDS = select(sessions).where(_c.id.in_(bindparam("ids", expanding=True)))
_NOW = bindparam("at", type_=BigInteger())
_LATEST_ACTIVITY = case((_c.last_activity_at > _NOW, _c.last_activity_at), else_=_NOW)
"""The later of the stored and the new time, since the clocks of several processes differ."""
_TOUCH = update(sessions).where(*_IS_SESSION, _c.ended_at.is_(None)).values(last_activity_at=_LATEST_ACTIVITY).returning(*_c)
_RESERVE_EVENT = (
    update(sessions)
    .where(*_IS_SESSION, _c.ended_at.is_(None))
    .values(
        last_seq=_c.last_seq + 1,
        size=_c.size + bindparam("bytes"),
        tokens_in=_c.tokens_in + bindparam("more_in"),
        tokens_out=_c.tokens_out + bindparam("more_out"),
        last_activity_at=_LATEST_ACTIVITY,
    )
    .returning(*_c)
)
_IDLE = (
    select(sessions)
    .where(
        _c.ended_at.is_(None),
        or_(
            and_(_c.status == SessionStatus.ACTIVE.value, _c.last_activity_at <= bindparam("active_before")),
            and_(_c.status == SessionStatus.PAUSED.value, _c.last_activity_at <= bindparam("paused_before")),
        ),
    )
    .order_by(_c.last_activity_at, _c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_links = (
    select(_c.resumed_from.label("id"), literal(1).label("distance"))
    .where(*_IS_SESSION, _c.resumed_from.is_not(None))
    .cte("links", recursive=True)
)
_links = _links.union_all(
    select(_c.resumed_from, _links.c.distance + 1)
    .join(_links, _c.id == _links.c.id)
    .where(_c.workspace_id == bindparam("workspace"), _c.resumed_from.is_not(None), _links.c.distance < bindparam("most"))
)
_PREDECESSORS = select(_links.c.id).order_by(_links.c.distance)
_MEMORIES_DUE = (
    select(sessions)
    .where(_c.memories_due.is_not(None), _c.memories_due <= _NOW)
    .order_by(_c.memories_due, _c.id)
    .limit(bindparam("most"))
    .with_for_update(skip_locked=True)
)
_SET_MEMORIES_DUE = update(sessions).where(*_IS_SESSION).values(memories_due=bindparam("due"))


def find_by_ids(tx: Tx, ids: Sequence[str]) -> list[AgentSession]:
    """Return the sessions with the given ids, of any workspace. Unknown ids are left out."""
    return SESSIONS.fetch_all(tx, _BY_IDS, {"ids": ids}) if ids else []


def touch(tx: Tx, workspace_id: int, session_id: str, *, at: datetime) -> AgentSession | None:
    """Record activity in an open session and return it, or None if it is not open."""
    return SESSIONS.fetch_one(tx, _TOUCH, {"workspace": workspace_id, "session": session_id, "at": to_micros(at)})


def reserve_event(
    tx: Tx, workspace_id: int, session_id: str, *, size: int, tokens_in: int, tokens_out: int, at: datetime
) -> AgentSession | None:
    """
    Add an event to the counts of an open session and return the session, or None if it is not open.

    The new `last_seq` is the seq of the event. The row is locked, so concurrent calls wait.
    """
    params: dict[str, Value] = {
        "workspace": workspace_id,
        "session": session_id,
        "bytes": size,
        "more_in": tokens_in,
        "more_out": tokens_out,
        "at": to_micros(at),
    }
    return SESSIONS.fetch_one(tx, _RESERVE_EVENT, params)


def list_page(tx: Tx, workspace_id: int, filters: SessionFilter, *, page: PageSlice) -> ListPage[AgentSession]:
    """Return a page of the sessions that match *filters*, newest first, and the total count."""
    condition = and_(_c.workspace_id == workspace_id, *_filter_conditions(filters))
    return SESSIONS.fetch_page(tx, KeysetList(select(sessions).where(condition), _c.started_at.desc(), _c.id.desc()), page)


def list_predecessor_ids(tx: Tx, workspace_id: int, session_id: str) -> list[str]:
    """Return the ids of the sessions that a session continues, the nearest first, at most `MAX_PREDECESSORS`."""
    rows = tx.fetch_all(_PREDECESSORS, {"workspace": workspace_id, "session": session_id, "most": MAX_PREDECESSORS})
    return [row.text("id") for row in rows]


def list_idle(tx: Tx, *, at: datetime, active_timeout: timedelta, paused_timeout: timedelta, limit: int) -> list[AgentSession]:
    """Return and lock open sessions of all workspaces without activity for the time-out. Rows locked by others are skipped."""
    params: dict[str, Value] = {
        "active_before": to_micros(at - active_timeout),
        "paused_before": to_micros(at - paused_timeout),
        "most": limit,
    }
    return SESSIONS.fetch_all(tx, _IDLE, params)


def list_memories_due(tx: Tx, *, at: datetime, limit: int) -> list[AgentSession]:
    """Return and lock sessions of all workspaces whose memories are due for archiving. Rows locked by others are skipped."""
    return SESSIONS.fetch_all(tx, _MEMORIES_DUE, {"at": to_micros(at), "most": limit})


def set_memories_due(tx: Tx, workspace_id: int, session_id: str, moment: datetime | None) -> None:
    """Set the time to archive the memories of a session. None means that they are archived."""
    due_at = None if moment is None else to_micros(moment)
    tx.execute(_SET_MEMORIES_DUE, {"workspace": workspace_id, "session": session_id, "due": due_at})


def _filter_conditions(filters: SessionFilter) -> list[ColumnElement[bool]]:
    column_values = [
        (_c.status, None if filters.status is None else filters.status.value),
        (_c.agent_id, filters.agent_id),
        (_c.plan_id, filters.plan_id),
        (_c.org, filters.org),
        (_c.project, filters.project),
    ]
    conditions = [column == value for column, value in column_values if value is not None]
    conditions += [_is_in(column, names) for column, names in ((_c.org, filters.orgs), (_c.project, filters.projects)) if names is not None]
    return conditions


def _is_in(column: KeyedColumnElement[str], names: Collection[str]) -> ColumnElement[bool]:
    return column.in_(sorted(names))


_PLAN_IDS = select(plans.c.id).where(plans.c.workspace_id == bindparam("of_workspace"))
_DELETES = [
    *(delete(table).where(table.c.plan_id.in_(_PLAN_IDS)) for table in (plan_events, checkpoints, dependencies, tasks, phases)),
    *(
        delete(table).where(table.c.workspace_id == bindparam("of_workspace"))
        for table in (plans, session_events, handoffs, sessions, client_sessions, hook_marks, repositories, project_names)
    ),
]


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all plans and sessions of the workspace with their contents. Return the number of deleted rows."""
    return sum(tx.execute(statement, {"of_workspace": workspace_id}) for statement in _DELETES)
