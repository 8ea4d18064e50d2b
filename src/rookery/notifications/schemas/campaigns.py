"""Request and response models of campaigns and deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import NAME_PATTERN
from rookery.kernel.schema import PageQuery, PatchModel, QueryModel, RequestModel, ResponseModel, Timestamp
from rookery.kernel.unset import UNSET
from rookery.kernel.variables import MAX_VALUE_LENGTH, TemplateValue
from rookery.notifications.channel_secrets import NewSigningSecret
from rookery.notifications.messages import ChannelType, SendOutcome
from rookery.notifications.models import (
    Audience,
    CampaignChange,
    CampaignDraft,
    CampaignPreview,
    CampaignSchedule,
    CampaignStatus,
    CampaignView,
    NotificationDetails,
    NotificationFilter,
    NotificationState,
)
from rookery.notifications.schedules import parse_schedule
from rookery.notifications.schemas.subscribers import ChannelKind, Tag

MAX_NAMED_SUBSCRIBERS = 1_000
MAX_TEST_SUBSCRIBERS = 20
_MAX_TTL_S = 28 * 86_400
_TEMPLATE = "Placeholders such as {{ first_name }} are variables of the campaign or attributes of the subscriber."

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=r"\S", description="The name of the campaign, which is not sent.")]
Title = Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S", description=f"The title of the message. {_TEMPLATE}")]
Body = Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S", description=f"The text of the message. {_TEMPLATE}")]
Url = Annotated[
    str, Field(min_length=1, max_length=2_048, description="The page that the message opens. Values of placeholders are percent-encoded.")
]
SubscriberRef = Annotated[str, Field(min_length=1, max_length=200)]
Channels = Annotated[
    list[ChannelKind], Field(min_length=1, max_length=len(ChannelType), description="The types of channels to use; null: all.")
]
Rate = Annotated[float, Field(strict=False, ge=0.01, le=10_000, description="Messages per second, over all processes; null: no limit.")]
TimeToLive = Annotated[int, Field(ge=10, le=_MAX_TTL_S, description="Seconds after the start; deliveries that are not sent by then fail.")]


def _require_short_values(variables: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
    for name, value in variables.items():
        if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH:
            msg = f"{name}: must have at most {MAX_VALUE_LENGTH:,} characters"
            raise ValueError(msg)
    return variables


Variables = Annotated[
    dict[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], TemplateValue],
    Field(max_length=50, description="Values of placeholders. An attribute of the subscriber with the same name takes precedence."),
    AfterValidator(_require_short_values),
]


class AudienceBody(RequestModel):
    """The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty audience."""

    all: Literal[True] | None = None
    tags: Annotated[list[Tag], Field(max_length=100)] = Field(default_factory=list)
    subscribers: Annotated[list[SubscriberRef], Field(max_length=MAX_NAMED_SUBSCRIBERS, description="Ids or external ids.")] = Field(
        default_factory=list
    )

    def to_model(self) -> Audience:
        return Audience(all=self.all is True, tags=tuple(dict.fromkeys(self.tags)), subscribers=tuple(dict.fromkeys(self.subscribers)))


class ScheduleBody(RequestModel):
    """The time of a campaign."""

    at: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="A local time in `time_zone`, or a time with an offset.",
            examples=["2030-12-01T09:00"],
        ),
    ]
    time_zone: Annotated[
        str | None,
        Field(max_length=64, description="A name of the IANA database. Default: UTC.", examples=["Europe/Vienna"]),
    ] = None

    def to_model(self, now: datetime, *, field: str = "schedule") -> CampaignSchedule:
        """Return the time. Raise ValidationFailed if it is in the past or invalid."""
        return parse_schedule(self.at, self.time_zone, now, field=field)


class CampaignBody(RequestModel):
    """The body to create a campaign, which is a draft at first."""

    name: Name
    title: Title
    body: Body
    url: Url | None = None
    channels: Channels | None = None
    audience: AudienceBody
    variables: Variables = Field(default_factory=dict)
    rate_per_second: Rate | None = None
    ttl_s: TimeToLive = 86_400
    schedule: Annotated[ScheduleBody | None, Field(description="The time for the verb `schedule`. The campaign stays a draft.")] = None

    def to_model(self, now: datetime) -> CampaignDraft:
        """Return the input for the campaign."""
        return CampaignDraft(
            name=self.name,
            title=self.title,
            body=self.body,
            url=self.url,
            channels=_to_names(self.channels),
            audience=self.audience.to_model(),
            variables=self.variables,
            rate_per_second=self.rate_per_second,
            ttl_s=self.ttl_s,
            schedule=None if self.schedule is None else self.schedule.to_model(now),
        )


class CampaignChangeBody(PatchModel):
    """The body to change a campaign. Omitted fields keep their value."""

    name: Name | UNSET = UNSET
    title: Title | UNSET = UNSET
    body: Body | UNSET = UNSET
    url: Url | UNSET | None = UNSET
    channels: Channels | UNSET | None = UNSET
    audience: AudienceBody | UNSET = UNSET
    variables: Variables | UNSET = UNSET
    rate_per_second: Rate | UNSET | None = UNSET
    ttl_s: TimeToLive | UNSET = UNSET
    schedule: Annotated[ScheduleBody | UNSET | None, Field(description="The time for the verb `schedule`; null removes it.")] = UNSET

    def to_change(self, now: datetime) -> CampaignChange:
        """Return the change."""
        return CampaignChange(
            name=self.name,
            title=self.title,
            body=self.body,
            url=self.url,
            channels=UNSET if self.channels is UNSET else _to_names(self.channels),
            audience=UNSET if self.audience is UNSET else self.audience.to_model(),
            variables=self.variables,
            rate_per_second=self.rate_per_second,
            ttl_s=self.ttl_s,
            schedule=self.schedule.to_model(now) if isinstance(self.schedule, ScheduleBody) else self.schedule,
        )


class ScheduleCampaignBody(RequestModel):
    """The body to schedule a campaign. An empty one uses the time in the campaign's `schedule`."""

    at: Annotated[str | None, Field(min_length=1, max_length=64, description="A local time in `time_zone`, or a time with an offset.")] = (
        None
    )
    time_zone: Annotated[str | None, Field(max_length=64, description="A name of the IANA database. Default: UTC.")] = None

    def to_model(self, now: datetime) -> CampaignSchedule | None:
        """Return the time, or None for that of the campaign."""
        if self.at is None and self.time_zone is not None:
            raise ValidationFailed({"at": ["is required with time_zone"]})
        return None if self.at is None else parse_schedule(self.at, self.time_zone, now)


class CampaignTestBody(RequestModel):
    """The body to test a campaign."""

    subscribers: Annotated[list[SubscriberRef], Field(min_length=1, max_length=MAX_TEST_SUBSCRIBERS, description="Ids or external ids.")]
    channels: Channels | None = None


class CampaignPreviewBody(RequestModel):
    """The body to preview a campaign."""

    subscriber: Annotated[SubscriberRef | None, Field(description="The subscriber to render the message for. Default: the first one.")] = (
        None
    )


class DuplicateBody(RequestModel):
    """The body to duplicate a campaign."""

    name: Annotated[Name | None, Field(description="The name of the copy. Default: that of the campaign.")] = None


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


class AudienceResponse(ResponseModel):
    """The receivers of a campaign."""

    all: bool
    tags: list[str]
    subscribers: list[str]


class ScheduleResponse(ResponseModel):
    """The time of a campaign."""

    at: Annotated[str, Field(description="The time as given.")]
    time_zone: str
    at_utc: Timestamp


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


class CampaignResponse(ResponseModel):
    """A campaign with its statistics."""

    id: str
    workspace_id: int
    name: str
    title: str
    body: str
    url: str | None
    channels: list[str] | None
    audience: AudienceResponse
    variables: dict[str, TemplateValue]
    rate_per_second: float | None
    ttl_s: int
    schedule: ScheduleResponse | None
    status: CampaignStatus
    status_reason: Annotated[
        str | None, Field(description="The reason why it was paused, missed or failed, why some deliveries failed, or why they wait.")
    ]
    resume_at: Annotated[
        Timestamp | None,
        Field(description="Paused by a fault that may pass: when one message is tried. If it is accepted, the campaign resumes."),
    ]
    waits: Annotated[
        list[CampaignWaitResponse], Field(description="The hosts for which deliveries wait, those with the most deliveries first.")
    ]
    test_of: Annotated[str | None, Field(description="The campaign that this one tests.")]
    statistics: StatisticsResponse
    created_at: Timestamp
    updated_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None


class RenderedMessageResponse(ResponseModel):
    """The message for one subscriber."""

    title: str
    body: str
    url: str | None


class MissingVariableResponse(ResponseModel):
    """A placeholder without a value for some members of the audience."""

    name: str
    count: int
    external_ids: Annotated[list[str], Field(description="The first five of them.")]


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


class NotificationResponse(ResponseModel):
    """The delivery of a campaign to one channel of one subscriber."""

    id: str
    campaign_id: str
    subscriber_id: str
    external_id: Annotated[str | None, Field(description="Null: the subscriber was deleted.")]
    channel: Annotated[ChannelType, Field(validation_alias="channel_type")]
    channel_id: str
    state: NotificationState
    attempt_count: int
    next_at: Annotated[
        Timestamp | None, Field(validation_alias="next_attempt_at", description="The time of the next attempt, while it is pending.")
    ]
    status: Annotated[int | None, Field(description="The HTTP or SMTP status of the latest attempt; null: no answer.")]
    reason: Annotated[str | None, Field(description="The reason why it is not sent.")]
    provider_id: Annotated[str | None, Field(description="The service's name for the accepted message.")]
    expires_at: Timestamp
    created_at: Timestamp
    ended_at: Timestamp | None


class NotificationAttemptResponse(ResponseModel):
    """One attempt of a delivery."""

    number: int
    started_at: Timestamp
    ended_at: Annotated[Timestamp | None, Field(description="Null: a crash interrupted it.")]
    outcome: Annotated[
        SendOutcome,
        Field(description="retry: certainly not accepted; blocked: the fault is the server's own, and the campaign was paused."),
    ]
    status: int | None
    reason: str | None
    duration_ms: float | None


class NotificationDetailResponse(NotificationResponse):
    """A delivery with its attempts, oldest first."""

    attempts: list[NotificationAttemptResponse]


class OutboxMessageResponse(ResponseModel):
    """A message that a test key would have sent."""

    id: str
    campaign_id: str
    delivery_id: str
    external_id: str
    channel: Annotated[ChannelType, Field(validation_alias="channel_type")]
    address: Annotated[str, Field(validation_alias="masked_address", description="A token or a login in it is shown as ***.")]
    title: str
    body: str
    url: str | None
    created_at: Timestamp


class SigningSecretResponse(ResponseModel):
    """The secret that signs webhook messages, which is returned only once."""

    id: str
    secret: str
    previous_secret_until: Timestamp | None
    created_at: Timestamp


def serialize_campaign(view: CampaignView) -> CampaignResponse:
    """Return a campaign with its statistics."""
    campaign, statistics = view.campaign, view.statistics
    schedule = None
    if campaign.scheduled_at is not None and campaign.schedule_local is not None and campaign.time_zone is not None:
        schedule = ScheduleResponse(at=campaign.schedule_local, time_zone=campaign.time_zone, at_utc=campaign.scheduled_at)
    counts: dict[str, int] = {state.value: statistics.count(state) for state in NotificationState}
    by_channel = {name: dict(sorted(states.items())) for name, states in sorted(statistics.by_channel.items())}
    return CampaignResponse.from_parts(
        campaign,
        workspace_id=campaign.public_workspace_id,
        status_reason=view.status_reason,
        waits=list(view.waits),
        schedule=schedule,
        statistics=StatisticsResponse(total=statistics.total, by_channel=by_channel, **counts),
    )


def serialize_preview(preview: CampaignPreview) -> CampaignPreviewResponse:
    return CampaignPreviewResponse.from_parts(preview)


def serialize_notification(details: NotificationDetails) -> NotificationDetailResponse:
    """Return a delivery with its attempts."""
    return NotificationDetailResponse.from_parts(details.delivery, attempts=details.attempts)


def serialize_secret(secret: NewSigningSecret) -> SigningSecretResponse:
    return SigningSecretResponse(
        id=secret.id, secret=secret.secret.reveal(), previous_secret_until=secret.previous_until, created_at=secret.created_at
    )


def _to_names(channels: list[ChannelType] | None) -> tuple[str, ...] | None:
    return None if channels is None else tuple(dict.fromkeys(channel.value for channel in channels))
