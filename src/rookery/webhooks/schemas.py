"""Webhooks on the wire (spec 2.4, D-80)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.kernel.http.pagination import PageQuery
from rookery.kernel.schema import RequestModel, ResponseModel, Timestamp, resolve_alias
from rookery.kernel.secret import Secret
from rookery.webhooks.models import DeliveryFilter, DeliveryKind, DeliveryState, DisabledReason, EndpointChange, NewEndpoint, Outcome
from rookery.webhooks.validation import MAX_CONCURRENCY, MAX_DESCRIPTION_LENGTH, MAX_EVENTS, MAX_GRACE_HOURS, MAX_URL_LENGTH

_MAX_EVENT_NAME_LENGTH = 100

Url = Annotated[
    str, Field(min_length=1, max_length=MAX_URL_LENGTH, description="Where deliveries are posted.", examples=["https://example.com/hooks"])
]
Events = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=_MAX_EVENT_NAME_LENGTH)]],
    Field(
        min_length=1,
        max_length=MAX_EVENTS,
        description="Names of events, `memory.*` for all of a kind, `*` for all but tool.called.",
        examples=[["memory.*", "plan.completed"]],
    ),
]
SecretInput = Annotated[
    str,
    Field(
        min_length=16,
        max_length=128,
        pattern=r"^[!-~]+$",
        description="What deliveries are signed with: 16 to 128 printable characters without spaces. By default one is made.",
    ),
]
Description = Annotated[str, Field(max_length=MAX_DESCRIPTION_LENGTH)]
IncludeContent = Annotated[bool, Field(description="Whether events of memories have their content.")]
StrictOrder = Annotated[
    bool, Field(description="One delivery at a time, in the order of their events; one that fails holds up those behind it.")
]
Concurrency = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY, description="How many deliveries may be under way at once.")]


class NewWebhookBody(RequestModel):
    """An endpoint to be made."""

    url: Url
    events: Events
    secret: SecretInput | None = None
    description: Description = ""
    include_content: IncludeContent = False
    strict_order: StrictOrder = False
    concurrency: Concurrency = 4
    enabled: bool = True

    def to_model(self) -> NewEndpoint:
        """Return what is to be made."""
        return NewEndpoint(
            url=self.url,
            events=tuple(self.events),
            secret=None if self.secret is None else Secret(self.secret),
            description=self.description,
            include_content=self.include_content,
            strict_order=self.strict_order,
            concurrency=self.concurrency,
            enabled=self.enabled,
        )


class WebhookChangeBody(RequestModel):
    """What to change of an endpoint; what is left out stays."""

    url: Url = "unchanged"
    events: Events = Field(default_factory=list)
    description: Description = ""
    include_content: IncludeContent = False
    strict_order: StrictOrder = False
    concurrency: Concurrency = 4
    enabled: Annotated[bool, Field(description="True also ends what failures or a 410 disabled.")] = True

    def to_model(self) -> EndpointChange:
        """Return what is to be changed."""
        given = self.model_fields_set
        return EndpointChange(
            url=self.url if "url" in given else None,
            events=tuple(self.events) if "events" in given else None,
            description=self.description if "description" in given else None,
            include_content=self.include_content if "include_content" in given else None,
            strict_order=self.strict_order if "strict_order" in given else None,
            concurrency=self.concurrency if "concurrency" in given else None,
            enabled=self.enabled if "enabled" in given else None,
        )


class RotateSecretBody(RequestModel):
    """How to change a secret."""

    grace_period_hours: Annotated[int, Field(ge=0, le=MAX_GRACE_HOURS, description="How long the old secret signs too.")] = 24
    secret: SecretInput | None = None


class ResendFailedBody(RequestModel):
    """Which deliveries to send again."""

    since: Annotated[Timestamp | None, Field(description="Made at this time or later; null: all that are kept.")] = None


class DeliveriesQuery(PageQuery):
    """Which deliveries to list."""

    status: DeliveryState | None = None
    state: Annotated[DeliveryState | None, Field(description="The earlier name of `status`.", json_schema_extra={"deprecated": True})] = (
        None
    )
    type: Annotated[str | None, Field(max_length=_MAX_EVENT_NAME_LENGTH, description="The name of an event.")] = None
    since: Annotated[Timestamp | None, Field(description="Made at this time or later.")] = None

    def to_filter(self) -> DeliveryFilter:
        """Return what is asked for."""
        return DeliveryFilter(state=resolve_alias("status", self.status, "state", self.state), type=self.type, since=self.since)


class WebhookResponse(ResponseModel):
    """An endpoint; its secret is not shown again."""

    id: str
    workspace_id: int
    url: str
    events: list[str]
    description: str
    include_content: bool
    strict_order: bool
    concurrency: int
    enabled: bool
    disabled_at: Timestamp | None
    disabled_reason: Annotated[DisabledReason | None, Field(description="By hand; 20 failures in a row within a day; gone: a 410.")]
    failures: Annotated[int, Field(description="Deliveries that failed for good since the last that did not.")]
    last_success_at: Timestamp | None
    previous_secret_until: Annotated[Timestamp | None, Field(description="Until when the secret before signs too.")]
    created_at: Timestamp
    updated_at: Timestamp


class ChangedWebhookResponse(WebhookResponse):
    """An endpoint after a change."""

    held: Annotated[int, Field(description="Only when it was enabled again: how many deliveries wait for `resend-failed`.")] = 0


class NewWebhookResponse(WebhookResponse):
    """An endpoint and its secret, which is shown this once."""

    secret: str


class DeliveryResponse(ResponseModel):
    """One event on its way to one endpoint."""

    id: str
    webhook_id: str
    event_id: str
    type: str
    kind: DeliveryKind
    state: DeliveryState
    attempt_count: int
    next_at: Annotated[Timestamp | None, Field(description="When it is tried next, while it is pending.")]
    status: Annotated[int | None, Field(description="Of the newest answer; null: there was none.")]
    error: Annotated[str | None, Field(description="Why it is not delivered.")]
    created_at: Timestamp
    ended_at: Timestamp | None
    of_delivery: Annotated[str | None, Field(description="Of a resent one: which.")]


class AttemptResponse(ResponseModel):
    """One try of a delivery."""

    number: int
    started_at: Timestamp
    ended_at: Timestamp | None
    outcome: Annotated[
        Outcome | None, Field(description="Null: under way; interrupted: nobody knows, it may have arrived, and costs none of the four.")
    ]
    status: int | None
    error: str | None
    response: Annotated[str | None, Field(description="The first 10,000 characters of what was answered.")]
    duration_ms: float | None


class DeliveryDetailResponse(DeliveryResponse):
    """A delivery with what is sent and how each try went, oldest first."""

    payload: dict[str, object]
    attempts: list[AttemptResponse]


class ResentResponse(ResponseModel):
    """What was sent again."""

    resent: int


class EventTypeResponse(ResponseModel):
    """A type of event."""

    name: str
    description: str
    data: Annotated[str, Field(description="What its `data` is.")]
    resource: Annotated[str | None, Field(description="The route whose answer `data` is.")]
    in_wildcard: Annotated[bool, Field(description="Whether `*` means it too.")]
