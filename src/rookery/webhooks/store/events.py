"""Queries of webhook events, and the deletion of old events."""

from __future__ import annotations

from datetime import datetime

import orjson
from sqlalchemy import BindParameter, bindparam, delete, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, purge_tables
from rookery.webhooks.store.tables import DELETED_MEMORY, attempts, deliveries, events

_SELECT_OLD = select(events.c.id).where(events.c.created_at < bindparam("before")).order_by(events.c.created_at).limit(bindparam("at_most"))
_EVENT_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_DELIVERY_IDS = select(deliveries.c.id).where(deliveries.c.event_id.in_(_EVENT_IDS))
_DELETE_OLD = (
    delete(attempts).where(attempts.c.delivery_id.in_(_DELIVERY_IDS)),
    delete(deliveries).where(deliveries.c.event_id.in_(_EVENT_IDS)),
    delete(events).where(events.c.id.in_(_EVENT_IDS)),
)
_SELECT_BY_MEMORY = select(events.c.id, events.c.body, events.c.full_body).where(
    events.c.workspace_id == bindparam("of_workspace"), events.c.about == bindparam("of_memory")
)
_REDACT = update(events).where(events.c.id == bindparam("of_id")).values(body=bindparam("new_body"), full_body=None, about=DELETED_MEMORY)
_DELETE_RESPONSES = update(attempts).where(attempts.c.delivery_id.in_(_DELIVERY_IDS)).values(response=None)


def delete_old(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete at most *limit* events before *before*, oldest first, with their deliveries and attempts; return the number."""
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_OLD, {"before": to_micros(before), "at_most": limit})]
    if ids:
        for statement in _DELETE_OLD:
            tx.execute(statement, {"ids": ids})
    return len(ids)


def redact_memory(tx: Tx, workspace_id: int, memory_id: str) -> None:
    """Remove the content of a memory from its events, and the stored responses to them, which may repeat it."""
    rows = tx.fetch_all(_SELECT_BY_MEMORY, {"of_workspace": workspace_id, "of_memory": memory_id})
    if not rows:
        return
    tx.execute_many(
        _REDACT,
        [
            # If there is a full body, the other body has no content.
            {
                "of_id": row.text("id"),
                "new_body": _redact_body(row.blob("body")) if row.values[row.index["full_body"]] is None else row.blob("body"),
            }
            for row in rows
        ],
    )
    tx.execute(_DELETE_RESPONSES, {"ids": [row.text("id") for row in rows]})


def _redact_body(body: bytes) -> bytes:
    fields = orjson.loads(body)
    for name in ("content", "metadata"):
        fields["data"].pop(name, None)
    return orjson.dumps(fields)


purge = purge_tables(attempts, deliveries, events)
