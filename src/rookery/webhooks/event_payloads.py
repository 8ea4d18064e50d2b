"""The webhook events of webhooks themselves (D-81)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.access.event_sources import EventData, EventSource
from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.events import WebhookDisabled
from rookery.kernel.imports import import_lazily
from rookery.kernel.runtime import Runtime
from rookery.webhooks.event_types import DISABLED_EVENT, TEST_EVENT
from rookery.webhooks.store import endpoints

if TYPE_CHECKING:
    from rookery.kernel import schema
    from rookery.webhooks import schemas
else:  # commands that only list webhooks do not import pydantic
    schema, schemas = import_lazily("rookery.kernel.schema"), import_lazily("rookery.webhooks.schemas")


def _render_endpoint(runtime: Runtime, tx: Tx, viewer: Caller, event: WebhookDisabled, _: bool) -> EventData:  # noqa: FBT001
    endpoint = endpoints.find(tx, viewer.workspace_id, event.endpoint_id)
    return {"id": event.endpoint_id} if endpoint is None else schema.to_json(schemas.serialize_endpoint(endpoint, runtime.clock()))


EVENTS = (
    EventSource(
        event=WebhookDisabled,
        types=[DISABLED_EVENT, TEST_EVENT],
        select=lambda _: [DISABLED_EVENT.name],
        recipients=lambda event: [(event.workspace_id, event.endpoint_id)],
        render=_render_endpoint,
    ),
)
"""The events of webhooks. Tests are sent by `deliveries`, not by an event on the bus."""
