"""The data of the webhook events of notifications: the resource as its GET returns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.access.event_rendering import EventContext, EventData, Renderers
from rookery.kernel.imports import import_lazily
from rookery.notifications.events import CampaignEvent, ChannelChanged, SubscriberEvent

if TYPE_CHECKING:
    from rookery.kernel import schema
    from rookery.notifications import campaigns as campaign_service
    from rookery.notifications.schemas import campaigns as campaign_schemas
    from rookery.notifications.schemas import subscribers as subscriber_schemas
    from rookery.notifications.store import subscribers, tables
else:  # commands that send no notification import none of these
    schema, campaign_service = import_lazily("rookery.kernel.schema"), import_lazily("rookery.notifications.campaigns")
    campaign_schemas = import_lazily("rookery.notifications.schemas.campaigns")
    subscriber_schemas = import_lazily("rookery.notifications.schemas.subscribers")
    tables, subscribers = import_lazily("rookery.notifications.store.tables"), import_lazily("rookery.notifications.store.subscribers")


def _render_campaign(context: EventContext, event: CampaignEvent) -> EventData:
    campaign = tables.CAMPAIGNS.find(context.tx, context.viewer.workspace_id, id=event.campaign_id)
    if campaign is None:
        return {"id": event.campaign_id}
    return schema.to_json(campaign_schemas.serialize_campaign(campaign_service.view_all(context.tx, [campaign])[0]))


def _render_subscriber(context: EventContext, event: SubscriberEvent | ChannelChanged) -> EventData:
    view = subscribers.find(context.tx, context.viewer.workspace_id, event.subscriber_id)
    if view is None:
        return (
            {"id": event.subscriber_id, "external_id": event.external_id}
            if isinstance(event, SubscriberEvent)
            else {"id": event.subscriber_id}
        )
    return schema.to_json(subscriber_schemas.serialize_subscriber(view))


RENDERERS: Renderers = {
    CampaignEvent: _render_campaign,
    SubscriberEvent: _render_subscriber,
    ChannelChanged: _render_subscriber,
}
