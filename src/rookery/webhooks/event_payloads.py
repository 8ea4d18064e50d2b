"""The data of the webhook events of webhooks themselves."""

from __future__ import annotations

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.kernel import schema
from rookery.webhooks import schemas
from rookery.webhooks.events import WebhookDisabled
from rookery.webhooks.store.tables import ENDPOINTS


def _render_endpoint(context: EventContext, event: WebhookDisabled) -> EventData:
    endpoint = ENDPOINTS.find(context.tx, context.viewer.workspace_id, id=event.endpoint_id)
    if endpoint is None:
        return {"id": event.endpoint_id}
    return schema.to_json(schemas.serialize_endpoint(endpoint, context.runtime.clock()))


RENDERERS: Renderers = {WebhookDisabled: _render_endpoint}
