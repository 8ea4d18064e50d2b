"""Request and response models of webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field

from rookery.kernel.schema import PageQuery, PatchModel, RequestModel, ResponseModel, Timestamp
from rookery.kernel.secret import Secret
from rookery.kernel.signing import to_library_secret
from rookery.kernel.unset import UNSET
from rookery.kernel.urls import MAX_URL_LENGTH, hide_secrets
from rookery.webhooks.models import (
    DeliveryDetails,
    DeliveryFilter,
    DeliveryKind,
    DeliveryState,
    DisabledReason,
    EndpointChange,
    EndpointUpdate,
    EndpointWithSecret,
    NewEndpoint,
    Outcome,
    WebhookEndpoint,
)
from rookery.webhooks.validation import MAX_CONCURRENCY, MAX_DESCRIPTION_LENGTH, MAX_EVENTS, MAX_GRACE_HOURS

_MAX_EVENT_NAME_LENGTH = 100

Url = Annotated[
    str, Field(min_length=1, max_length=MAX_URL_LENGTH, description="The URL for deliveries.", examples=["https://example.com/hooks"])
]
Events = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=_MAX_EVENT_NAME_LENGTH)]],
    Field(
        min_length=1,
        max_length=MAX_EVENTS,
        description="Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.",
        examples=[["memory.*", "plan.completed"]],
    ),
]
SecretInput = Annotated[
    str,
    Field(
        min_length=16,
        max_length=128,
        pattern=r"^[!-~]+$",
        description="The secret that signs deliveries: 16 to 128 printable ASCII characters without spaces; base64 after whsec_. "
        "Default: generated.",
    ),
]
LibrarySecret = Annotated[
    str, Field(description="The same secret in the form that each library for Standard Webhooks takes: whsec_ and base64 with padding.")
]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_LENGTH)]
IncludeContent = Annotated[bool, Field(description="Send the content of memories in their events.")]
StrictOrder = Annotated[
    bool, Field(description="Send one delivery at a time, in the order of events. A failing delivery blocks the later ones.")
]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY, description="Maximum deliveries sent at the same time.")]


class NewWebhookBody(RequestModel):
    """The body to create an endpoint."""

    url: Url
    events: Events
    secret: SecretInput | None = None
    description: Description = ""
    include_content: IncludeContent = False
    strict_order: StrictOrder = False
    concurrency: Concurrency = 4
    enabled: bool = True

    def to_model(self) -> NewEndpoint:
        """Return the input for the new endpoint."""
        fields: dict[str, Any] = self.model_dump(exclude={"events", "secret"})
        return NewEndpoint(**fields, events=tuple(self.events), secret=None if self.secret is None else Secret(self.secret))


class WebhookChangeBody(PatchModel):
    """The body to change an endpoint. Omitted fields keep their value."""

    url: Url | UNSET = UNSET
    events: Events | UNSET = UNSET
    description: Description | UNSET = UNSET
    include_content: IncludeContent | UNSET = UNSET
    strict_order: StrictOrder | UNSET = UNSET
    concurrency: Concurrency | UNSET = UNSET
    enabled: Annotated[bool | UNSET, Field(description="True also enables an endpoint that failures or a 410 disabled.")] = UNSET

    def to_model(self) -> EndpointChange:
        fields: dict[str, Any] = {**self.get_set_fields(), "events": UNSET if self.events is UNSET else tuple(self.events)}
        return EndpointChange(**fields)


class RotateSecretBody(RequestModel):
    """The body to rotate a secret."""

    grace_period_hours: Annotated[int, Field(ge=0, le=MAX_GRACE_HOURS, description="Hours during which the old secret signs too.")] = 24
    secret: SecretInput | None = None


class ResendFailedBody(RequestModel):
    """The body to resend failed deliveries."""

    since: Annotated[Timestamp | None, Field(description="Only deliveries created at this time or later; null: all.")] = None


class WebhooksQuery(PageQuery):
    """The search in the list of endpoints."""

    q: Annotated[str | None, Field(min_length=1, max_length=100, description="A part of the description or the URL.")] = None


class DeliveriesQuery(PageQuery):
    """Filters of the list of deliveries."""

    status: Annotated[DeliveryState | None, Field(description="Only deliveries in this state.")] = None
    type: Annotated[str | None, Field(max_length=_MAX_EVENT_NAME_LENGTH, description="Only deliveries of this event.")] = None
    since: Annotated[Timestamp | None, Field(description="Only deliveries created at this time or later.")] = None

    def to_filter(self) -> DeliveryFilter:
        return DeliveryFilter(state=self.status, type=self.type, since=self.since)


def _round_duration(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else round(duration_ms, 1)


class WebhookResponse(ResponseModel):
    """An endpoint without its secret."""

    id: str
    workspace_id: Annotated[int, Field(validation_alias="public_workspace_id")]
    url: Annotated[str, Field(description="Without webhooks:write, its query and tokens in its path are shown as ***.")]
    events: list[str]
    description: str
    include_content: bool
    strict_order: bool
    concurrency: int
    enabled: bool
    disabled_at: Timestamp | None
    disabled_reason: Annotated[
        DisabledReason | None,
        Field(description="by_hand; failures: 20 in a row without a success for a day; gone: the endpoint answered 410."),
    ]
    failures: Annotated[int, Field(description="Failed deliveries since the last success.")]
    last_success_at: Timestamp | None
    previous_secret_until: Annotated[Timestamp | None, Field(description="The end of the previous secret's grace period.")]
    created_at: Timestamp
    updated_at: Timestamp


class ChangedWebhookResponse(WebhookResponse):
    """An endpoint after a change."""

    held: Annotated[int, Field(description="Deliveries that `resend-failed` can send; only if the change enabled the endpoint.")] = 0


class NewWebhookResponse(WebhookResponse):
    """An endpoint and its secret, which is returned only once."""

    secret: str
    library_secret: LibrarySecret


class DeliveryResponse(ResponseModel):
    """The delivery of one event to one endpoint."""

    id: str
    webhook_id: Annotated[str, Field(validation_alias="endpoint_id")]
    event_id: str
    type: Annotated[str, Field(validation_alias="event_type")]
    kind: DeliveryKind
    state: DeliveryState
    attempt_count: int
    next_at: Annotated[
        Timestamp | None,
        Field(validation_alias="next_attempt_at", description="The time of the next attempt, while the delivery is pending."),
    ]
    status: Annotated[int | None, Field(description="The HTTP status of the latest attempt; null: no response.")]
    error: Annotated[str | None, Field(description="The reason why it is not delivered.")]
    created_at: Timestamp
    ended_at: Timestamp | None
    of_delivery: Annotated[str | None, Field(validation_alias="resend_of", description="The delivery that this one resends.")]


class AttemptResponse(ResponseModel):
    """One attempt of a delivery."""

    number: int
    started_at: Timestamp
    ended_at: Timestamp | None
    outcome: Annotated[
        Outcome | None,
        Field(
            description="Null: running. interrupted: the outcome is unknown; the delivery may have arrived. It does not count as one of "
            "the four attempts."
        ),
    ]
    status: int | None
    error: str | None
    response: Annotated[str | None, Field(description="The first 10,000 characters of the response.")]
    duration_ms: Annotated[float | None, AfterValidator(_round_duration)]


class DeliveryDetailResponse(DeliveryResponse):
    """A delivery with its payload and its attempts, oldest first."""

    payload: dict[str, object]
    attempts: list[AttemptResponse]


class ResentResponse(ResponseModel):
    """The number of resent deliveries."""

    resent: int


class EventTypeResponse(ResponseModel):
    """A type of event."""

    name: str
    description: str
    data: Annotated[str, Field(description="The content of `data`.")]
    resource: Annotated[str | None, Field(description="The GET route whose response `data` equals.")]
    in_wildcard: Annotated[bool, Field(description="True if `*` includes it.")]


def serialize_endpoint(endpoint: WebhookEndpoint, now: datetime, *, shows_url: bool = False) -> WebhookResponse:
    """Return an endpoint without its secret. Unless *shows_url*, tokens in its URL are hidden."""
    url = endpoint.url if shows_url else hide_secrets(endpoint.url)
    return WebhookResponse.from_parts(endpoint, url=url, previous_secret_until=endpoint.grace_until(now))


def serialize_endpoint_update(update: EndpointUpdate, now: datetime, *, shows_url: bool = False) -> WebhookResponse:
    """Return a changed endpoint; with `held` only if the change enabled it. Unless *shows_url*, tokens in its URL are hidden."""
    endpoint = update.endpoint
    if update.held_count is None:
        return serialize_endpoint(endpoint, now, shows_url=shows_url)
    url = endpoint.url if shows_url else hide_secrets(endpoint.url)
    until = endpoint.grace_until(now)
    return ChangedWebhookResponse.from_parts(endpoint, url=url, previous_secret_until=until, held=update.held_count)


def serialize_endpoint_with_secret(endpoint_with_secret: EndpointWithSecret, now: datetime) -> NewWebhookResponse:
    until = endpoint_with_secret.endpoint.grace_until(now)
    return NewWebhookResponse.from_parts(
        endpoint_with_secret.endpoint,
        previous_secret_until=until,
        secret=(secret := endpoint_with_secret.secret.reveal()),
        library_secret=to_library_secret(secret),
    )


def serialize_delivery_details(details: DeliveryDetails) -> DeliveryDetailResponse:
    """Return a delivery with its payload and its attempts."""
    return DeliveryDetailResponse.from_parts(details.delivery, payload=orjson.loads(details.body), attempts=details.attempts)
