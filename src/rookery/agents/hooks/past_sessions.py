"""The earlier work in a project, for the text at the start of a session."""

from __future__ import annotations

from dataclasses import replace

from rookery.access.models import Caller
from rookery.agents.models.agent_hooks import HookProject, PastSession
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import AgentSession, Handoff, HandoffOutcome, SessionEventType
from rookery.agents.store import handoffs, past_work, session_events
from rookery.agents.store import sessions as session_store
from rookery.kernel.db import Tx

_MAX_HANDOFFS = 50
"""Hand-offs in parallel that are read. The text counts those that it has no room for."""


def list_past_sessions(tx: Tx, caller: Caller, project: HookProject, *, present: AgentSession | None) -> list[PastSession]:
    """
    Return the newest session of *project* with a hand-off or a note, and the hand-offs that it could not know.

    Those were written after its start and nobody took them. Hand-offs come first, the newest first; a note of the newest session is the
    last.

    Args:
        present: The present session. It and those that it continues are left out.
    """
    access_filter = replace(PlanAccessFilter.from_caller(caller), projects=frozenset({project.project}))
    if project.org is not None:
        access_filter = replace(access_filter, orgs=frozenset({project.org}))
    own_ids = [] if present is None else [present.id, *session_store.list_predecessor_ids(tx, present.workspace_id, present.id)]
    newest = past_work.find_newest_session(tx, access_filter, without=own_ids)
    if newest is None:
        return []
    own_handoff = handoffs.find_by_session(tx, newest.workspace_id, newest.id)
    if own_handoff is not None and own_handoff.taken_how is HandoffOutcome.IGNORED_STALE:
        own_handoff = None
    parallel = past_work.list_pending_handoffs(
        tx, access_filter, written_after=newest.started_at, without=[*own_ids, newest.id], limit=_MAX_HANDOFFS
    )
    note = list[PastSession]()
    if own_handoff is None:
        note = _list_note(tx, newest)
    else:
        parallel = sorted([own_handoff, *parallel], key=lambda handoff: handoff.written_at, reverse=True)
    return [*map(_from_handoff, parallel), *note]


def _from_handoff(handoff: Handoff) -> PastSession:
    return PastSession(agent_id=handoff.agent_id, at=handoff.written_at, handoff=handoff)


def _list_note(tx: Tx, session: AgentSession) -> list[PastSession]:
    note = session_events.find_last_of_type(tx, session.workspace_id, session.id, SessionEventType.NOTE)
    if note is None or not note.message:
        return []
    return [PastSession(agent_id=session.agent_id, at=note.created_at, handoff=None, message=note.message)]
