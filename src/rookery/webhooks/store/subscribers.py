"""Which tenants want to be told of what concerns several of them at once."""

from __future__ import annotations

from sqlalchemy import select

from rookery.kernel.db import Tx
from rookery.webhooks.event_types import is_subscribed
from rookery.webhooks.store.tables import endpoints

_SELECT_PATTERNS = select(endpoints.c.workspace_id, endpoints.c.events).distinct()


def list_subscribed_tenants(tx: Tx, type: str) -> list[int]:
    """Return the tenants, of whatever workspaces, of which an endpoint wants *type*: for us alone, and in order."""
    return sorted(
        {row.integer("workspace_id") for row in tx.fetch_all(_SELECT_PATTERNS) if is_subscribed(row.text("events").split(" "), type)}
    )
