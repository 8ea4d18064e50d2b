"""The webhook events of keys: the fields of the key's GET without secret and addresses (D-12, D-80, D-81)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rookery.access import serializers
from rookery.access.event_sources import EventData, EventSource, EventType, Recipient
from rookery.access.models import Caller, KeyKind
from rookery.access.store import keys
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx
from rookery.kernel.events import KeyChanged
from rookery.kernel.runtime import Runtime


def _render_key(runtime: Runtime, tx: Tx, viewer: Caller, event: KeyChanged, _: bool) -> EventData:  # noqa: FBT001
    if event.last_snapshot is not None:
        return event.last_snapshot
    now = runtime.clock()
    key = keys.find_key(tx, cast("KeyKind", event.kind), viewer.public_workspace_id, event.key_id, at=to_micros(now))
    return {"id": event.key_id} if key is None else serializers.serialize_key(key, now, with_addresses=False)


def _list_tenants(event: KeyChanged) -> Sequence[Recipient]:
    # A test key is visible in its workspace and in the sandbox; a live key is not visible in the sandbox (D-25).
    return [(tenant, "") for tenant in dict.fromkeys((event.workspace_id, event.tenant_id))]


_DATA = "the key, without its secret and addresses; an agent key as in /api/v1/agent-keys"
_DESCRIPTIONS = {
    "key.created": "An API key or agent key was created.",
    "key.rotated": "A key was rotated. It ends with its grace period; `key.created` reports its successor.",
    "key.revoked": "A key was revoked or deleted.",
    "key.expired": "A key expired.",
}

EVENTS = (
    EventSource(
        event=KeyChanged,
        types=[
            EventType(name=name, description=description, data=_DATA, scope="keys:read", resource="/api/v1/api-keys/{key_id}")
            for name, description in _DESCRIPTIONS.items()
        ],
        select=lambda event: [event.name],
        recipients=_list_tenants,
        render=_render_key,
    ),
)
"""The events of keys."""
