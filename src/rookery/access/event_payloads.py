"""The data of the webhook events of keys: the fields of the key's GET without secret and addresses."""

from __future__ import annotations

from typing import cast

from rookery.access import serializers
from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.access.events import KeyChanged
from rookery.access.models import KeyKind
from rookery.access.store import keys
from rookery.kernel.clock import to_micros


def _render_key(context: EventContext, event: KeyChanged) -> EventData:
    if event.last_snapshot is not None:
        return event.last_snapshot
    now = context.runtime.clock()
    kind, workspace_id = cast("KeyKind", event.kind), context.viewer.public_workspace_id
    key = keys.find_key(context.tx, kind, workspace_id, event.key_id, at=to_micros(now))
    return {"id": event.key_id} if key is None else serializers.serialize_key(key, now, with_addresses=False)


RENDERERS: Renderers = {KeyChanged: _render_key}
