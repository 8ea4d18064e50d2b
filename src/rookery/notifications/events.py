"""The events of notifications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from rookery.kernel.events import EventType, NamedEvent

_SCOPE = "notify:read"
_campaign_type = partial(EventType, data="the campaign", scope=_SCOPE, resource="/api/agent/notify/campaigns/{campaign}")
_subscriber_type = partial(EventType, data="the subscriber", scope=_SCOPE, resource="/api/agent/notify/subscribers/{subscriber}")

CAMPAIGN_TYPES = (
    _campaign_type(name="campaign.scheduled", description="A campaign was scheduled."),
    _campaign_type(name="campaign.started", description="A campaign started, and its audience is fixed."),
    _campaign_type(name="campaign.paused", description="A campaign was paused by a user or by an error; `status_reason` has the reason."),
    _campaign_type(name="campaign.resumed", description="A paused campaign was resumed."),
    _campaign_type(name="campaign.sent", description="Every delivery of a campaign is finished; `statistics` has their states."),
    _campaign_type(name="campaign.cancelled", description="A campaign was cancelled."),
    _campaign_type(name="campaign.failed", description="A campaign could not start, or each of its deliveries failed."),
    _campaign_type(name="campaign.missed", description="The time of a campaign passed while no server was running. It was not sent."),
)
SUBSCRIBER_TYPES = (
    _subscriber_type(name="subscriber.created", description="A subscriber was created."),
    _subscriber_type(name="subscriber.updated", description="The fields of a subscriber were changed."),
    _subscriber_type(name="subscriber.deleted", description="A subscriber was deleted.", data="its id and external_id", resource=None),
)
CHANNEL_TYPES = (
    _subscriber_type(name="subscriber.channel_invalid", description="An address of a subscriber no longer exists."),
    _subscriber_type(name="subscriber.unsubscribed", description="A subscriber unsubscribed one of its channels."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignEvent(NamedEvent):
    """The status of a campaign changed. `name` is the change, such as `campaign.sent`."""

    types = CAMPAIGN_TYPES

    workspace_id: int
    campaign_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberEvent(NamedEvent):
    """A subscriber was created, changed or deleted, also by an import."""

    types = SUBSCRIBER_TYPES

    workspace_id: int
    subscriber_id: str
    external_id: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChanged(NamedEvent):
    """A channel became invalid or was unsubscribed."""

    types = CHANNEL_TYPES

    workspace_id: int
    subscriber_id: str
    at: datetime
