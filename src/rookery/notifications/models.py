"""The types of notifications: subscribers, campaigns, deliveries and attempts. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self, TypeAlias

import orjson
from pydantic import AfterValidator, Field

from rookery.kernel.clock import format_iso, to_micros
from rookery.kernel.placeholders import NAME_PATTERN
from rookery.kernel.preconditions import compute_version
from rookery.kernel.projections import Patch
from rookery.kernel.variables import MAX_VALUE_LENGTH, TemplateValue
from rookery.notifications.addresses import mask_address
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome


class ChannelStatus(StrEnum):
    """The status of a subscriber's channel. Only an active one receives campaigns."""

    ACTIVE = "active"
    INVALID = "invalid"
    """The service reported that the address no longer exists."""
    UNSUBSCRIBED = "unsubscribed"


class CampaignStatus(StrEnum):
    """The status of a campaign. `campaign_states` has the allowed changes."""

    DRAFT = "draft"
    SCHEDULED = "scheduled"
    SENDING = "sending"
    PAUSED = "paused"
    SENT = "sent"
    """Every delivery is finished. The statistics have their states."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    """It could not start at its time, or each of its deliveries failed."""
    MISSED = "missed"
    """Its time passed while no server was running. It is sent only on request."""


class NotificationState(StrEnum):
    """The state of a delivery."""

    PENDING = "pending"
    """Waits until `next_at`."""
    SENDING = "sending"
    """Claimed by a dispatcher. Its lease ends at `next_at`."""
    SENT = "sent"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It may have been accepted. It is never sent again."""
    SKIPPED = "skipped"
    """Not sent, because its channel is not active or the campaign was cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberChannel:
    """
    A channel of a subscriber.

    Attributes:
        position: Its place in the list of the subscriber.
        address: The URL, the e-mail address, or the endpoint of a push subscription.
        p256dh: The public key of a push subscription. Empty for other channels.
        auth: The authentication secret of a push subscription. Empty for other channels.
        host: The host that receives its messages. Empty if that is the operator's own server.
        last_confirmed_at: The time at which the service last accepted a message.
    """

    id: str
    workspace_id: int
    subscriber_id: str
    position: int
    type: ChannelType
    address: str
    p256dh: str
    auth: str
    host: str
    status: ChannelStatus
    status_reason: str | None
    last_confirmed_at: datetime | None
    created_at: datetime

    @property
    def target(self) -> ChannelTarget:
        """The address for the engine."""
        return ChannelTarget(type=self.type, address=self.address, p256dh=self.p256dh, auth=self.auth)


MAX_TAGS = 50
MAX_ATTRIBUTES = 100
MAX_ATTRIBUTES_BYTES = 16_384
"""Maximum size of all attributes of a subscriber as JSON."""

EXTERNAL_ID, LOCALE = "external_id", "locale"
RESERVED_NAMES = frozenset({EXTERNAL_ID, LOCALE})
"""Names that attributes cannot have, because they are fields of the subscriber."""

Tag = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[^\s,;][^,;\r\n\t]*$")]
ExternalId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@:+=~-]*$",
        description="The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit.",
        examples=["user-42"],
    ),
]


def find_attributes_error(attributes: Mapping[str, TemplateValue]) -> str | None:
    """Return the error of attributes that are too many or too large; None if there is no error."""
    if len(attributes) > MAX_ATTRIBUTES:
        return f"must be at most {MAX_ATTRIBUTES}"
    size = len(orjson.dumps(attributes, option=orjson.OPT_PASSTHROUGH_SUBCLASS))
    return f"must be at most {MAX_ATTRIBUTES_BYTES:,} bytes together" if size > MAX_ATTRIBUTES_BYTES else None


def _require_attributes(attributes: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
    reserved = sorted(RESERVED_NAMES & attributes.keys())
    if reserved:
        msg = f"{', '.join(reserved)}: is a field of the subscriber, not an attribute"
        raise ValueError(msg)
    error = find_attributes_error(attributes)
    if error is not None:
        raise ValueError(error)
    return attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberSettings:
    """The fields of a subscriber that its owner chooses. Its *external_id* is unique in the workspace."""

    external_id: ExternalId
    tags: Annotated[
        tuple[Tag, ...],
        Field(
            max_length=MAX_TAGS,
            description="Groups of subscribers, such as beta. A tag has no comma and no semicolon.",
            examples=[["beta"]],
        ),
        AfterValidator(lambda tags: sorted(set(tags))),
    ] = field(default_factory=tuple[str, ...])
    attributes: Annotated[
        dict[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], TemplateValue],
        Field(max_length=MAX_ATTRIBUTES, description="Values for placeholders, by names such as first_name."),
        AfterValidator(_require_attributes),
    ] = field(default_factory=dict[str, TemplateValue])
    locale: (
        Annotated[
            str,
            Field(
                max_length=35,
                pattern=r"^[A-Za-z]{2,3}([_-][A-Za-z0-9]{2,8}){0,3}$",
                description="The language of the subscriber, such as de or de-AT.",
                examples=["de-AT"],
            ),
        ]
        | None
    ) = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber(SubscriberSettings):
    """A person or a system that receives notifications."""

    id: str
    workspace_id: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberView:
    """A subscriber with its channels, in the given order."""

    subscriber: Subscriber
    channels: tuple[SubscriberChannel, ...]

    @property
    def version(self) -> str:
        """The version for ETags. It changes with the fields and the status of channels, not with `last_confirmed_at`."""
        statuses = [[channel.id, channel.status.value] for channel in self.channels]
        return compute_version(self.subscriber.id, to_micros(self.subscriber.updated_at), statuses)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDraft:
    """
    A channel as given.

    Attributes:
        ends_at_ms: When a push subscription ends, in milliseconds since 1970. One that has ended is invalid, unless *status* is given.
    """

    type: ChannelType
    address: str
    p256dh: str = ""
    auth: str = ""
    status: Annotated[ChannelStatus | None, Field(description="Default: active, or the status of the same address.")] = None
    status_reason: Annotated[str | None, Field(max_length=500)] = None
    ends_at_ms: float | None = None

    def has_ended(self, now: datetime) -> bool:
        """Return whether the browser has given up the subscription, so that its push service accepts no message."""
        return self.ends_at_ms is not None and self.ends_at_ms <= now.timestamp() * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSubscriber(SubscriberSettings):
    """The input for a subscriber with its channels."""

    channels: tuple[ChannelDraft, ...] = ()


SubscriberChange: TypeAlias = Patch[NewSubscriber]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberFilter:
    """
    A filter of subscribers; None: no filter.

    Attributes:
        text: A part of the external id, in any case.
        channel: With a channel of this type.
        status: With a channel of this status, and of the type *channel* if both are set.
    """

    tag: str | None = None
    channel: ChannelType | None = None
    status: ChannelStatus | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportColumns:
    """The types whose active channels a line replaces, and the attributes that it sets, or removes if it has no value for them."""

    channel_types: frozenset[ChannelType]
    attribute_names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLine:
    """One line of an import: a *change*, or the *errors* that make it invalid. It concerns only *columns*; None: all fields of *change*."""

    number: int
    change: SubscriberChange | None = None
    columns: ImportColumns | None = None
    errors: Mapping[str, tuple[str, ...]] | None = None


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """
    The result of an import.

    Attributes:
        errors: The errors of the first bad lines: line number, and messages by field.
    """

    line_count: int = 0
    created_count: int = 0
    updated_count: int = 0
    unchanged_count: int = 0
    failed_count: int = 0
    errors: list[tuple[int, Mapping[str, tuple[str, ...]]]]


MAX_NAMED_SUBSCRIBERS = 1_000
MAX_TEST_SUBSCRIBERS = 20
_MAX_TTL_S = 28 * 86_400
_TEMPLATE = "Placeholders such as {{ first_name }} are variables of the campaign or attributes of the subscriber."

SubscriberRef = Annotated[str, Field(min_length=1, max_length=200)]
Unique = AfterValidator(lambda values: tuple(dict.fromkeys(values)))
"""Removes repetitions from a tuple. The order stays."""

CampaignName = Annotated[
    str, Field(min_length=1, max_length=200, pattern=r"\S", description="The name of the campaign, which is not sent.")
]
ChannelTypes = Annotated[
    tuple[ChannelType, ...],
    Field(min_length=1, max_length=len(ChannelType), description="The types of channels to use; null: all."),
    Unique,
]
ScheduledTime = Annotated[
    str,
    Field(min_length=1, max_length=64, description="A local time in `time_zone`, or a time with an offset.", examples=["2030-12-01T09:00"]),
]
TimeZoneName = Annotated[str, Field(max_length=64, description="A name of the IANA database. Default: UTC.", examples=["Europe/Vienna"])]


def _require_short_values(variables: dict[str, TemplateValue]) -> dict[str, TemplateValue]:
    for name, value in variables.items():
        if isinstance(value, str) and len(value) > MAX_VALUE_LENGTH:
            msg = f"{name}: must have at most {MAX_VALUE_LENGTH:,} characters"
            raise ValueError(msg)
    return variables


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """The receivers of a campaign: all subscribers, or those with one of *tags* and the named ones (ids or external ids)."""

    all: bool = False
    tags: Annotated[tuple[Tag, ...], Field(max_length=100), Unique] = ()
    subscribers: Annotated[
        tuple[SubscriberRef, ...], Field(max_length=MAX_NAMED_SUBSCRIBERS, description="Ids or external ids."), Unique
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSchedule:
    """
    The time of a campaign.

    Attributes:
        time_zone: The zone of *at*, if that has no offset.
    """

    at: Annotated[str, Field(description="The time as given.")]
    time_zone: str
    at_utc: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSettings:
    """The fields of a campaign that its author chooses."""

    name: CampaignName
    title: Annotated[str, Field(min_length=1, max_length=500, pattern=r"\S", description=f"The title of the message. {_TEMPLATE}")]
    body: Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S", description=f"The text of the message. {_TEMPLATE}")]
    url: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=2_048,
                description="The page that the message opens. Values of placeholders are percent-encoded.",
            ),
        ]
        | None
    ) = None
    channels: ChannelTypes | None = None
    audience: Audience
    variables: Annotated[
        dict[Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")], TemplateValue],
        Field(max_length=50, description="Values of placeholders. An attribute of the subscriber with the same name takes precedence."),
        AfterValidator(_require_short_values),
    ] = field(default_factory=dict[str, TemplateValue])
    rate_per_second: (
        Annotated[float, Field(strict=False, ge=0.01, le=10_000, description="Messages per second, over all processes; null: no limit.")]
        | None
    ) = None
    ttl_s: Annotated[
        int, Field(ge=10, le=_MAX_TTL_S, description="Seconds after the start; deliveries that are not sent by then fail.")
    ] = 86_400
    schedule: Annotated[CampaignSchedule | None, Field(description="The time for the verb `schedule`. The campaign stays a draft.")] = None


CampaignChange: TypeAlias = Patch[CampaignSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTest:
    """A test of a campaign, whose message is sent to named subscribers."""

    subscribers: Annotated[
        tuple[SubscriberRef, ...], Field(min_length=1, max_length=MAX_TEST_SUBSCRIBERS, description="Ids or external ids.")
    ]
    channels: ChannelTypes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(CampaignSettings):
    """
    A message for an audience.

    Attributes:
        owner: The dispatcher that sends it until *lease_until*.
        final_counts: The statistics after its deliveries were deleted by the retention, as JSON.
    """

    id: str
    workspace_id: int
    public_workspace_id: int
    status: CampaignStatus = CampaignStatus.DRAFT
    status_reason: Annotated[
        str | None, Field(description="The reason why it was paused, missed or failed, why some deliveries failed, or why they wait.")
    ] = None
    resume_at: Annotated[
        datetime | None,
        Field(description="Paused by a fault that may pass: when one message is tried. If it is accepted, the campaign resumes."),
    ] = None
    test_of: Annotated[str | None, Field(description="The campaign that this one tests.")] = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    owner: str | None = None
    lease_until: datetime | None = None
    final_counts: Mapping[str, Mapping[str, int]] | None = None

    @property
    def is_probing(self) -> bool:
        """True if it is paused and resumes by itself as soon as one message is accepted."""
        return self.status is CampaignStatus.PAUSED and self.resume_at is not None

    @property
    def version(self) -> str:
        """The version of its fields and its status, for ETags. The statistics are not part of it."""
        return compute_version(self.id, to_micros(self.updated_at), self.status.value)

    @property
    def is_sandbox(self) -> bool:
        """True if it belongs to a test key, so that nothing is sent."""
        return self.workspace_id != self.public_workspace_id


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignStatistics:
    """The number of deliveries by state, and by channel and state."""

    by_channel: Mapping[str, Mapping[str, int]]

    def count(self, state: NotificationState) -> int:
        """Return the number of deliveries in *state*."""
        return sum(counts.get(state.value, 0) for counts in self.by_channel.values())

    @property
    def total(self) -> int:
        """The number of deliveries."""
        return sum(sum(counts.values()) for counts in self.by_channel.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    """
    A host of one type of channel that waits as a whole.

    Attributes:
        scope_id: The workspace whose messages wait; `ALL_WORKSPACES` for the operator's own mail server, which all of them share.
        host: Empty for the mail server.
    """

    scope_id: int
    channel_type: ChannelType
    host: str

    @classmethod
    def of_channel(cls, channel: SubscriberChannel) -> Self:
        """Return the host that receives the messages of *channel*."""
        scope_id = ALL_WORKSPACES if channel.type is ChannelType.EMAIL else channel.workspace_id
        return cls(scope_id=scope_id, channel_type=channel.type, host=channel.host)


ALL_WORKSPACES = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWait:
    """
    A host that gets no messages until *until*, and then one. When it accepts that one, the others follow.

    Attributes:
        probe_until: While one message is being tried: the time after which another one may be.
        refusal_count: Refusals in a row, from which the next wait follows.
        refused_at: The end of the latest attempt that was refused. What began before it says nothing about the host after it.
        reason: The latest answer.
        is_fault: It refuses for good, as a wrong login or a receiver that knows nobody; false: it is busy, throttled or down.
    """

    scope_id: int
    channel_type: ChannelType
    host: str
    until: datetime
    probe_until: datetime | None
    refusal_count: int
    refused_at: datetime
    reason: str | None
    is_fault: bool

    @property
    def key(self) -> HostKey:
        return HostKey(scope_id=self.scope_id, channel_type=self.channel_type, host=self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignWait:
    """A host for which deliveries of a campaign wait; *delivery_count*: their number."""

    campaign_id: str
    channel_type: ChannelType
    host: str
    until: datetime
    reason: str | None
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignView:
    """A campaign with its statistics, and the hosts for which its deliveries wait."""

    campaign: Campaign
    statistics: CampaignStatistics
    waits: tuple[CampaignWait, ...] = ()

    @property
    def status_reason(self) -> str | None:
        """The stored reason, or why deliveries of a campaign that is being sent wait."""
        if self.campaign.status is not CampaignStatus.SENDING or not self.waits:
            return self.campaign.status_reason
        first, others = self.waits[0], len(self.waits) - 1
        target = first.channel_type.value + (f" to {first.host}" if first.host else "")
        more = f" {others} more {'host waits' if others == 1 else 'hosts wait'}." if others else ""
        return f"{first.delivery_count:,} deliveries by {target} wait until {format_iso(first.until)}: {first.reason}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedMessage:
    """The texts of a campaign with their placeholders replaced for one subscriber."""

    title: str
    body: str
    url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingVariable:
    """A placeholder without a value for some members of the audience."""

    name: str
    count: int
    external_ids: Annotated[tuple[str, ...], Field(description="The first five of them.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignPreview:
    """
    The audience of a campaign at this moment, and the message for one of its members.

    Attributes:
        subscriber_count: Members with at least one channel of the campaign's types.
        delivery_count: Deliveries that a send would make; *skipped_count*: those whose channel is not active.
        unknown_subscribers: Entries of `audience.subscribers` that name no subscriber.
        missing_variables: Placeholders without a value; these prevent a send.
        sample_external_id: The subscriber of *message*; None: the audience is empty, or a value is missing.
        warnings: The channels that cut *message*.
    """

    subscriber_count: int
    delivery_count: int
    skipped_count: int
    by_channel: Mapping[str, int]
    unknown_subscribers: tuple[str, ...]
    missing_variables: tuple[MissingVariable, ...]
    sample_external_id: str | None
    message: RenderedMessage | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationDelivery:
    """
    The delivery of a campaign to one channel of one subscriber.

    Attributes:
        attempt_count: Number of attempts, and the number of the latest one.
        used_attempts: Attempts that count against the maximum.
        next_at: Pending: when it is due. Sending: when the lease of its worker ends. Else None.
        expires_at: After this time it is no longer sent.
    """

    id: str
    workspace_id: int
    campaign_id: str
    subscriber_id: str
    external_id: Annotated[str | None, Field(description="Null: the subscriber was deleted.")]
    channel_id: str
    channel_type: ChannelType
    state: NotificationState
    attempt_count: int
    used_attempts: int
    next_at: datetime | None
    expires_at: datetime
    status: Annotated[int | None, Field(description="The HTTP or SMTP status of the latest attempt; null: no answer.")]
    reason: Annotated[str | None, Field(description="The reason why it is not sent.")]
    provider_id: Annotated[str | None, Field(description="The service's name for the accepted message.")]
    created_at: datetime
    ended_at: datetime | None

    @property
    def next_attempt_at(self) -> datetime | None:
        """When the next attempt is due, while the delivery is pending."""
        return self.next_at if self.state is NotificationState.PENDING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationAttempt:
    """One attempt of a delivery. An attempt that a crash interrupted has the outcome unknown."""

    delivery_id: str
    workspace_id: int
    number: int
    started_at: datetime
    ended_at: Annotated[datetime | None, Field(description="Null: a crash interrupted it.")]
    outcome: Annotated[
        SendOutcome,
        Field(description="retry: certainly not accepted; blocked: the fault is the server's own, and the campaign was paused."),
    ]
    status: int | None
    reason: str | None
    duration_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationDetails:
    """A delivery with its attempts, oldest first."""

    delivery: NotificationDelivery
    attempts: tuple[NotificationAttempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationFilter:
    """A filter of deliveries; None: no filter."""

    state: NotificationState | None = None
    channel: ChannelType | None = None
    subscriber: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxMessage:
    """A message that a test key would have sent."""

    id: str
    workspace_id: int
    campaign_id: str
    delivery_id: str
    external_id: str
    channel_type: ChannelType
    address: str
    title: str
    body: str
    url: str | None
    created_at: datetime

    @property
    def masked_address(self) -> str:
        """The address without the token or the login that it may contain."""
        return mask_address(self.channel_type, self.address)
