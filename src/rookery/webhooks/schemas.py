"""Request and response models of webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import orjson
from pydantic import AfterValidator, Field

from rookery.kernel.projections import Body, Patch, Projection
from rookery.kernel.schema import PageQuery, RequestModel, ResponseModel, Timestamp
from rookery.kernel.signing import to_library_secret
from rookery.kernel.unset import UNSET
from rookery.kernel.urls import hide_secrets
from rookery.webhooks.models import (
    MAX_EVENT_NAME_LENGTH,
    MAX_GRACE_HOURS,
    Attempt,
    DeliveryDetails,
    DeliveryFilter,
    DeliveryKind,
    DeliveryState,
    EndpointUpdate,
    EndpointWithSecret,
    WebhookEndpoint,
    WebhookSettings,
)

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


class NewWebhookBody(Body[WebhookSettings]):
    """The body to create an endpoint."""

    secret: SecretInput | None = None


class WebhookChangeBody(Patch[WebhookSettings]):
    """The body to change an endpoint. Omitted fields keep their value."""

    enabled: Annotated[bool | UNSET, Field(description="True also enables an endpoint that failures or a 410 disabled.")] = UNSET


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
    type: Annotated[str | None, Field(max_length=MAX_EVENT_NAME_LENGTH, description="Only deliveries of this event.")] = None
    since: Annotated[Timestamp | None, Field(description="Only deliveries created at this time or later.")] = None

    def to_filter(self) -> DeliveryFilter:
        return DeliveryFilter(state=self.status, type=self.type, since=self.since)


def _round_duration(duration_ms: float | None) -> float | None:
    return None if duration_ms is None else round(duration_ms, 1)


class WebhookResponse(Projection[WebhookEndpoint]):
    """An endpoint without its secret."""

    hidden = frozenset({"enabled_at", "previous_until"})

    url: Annotated[str, Field(description="Without webhooks:write, its query and tokens in its path are shown as ***.")]
    previous_secret_until: Annotated[Timestamp | None, Field(description="The end of the previous secret's grace period.")]


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


class AttemptResponse(Projection[Attempt]):
    """One attempt of a delivery."""

    hidden = frozenset({"delivery_id", "workspace_id"})

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
