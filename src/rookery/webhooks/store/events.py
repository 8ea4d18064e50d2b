"""What happened and was wanted: the rows of events, and how they go when they are too old."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson
from sqlalchemy import BindParameter, bindparam, delete, insert, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx
from rookery.webhooks.models import Event
from rookery.webhooks.store.endpoints import maybe_blob
from rookery.webhooks.store.tables import FORGOTTEN, attempts, deliveries, events

_ADD = insert(events)
_ONE = select(events).where(events.c.id == bindparam("of_id"), events.c.workspace_id == bindparam("of_workspace"))
_OLD = select(events.c.id).where(events.c.created_at < bindparam("before")).order_by(events.c.created_at).limit(bindparam("at_most"))
_THESE: BindParameter[str] = bindparam("ids", expanding=True)
_THEIRS = select(deliveries.c.id).where(deliveries.c.event_id.in_(_THESE))
_FORGET = (
    delete(attempts).where(attempts.c.delivery_id.in_(_THEIRS)),
    delete(deliveries).where(deliveries.c.event_id.in_(_THESE)),
    delete(events).where(events.c.id.in_(_THESE)),
)
_ABOUT = select(events.c.id, events.c.body, events.c.full_body).where(
    events.c.workspace_id == bindparam("of_workspace"), events.c.about == bindparam("of_memory")
)
_BLANK = update(events).where(events.c.id == bindparam("of_id")).values(body=bindparam("new_body"), full_body=None, about=FORGOTTEN)
_SILENCE = update(attempts).where(attempts.c.delivery_id.in_(_THEIRS)).values(response=None)
_PURGE = (
    delete(attempts).where(attempts.c.workspace_id == bindparam("of_workspace")),
    delete(deliveries).where(deliveries.c.workspace_id == bindparam("of_workspace")),
    delete(events).where(events.c.workspace_id == bindparam("of_workspace")),
)


def add(tx: Tx, new: Sequence[Event]) -> None:
    """Keep new events."""
    tx.many(
        _ADD,
        [
            {
                "id": event.id,
                "workspace_id": event.workspace_id,
                "type": event.type,
                "created_at": to_micros(event.created_at),
                "body": event.body,
                "full_body": event.full,
                "about": event.about,
            }
            for event in new
        ],
    )


def find(tx: Tx, workspace_id: int, event_id: str) -> Event | None:
    """Return one of a workspace."""
    row = tx.one(_ONE, {"of_id": event_id, "of_workspace": workspace_id})
    return None if row is None else event_of(row)


def event_of(row: Row) -> Event:
    """Return the event of a row with all its columns."""
    return Event(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        type=row.text("type"),
        created_at=from_micros(row.integer("created_at")),
        body=row.blob("body"),
        full=maybe_blob(row, "full_body"),
        about=row.maybe_text("about"),
    )


def forget(tx: Tx, *, before: datetime, at_most: int) -> int:
    """Delete at most so many of the oldest events from before *before*, with their deliveries and attempts; return how many."""
    ids = [row.text("id") for row in tx.all(_OLD, {"before": to_micros(before), "at_most": at_most})]
    if ids:
        for statement in _FORGET:
            tx.run(statement, {"ids": ids})
    return len(ids)


def blank(tx: Tx, workspace_id: int, memory_id: str) -> None:
    """Take the content of a memory out of the events about it, and what was answered to them, which may repeat it."""
    rows = tx.all(_ABOUT, {"of_workspace": workspace_id, "of_memory": memory_id})
    if not rows:
        return
    tx.many(
        _BLANK,
        [
            # Beside a full body, the other one has no content.
            {"of_id": row.text("id"), "new_body": _blanked(row.blob("body")) if maybe_blob(row, "full_body") is None else row.blob("body")}
            for row in rows
        ],
    )
    tx.run(_SILENCE, {"ids": [row.text("id") for row in rows]})


def _blanked(body: bytes) -> bytes:
    told = orjson.loads(body)
    for name in ("content", "metadata"):
        told["data"].pop(name, None)
    return orjson.dumps(told)


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all that a workspace, which is being deleted, was told; return how many rows."""
    return sum(tx.run(statement, {"of_workspace": workspace_id}) for statement in _PURGE)
