"""Queries for hand-offs, of which a session has at most one, offered until another session takes it, and for other earlier work."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import lru_cache

from sqlalchemy import ColumnElement, bindparam, exists, or_, select, update

from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import AgentSession, Handoff, HandoffOutcome, SessionEventType
from rookery.agents.store.tables import HANDOFFS, SESSIONS, handoffs, session_events, sessions
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Statement, Tx, Value, upsert

_c = handoffs.c
_CHANGEABLE_COLUMNS = ("plan_id", "agent_id", "notes", "written_at", "taken_by", "taken_at", "taken_how")
_SAVE = upsert(handoffs, index_elements=["session_id"], set_=lambda new: {name: new[name] for name in _CHANGEABLE_COLUMNS})
_PENDING = (
    select(handoffs)
    .where(_c.workspace_id + 0 == bindparam("workspace"), _c.plan_id == bindparam("plan"), _c.taken_by.is_(None))
    .order_by(_c.written_at.desc(), _c.session_id.desc())
    .limit(1)
)
_TAKE = (
    update(handoffs)
    .where(_c.workspace_id == bindparam("workspace"), _c.session_id == bindparam("session"), _c.taken_by.is_(None))
    .values(taken_by=bindparam("by"), taken_at=bindparam("at"), taken_how=bindparam("how"))
)


def save(tx: Tx, handoff: Handoff) -> None:
    """Store *handoff*, replacing an earlier one of its session."""
    tx.execute(_SAVE, HANDOFFS.to_row(handoff))


def find_by_sessions(tx: Tx, workspace_id: int, ids: Sequence[str]) -> dict[str, Handoff]:
    """Return the hand-offs of sessions by session id. Sessions without one are left out."""
    if not ids:
        return {}
    return {handoff.session_id: handoff for handoff in HANDOFFS.find_all(tx, workspace_id, session_id=ids)}


def find_pending(tx: Tx, workspace_id: int, plan_id: str) -> Handoff | None:
    """Return the newest hand-off on a plan that no session has taken, or None."""
    return HANDOFFS.fetch_one(tx, _PENDING, {"workspace": workspace_id, "plan": plan_id})


def mark_taken(tx: Tx, workspace_id: int, session_id: str, *, taken_by: str, outcome: HandoffOutcome, at: datetime) -> bool:
    """Mark the hand-off of *session_id* as taken by the session *taken_by*. Return False if it was already taken."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "by": taken_by, "at": to_micros(at), "how": outcome.value}
    return tx.execute(_TAKE, params) > 0


_s, _h, _e = sessions.c, handoffs.c, session_events.c
_HAS_HANDOFF = exists().where(_h.session_id == _s.id, or_(_h.taken_how.is_(None), _h.taken_how != HandoffOutcome.IGNORED_STALE.value))
_HAS_NOTE = exists().where(_e.session_id == _s.id, _e.type == SessionEventType.NOTE.value, _e.message != "")


def find_newest_session(tx: Tx, access_filter: PlanAccessFilter, *, without: Collection[str]) -> AgentSession | None:
    """Return the session that started last of those with a hand-off that is not stale, or with a note. Those *without* do not count."""
    statement = _newest_statement(has_orgs=access_filter.orgs is not None)
    return SESSIONS.fetch_one(tx, statement, _params(access_filter, without))


def list_pending_handoffs(
    tx: Tx, access_filter: PlanAccessFilter, *, written_after: datetime, without: Collection[str], limit: int
) -> list[Handoff]:
    """Return the newest hand-offs that nobody took and that were written later than *written_after*. Sessions *without* do not count."""
    statement = _pending_statement(has_orgs=access_filter.orgs is not None)
    params = {**_params(access_filter, without), "after": to_micros(written_after), "most": limit}
    return HANDOFFS.fetch_all(tx, statement, params)


@lru_cache
def _newest_statement(*, has_orgs: bool) -> Statement:
    # An empty session has no events, so its hand-off decides alone.
    has_content = or_(_HAS_HANDOFF, (_s.last_seq > 0) & _HAS_NOTE)
    return select(sessions).where(*_conditions(has_orgs=has_orgs), has_content).order_by(_s.started_at.desc(), _s.id.desc()).limit(1)


@lru_cache
def _pending_statement(*, has_orgs: bool) -> Statement:
    return (
        select(handoffs)
        .select_from(sessions.join(handoffs, _h.session_id == _s.id))
        .where(*_conditions(has_orgs=has_orgs), _h.taken_by.is_(None), _h.written_at > bindparam("after"))
        .order_by(_h.written_at.desc(), _h.session_id.desc())
        .limit(bindparam("most"))
    )


def _conditions(*, has_orgs: bool) -> list[ColumnElement[bool]]:
    conditions = [
        _s.workspace_id == bindparam("workspace"),
        _s.project.in_(bindparam("projects", expanding=True)),
        _s.id.not_in(bindparam("without", expanding=True)),
    ]
    return [*conditions, _s.org.in_(bindparam("orgs", expanding=True))] if has_orgs else conditions


def _params(access_filter: PlanAccessFilter, without: Collection[str]) -> dict[str, Value | Sequence[Value]]:
    params: dict[str, Value | Sequence[Value]] = {
        "workspace": access_filter.workspace_id,
        "projects": sorted(access_filter.projects or ()),
        "without": sorted(without),
    }
    if access_filter.orgs is not None:
        params["orgs"] = sorted(access_filter.orgs)
    return params
