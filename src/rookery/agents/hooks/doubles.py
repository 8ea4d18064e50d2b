"""Doubles of events: one event that several sets of hooks report, because a client also runs the hooks of another one."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256

from rookery.agents.models.agent_hooks import HookCall
from rookery.agents.store import hooks as store
from rookery.kernel.db import Tx

DOUBLE_WINDOW = timedelta(seconds=3)
"""
Time within which an event is the double of an equal one. `rookery hook` ends within a second.

A person or a client may repeat an event later: each compaction, for example, is a new start with the same source.
"""

_KINDS = {"session-start": store.START, "prompt": store.PROMPT, "stop": store.STOP}


def is_double(tx: Tx, workspace_id: int, call: HookCall, *, at: datetime) -> bool:
    """
    Return True if an equal event was saved within `DOUBLE_WINDOW` and the session has not gone on since.

    The double of a start may arrive after the first prompt, but only from the hooks of another client.
    """
    kind, mark = _describe(call)
    recent_events = store.list_events(tx, workspace_id, call.session_id, after=at - DOUBLE_WINDOW)
    following_times = [event.at for event in recent_events if event.kind != kind]
    for event in recent_events:
        if event.kind != kind or (event.mark.partition(_SEPARATOR)[0] if kind == store.START else event.mark) != mark:
            continue
        is_of_other_client = kind == store.START and event.mark != _add_client(mark, call)
        if is_of_other_client or not any(time > event.at for time in following_times):
            return True
    return False


def save_event(tx: Tx, workspace_id: int, call: HookCall, *, at: datetime) -> None:
    """Save an event that is no double, so that its doubles are found. The session must be locked."""
    kind, mark = _describe(call)
    store.save_mark(tx, workspace_id, call.session_id, kind, _add_client(mark, call) if kind == store.START else mark, at=at)


_SEPARATOR = "\n"


def _describe(call: HookCall) -> tuple[str, str]:
    """Return the kind of an event and what its doubles have in common."""
    kind = _KINDS[call.event]
    if kind == store.START:
        return kind, " ".join(call.source.split())
    if kind == store.PROMPT:
        return kind, call.turn or _digest(call.prompt)
    return kind, f"{call.turn or ''}:{_digest(call.message)}"


def _add_client(mark: str, call: HookCall) -> str:
    return f"{mark}{_SEPARATOR}{call.client}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
