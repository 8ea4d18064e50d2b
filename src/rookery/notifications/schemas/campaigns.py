"""Request and response models of campaigns and deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.projections import Body, Patch, Projection
from rookery.kernel.schema import PageQuery, QueryModel, RequestModel, ResponseModel, Timestamp
from rookery.kernel.unset import UNSET
from rookery.notifications.channel_secrets import NewSigningSecret
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    Audience,
    Campaign,
    CampaignChange,
    CampaignName,
    CampaignSchedule,
    CampaignSettings,
    CampaignStatus,
    CampaignTest,
    CampaignView,
    MissingVariable,
    NotificationAttempt,
    NotificationDelivery,
    NotificationDetails,
    NotificationFilter,
    NotificationState,
    OutboxMessage,
    RenderedMessage,
    ScheduledTime,
    SubscriberRef,
    TimeZoneName,
)
from rookery.notifications.schedules import parse_schedule


class AudienceBody(Body[Audience]):
    """The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty audience."""

    all: Literal[True] | None = None

    def to_model(self, **others: object) -> Audience:
        return super().to_model(all=self.all is True, **others)


class ScheduleBody(RequestModel):
    """The time of a campaign."""

    at: ScheduledTime
    time_zone: TimeZoneName | None = None

    def to_model(self, now: datetime) -> CampaignSchedule:
        """Return the time. Raise ValidationFailed if it is in the past or invalid."""
        return parse_schedule(self.at, self.time_zone, now, field="schedule")


class CampaignBody(Body[CampaignSettings]):
    """The body to create a campaign, which is a draft at first."""

    audience: AudienceBody
    schedule: Annotated[ScheduleBody | None, Field(description="The time for the verb `schedule`. The campaign stays a draft.")] = None

    def to_settings(self, now: datetime) -> CampaignSettings:
        """Return the input for the campaign. Raises as `ScheduleBody.to_model`."""
        return self.to_model(schedule=None if self.schedule is None else self.schedule.to_model(now))


class CampaignChangeBody(Patch[CampaignSettings]):
    """The body to change a campaign. Omitted fields keep their value."""

    audience: AudienceBody | UNSET = UNSET
    schedule: Annotated[ScheduleBody | UNSET | None, Field(description="The time for the verb `schedule`; null removes it.")] = UNSET

    def to_change(self, now: datetime) -> CampaignChange:
        """Return the change. Raises as `ScheduleBody.to_model`."""
        return self.model_copy(update={"schedule": self.schedule.to_model(now)}) if isinstance(self.schedule, ScheduleBody) else self


class ScheduleCampaignBody(RequestModel):
    """The body to schedule a campaign. An empty one uses the time in the campaign's `schedule`."""

    at: ScheduledTime | None = None
    time_zone: TimeZoneName | None = None

    def to_model(self, now: datetime) -> CampaignSchedule | None:
        """Return the time, or None for that of the campaign."""
        if self.at is None and self.time_zone is not None:
            raise ValidationFailed({"at": ["is required with time_zone"]})
        return None if self.at is None else parse_schedule(self.at, self.time_zone, now)


class CampaignTestBody(Body[CampaignTest]):
    """The body to test a campaign."""


class CampaignPreviewBody(RequestModel):
    """The body to preview a campaign."""

    subscriber: Annotated[SubscriberRef | None, Field(description="The subscriber to render the message for. Default: the first one.")] = (
        None
    )


class DuplicateBody(RequestModel):
    """The body to duplicate a campaign."""

    name: Annotated[CampaignName | None, Field(description="The name of the copy. Default: that of the campaign.")] = None


class RotateSigningSecretBody(RequestModel):
    """The body to rotate the signing secret."""

    grace_period_hours: Annotated[int, Field(ge=0, le=720, description="Hours during which the old secret signs too.")] = 24


class CampaignsQuery(PageQuery):
    """Filters of the list of campaigns."""

    status: Annotated[CampaignStatus | None, Field(description="Only campaigns with this status.")] = None
    q: Annotated[str | None, Field(min_length=1, max_length=200, description="A part of the name.")] = None
    test_of: Annotated[str | None, Field(max_length=100, description="The tests of this campaign, which other lists leave out.")] = None


class NotificationsQuery(PageQuery):
    """Filters of the list of deliveries."""

    status: Annotated[NotificationState | None, Field(description="The state of the delivery.")] = None
    channel: Annotated[ChannelType | None, Field(description="Only deliveries through this channel.")] = None
    subscriber: Annotated[str | None, Field(max_length=200, description="The id or external id of a subscriber.")] = None

    def to_filter(self) -> NotificationFilter:
        return NotificationFilter(state=self.status, channel=self.channel, subscriber=self.subscriber)


class SubscriberExportQuery(QueryModel):
    """The query of an export of subscribers."""

    format: Annotated[Literal["jsonl", "csv"], Field(description="jsonl: all fields; csv: active channels, for spreadsheets.")] = "jsonl"


class AudienceResponse(Projection[Audience]):
    """The receivers of a campaign."""


class ScheduleResponse(Projection[CampaignSchedule]):
    """The time of a campaign."""


class StatisticsResponse(ResponseModel):
    """The number of deliveries by state."""

    total: int
    pending: int
    sending: int
    sent: int
    failed: int
    unknown: Annotated[int, Field(description="May have been accepted. They are never sent again.")]
    skipped: int
    by_channel: dict[str, dict[str, int]]


class CampaignWaitResponse(ResponseModel):
    """A host that takes no messages for now. At `until` one message is tried, and the others follow when it is accepted."""

    channel: Annotated[ChannelType, Field(validation_alias="channel_type")]
    host: Annotated[str, Field(description="Empty: the mail server.")]
    until: Timestamp
    reason: Annotated[str | None, Field(description="The latest answer.")]
    deliveries: Annotated[int, Field(validation_alias="delivery_count", description="Deliveries of this campaign that wait.")]


class CampaignResponse(Projection[Campaign]):
    """A campaign with its statistics."""

    hidden = frozenset({"owner", "lease_until", "final_counts"})

    channels: list[str] | None
    audience: AudienceResponse
    schedule: ScheduleResponse | None
    waits: Annotated[
        list[CampaignWaitResponse], Field(description="The hosts for which deliveries wait, those with the most deliveries first.")
    ]
    statistics: StatisticsResponse


class RenderedMessageResponse(Projection[RenderedMessage]):
    """The message for one subscriber."""


class MissingVariableResponse(Projection[MissingVariable]):
    """A placeholder without a value for some members of the audience."""


class CampaignPreviewResponse(ResponseModel):
    """The audience of a campaign at this moment, and the message for one of its members."""

    subscribers: Annotated[int, Field(validation_alias="subscriber_count", description="Members with a channel of the campaign's types.")]
    deliveries: Annotated[int, Field(validation_alias="delivery_count")]
    skipped: Annotated[int, Field(validation_alias="skipped_count", description="Deliveries whose channel is not active.")]
    by_channel: dict[str, int]
    unknown_subscribers: Annotated[list[str], Field(description="Entries of `audience.subscribers` that name no subscriber.")]
    missing_variables: Annotated[list[MissingVariableResponse], Field(description="These prevent a send.")]
    subscriber: Annotated[
        str | None, Field(validation_alias="sample_external_id", description="The external id of the subscriber of `message`.")
    ]
    message: RenderedMessageResponse | None
    warnings: Annotated[list[str], Field(description="The channels that cut `message`, because it is too long for them.")]


class NotificationResponse(Projection[NotificationDelivery]):
    """The delivery of a campaign to one channel of one subscriber."""

    hidden = frozenset({"workspace_id", "channel_type", "used_attempts"})

    channel: Annotated[ChannelType, Field(validation_alias="channel_type")]
    next_at: Annotated[
        Timestamp | None, Field(validation_alias="next_attempt_at", description="The time of the next attempt, while it is pending.")
    ]


class NotificationAttemptResponse(Projection[NotificationAttempt]):
    """One attempt of a delivery."""

    hidden = frozenset({"workspace_id", "delivery_id"})


class NotificationDetailResponse(NotificationResponse):
    """A delivery with its attempts, oldest first."""

    attempts: list[NotificationAttemptResponse]


class OutboxMessageResponse(Projection[OutboxMessage]):
    """A message that a test key would have sent."""

    hidden = frozenset({"workspace_id", "channel_type"})

    channel: Annotated[ChannelType, Field(validation_alias="channel_type")]
    address: Annotated[str, Field(validation_alias="masked_address", description="A token or a login in it is shown as ***.")]


class SigningSecretResponse(ResponseModel):
    """The secret that signs webhook messages, which is returned only once."""

    id: str
    secret: str
    previous_secret_until: Timestamp | None
    created_at: Timestamp


def serialize_campaign(view: CampaignView) -> CampaignResponse:
    """Return a campaign with its statistics."""
    statistics = view.statistics
    counts: dict[str, int] = {state.value: statistics.count(state) for state in NotificationState}
    by_channel = {name: dict(sorted(states.items())) for name, states in sorted(statistics.by_channel.items())}
    return CampaignResponse.from_parts(
        view, view.campaign, statistics=StatisticsResponse(total=statistics.total, by_channel=by_channel, **counts)
    )


def serialize_notification(details: NotificationDetails) -> NotificationDetailResponse:
    """Return a delivery with its attempts."""
    return NotificationDetailResponse.from_parts(details.delivery, attempts=details.attempts)


def serialize_secret(secret: NewSigningSecret) -> SigningSecretResponse:
    return SigningSecretResponse(
        id=secret.id, secret=secret.secret.reveal(), previous_secret_until=secret.previous_until, created_at=secret.created_at
    )
