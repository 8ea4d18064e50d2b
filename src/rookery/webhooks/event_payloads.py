"""The data of the webhook events of webhooks themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.kernel.imports import import_lazily
from rookery.webhooks.events import WebhookDisabled
from rookery.webhooks.store import endpoints

if TYPE_CHECKING:
    from rookery.kernel import schema
    from rookery.webhooks import schemas
else:  # commands that only list webhooks do not import pydantic
    schema, schemas = import_lazily("rookery.kernel.schema"), import_lazily("rookery.webhooks.schemas")


def _render_endpoint(context: EventContext, event: WebhookDisabled) -> EventData:
    endpoint = endpoints.find(context.tx, context.viewer.workspace_id, event.endpoint_id)
    if endpoint is None:
        return {"id": event.endpoint_id}
    return schema.to_json(schemas.serialize_endpoint(endpoint, context.runtime.clock()))


RENDERERS: Renderers = {WebhookDisabled: _render_endpoint}
