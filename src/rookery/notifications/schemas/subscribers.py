"""Request and response models of subscribers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from rookery.kernel.projections import Body, Patch, Projection
from rookery.kernel.schema import PageQuery, RequestModel, ResponseModel, Timestamp
from rookery.kernel.unset import UNSET
from rookery.kernel.urls import MASK
from rookery.notifications.addresses import ADDRESS_FIELDS, find_address_error, find_push_key_errors, mask_address
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import (
    ChannelDraft,
    ChannelStatus,
    ExternalId,
    ImportReport,
    NewSubscriber,
    Subscriber,
    SubscriberChannel,
    SubscriberFilter,
    SubscriberView,
)
from rookery.notifications.subscriber_builder import MAX_CHANNELS

Address = Annotated[str, Field(min_length=1, max_length=2_048)]


class PushKeysBody(RequestModel):
    """The keys of a browser's push subscription."""

    p256dh: Annotated[str, Field(max_length=200, description="The public key, base64url.")]
    auth: Annotated[str, Field(max_length=100, description="The authentication secret, base64url.")]


ExpirationTime = Annotated[
    float | None,
    Field(
        strict=False, description="When a push subscription ends, in milliseconds since 1970, as browsers give it. Default: it does not."
    ),
]


class ChannelBody(Body[ChannelDraft]):
    """
    A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and `keys`.

    The fields of `webpush` are those of the browser's `PushSubscription.toJSON()`. A subscription whose `expirationTime` has passed is
    `invalid`. A channel that is listed again keeps its status unless `status` is given.
    """

    hidden = frozenset({"address", "p256dh", "auth", "status_reason", "ends_at_ms"})

    type: Annotated[ChannelType, Field(strict=False)]
    url: Address | None = None
    address: Address | None = None
    endpoint: Address | None = None
    expirationTime: ExpirationTime = None  # noqa: N815 - the name in the Push API
    keys: PushKeysBody | None = None

    @model_validator(mode="after")
    def check_address(self) -> Self:
        """Check that exactly the fields of the type are given, and their form."""
        field = ADDRESS_FIELDS[self.type]
        needed = {field, "keys"} if self.type is ChannelType.WEBPUSH else {field}
        given_names = [name for name in ("url", "address", "endpoint", "keys") if getattr(self, name) is not None]
        if self.expirationTime is not None and self.type is not ChannelType.WEBPUSH:
            given_names.append("expirationTime")
        for name in given_names:
            if name not in needed:
                msg = f"{name}: is not a field of the type {self.type.value}, which has {' and '.join(sorted(needed))}"
                raise ValueError(msg)
        for name in sorted(needed.difference(given_names)):
            msg = f"{name}: is required for the type {self.type.value}"
            raise ValueError(msg)
        error = None if MASK in self.get_address() else find_address_error(self.type, self.get_address())
        if error is not None:
            msg = f"{field}: {error}"
            raise ValueError(msg)
        key_errors = dict[str, str]() if self.keys is None else find_push_key_errors(self.keys.p256dh, self.keys.auth)
        for name, key_error in key_errors.items():
            msg = f"keys.{name}: {key_error}"
            raise ValueError(msg)
        return self

    def get_address(self) -> str:
        """Return the address, whatever its field."""
        return getattr(self, ADDRESS_FIELDS[self.type]) or ""

    def to_model(self, **others: object) -> ChannelDraft:
        keys = {} if self.keys is None else {"p256dh": self.keys.p256dh.rstrip("="), "auth": self.keys.auth.rstrip("=")}
        return super().to_model(address=self.get_address(), ends_at_ms=self.expirationTime, **keys, **others)


class ImportedChannelBody(ChannelBody):
    """A channel of an import, with the fields that an export has."""

    hidden = ChannelBody.hidden - {"status_reason"}

    id: Annotated[str | None, Field(max_length=100)] = None
    last_confirmed_at: Timestamp | None = None
    created_at: Timestamp | None = None


_SomeChannel = TypeVar("_SomeChannel", bound=ChannelBody)


def _reject_duplicates(channels: list[_SomeChannel]) -> tuple[_SomeChannel, ...]:
    """Return *channels*. Raise ValueError if one is listed twice."""
    addresses = [(channel.type, channel.get_address()) for channel in channels]
    for index, address in enumerate(addresses):
        if address in addresses[:index]:
            msg = f"{index}: the same channel is listed twice"
            raise ValueError(msg)
    return tuple(channels)


Channels = Annotated[list[_SomeChannel], Field(max_length=MAX_CHANNELS), AfterValidator(_reject_duplicates)]


class NewSubscriberBody(Body[NewSubscriber]):
    """The body to create a subscriber."""

    channels: Channels[ChannelBody] = Field(default_factory=list[ChannelBody])


class SubscriberChangeBody(Patch[NewSubscriber]):
    """The body to change a subscriber. Omitted fields keep their value; a given list or object replaces the old one."""

    channels: Channels[ChannelBody] | UNSET = UNSET


class ImportedSubscriberBody(Patch[NewSubscriber]):
    """A line of an import: the fields to set, and those that an export has."""

    external_id: ExternalId
    channels: Channels[ImportedChannelBody] | UNSET = UNSET
    id: Annotated[str | None, Field(max_length=100)] = None
    created_at: Timestamp | None = None
    updated_at: Timestamp | None = None

    def get_set_fields(self) -> dict[str, Any]:
        """Return the fields to set, by name."""
        return {name: value for name, value in super().get_set_fields().items() if name not in {"id", "created_at", "updated_at"}}


class SubscribersQuery(PageQuery):
    """Filters of the list of subscribers."""

    tag: Annotated[str | None, Field(max_length=64, description="Only subscribers with this tag.")] = None
    channel: Annotated[ChannelType | None, Field(description="Only subscribers with a channel of this type.")] = None
    status: Annotated[
        ChannelStatus | None,
        Field(description="Only subscribers with a channel of this status, and of the type `channel` if both are given."),
    ] = None
    q: Annotated[str | None, Field(min_length=1, max_length=200, description="A part of the external id or of an address.")] = None

    def to_filter(self) -> SubscriberFilter:
        return SubscriberFilter(tag=self.tag, channel=self.channel, status=self.status, text=self.q)


class PushKeysResponse(ResponseModel):
    """The keys of a push subscription."""

    p256dh: str
    auth: str


class SubscriberChannelResponse(ResponseModel):
    """A channel, with the address field of its type."""

    id: str
    type: ChannelType
    url: Annotated[
        str | None,
        Field(description="webhook, ntfy, apprise. A token or a login in it is shown as ***.", exclude_if=lambda value: value is None),
    ] = None
    address: Annotated[str | None, Field(description="email", exclude_if=lambda value: value is None)] = None
    endpoint: Annotated[str | None, Field(description="webpush", exclude_if=lambda value: value is None)] = None
    keys: Annotated[PushKeysResponse | None, Field(description="webpush", exclude_if=lambda value: value is None)] = None
    status: Annotated[ChannelStatus, Field(description="invalid: the address no longer exists. Only active channels receive campaigns.")]
    status_reason: str | None
    last_confirmed_at: Annotated[Timestamp | None, Field(description="The time at which the service last accepted a message.")]
    created_at: Timestamp


class SubscriberResponse(Projection[Subscriber]):
    """A subscriber."""

    hidden = frozenset({"workspace_id"})

    channels: list[SubscriberChannelResponse]


class ImportErrorResponse(ResponseModel):
    """A bad line of an import."""

    line: Annotated[int, Field(description="The number of the line in the file, from 1.")]
    errors: dict[str, list[str]]


class ImportReportResponse(ResponseModel):
    """The result of an import."""

    lines: Annotated[int, Field(description="Lines with a subscriber.")]
    created: int
    updated: int
    unchanged: int
    failed: int
    errors: Annotated[list[ImportErrorResponse], Field(description="The first 100 bad lines.")]


def serialize_subscriber(view: SubscriberView, *, masked: bool = True) -> SubscriberResponse:
    """Return a subscriber; *masked*: without tokens and logins in addresses."""
    channels = [_serialize_channel(channel, masked=masked) for channel in view.channels]
    return SubscriberResponse.from_parts(view.subscriber, channels=channels)


def _serialize_channel(channel: SubscriberChannel, *, masked: bool) -> SubscriberChannelResponse:
    address = mask_address(channel.type, channel.address) if masked else channel.address
    fields: dict[str, Any] = {ADDRESS_FIELDS[channel.type]: address}
    if channel.type is ChannelType.WEBPUSH:
        fields["keys"] = PushKeysResponse(p256dh=channel.p256dh, auth=channel.auth)
    return SubscriberChannelResponse(
        id=channel.id,
        type=channel.type,
        status=channel.status,
        status_reason=channel.status_reason,
        last_confirmed_at=channel.last_confirmed_at,
        created_at=channel.created_at,
        **fields,
    )


def serialize_report(report: ImportReport) -> ImportReportResponse:
    """Return the result of an import."""
    return ImportReportResponse(
        lines=report.line_count,
        created=report.created_count,
        updated=report.updated_count,
        unchanged=report.unchanged_count,
        failed=report.failed_count,
        errors=[ImportErrorResponse(line=line, errors=_to_lists(errors)) for line, errors in report.errors],
    )


def _to_lists(errors: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {name: list(texts) for name, texts in errors.items()}
