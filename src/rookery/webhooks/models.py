"""The types of webhooks: endpoints, events, deliveries and attempts. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self, TypeAlias

from pydantic import Field

from rookery.access.models import Actor, Caller, Tenant
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import NotInAllowList
from rookery.kernel.preconditions import compute_version
from rookery.kernel.projections import Patch
from rookery.kernel.secret import Secret
from rookery.kernel.urls import MAX_URL_LENGTH

_MEMORY_READ_SCOPE = "brain:read"
_ALL_AGENTS_SCOPE = "brain:admin"
"""The scope that a key bound to one agent needs: webhooks also receive events of other agents' private memories."""


class DeliveryState(StrEnum):
    """The state of a delivery. Pending, sending and held deliveries are not finished; only the first two have a `next_at`."""

    PENDING = "pending"
    """Waits until `next_at`."""
    SENDING = "sending"
    """Claimed by a dispatcher, which renews the lease `next_at`. Another may take it over after the lease expires."""
    HELD = "held"
    """Due while its endpoint was disabled. It is sent only when it is resent."""
    DELIVERED = "delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Cancelled because its endpoint was deleted."""


OPEN_STATES = frozenset({DeliveryState.PENDING, DeliveryState.SENDING})
"""States from which the dispatcher continues by itself."""

RESENDABLE_STATES = frozenset({DeliveryState.FAILED, DeliveryState.HELD})
"""States of undelivered deliveries, which are queued again when resent. A delivered one is resent as a new delivery."""


class DeliveryKind(StrEnum):
    """The origin of a delivery."""

    EVENT = "event"
    TEST = "test"
    RESEND = "resend"


class Outcome(StrEnum):
    """The outcome of an attempt, as far as it is known."""

    SUCCESS = "success"
    FAILURE = "failure"
    INTERRUPTED = "interrupted"
    """The process stopped or crashed before it stored the outcome. The receiver may have received the delivery."""


class DisabledReason(StrEnum):
    """The reason why an endpoint is disabled."""

    BY_HAND = "by_hand"
    FAILURES = "failures"
    GONE = "gone"
    """The endpoint answered 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTenant(Tenant):
    """
    A tenant whose webhooks are managed.

    Attributes:
        caller: The caller whose scopes limit the events; None: the command line, which has no limits.
    """

    caller: Caller | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> Self:
        """
        Return the tenant of *caller*.

        Raises:
            NotInAllowList: The key is limited to a part of the workspace, but webhooks receive events of all of it.
        """
        limits = {"servers": caller.servers, "tools": caller.tools, "orgs": caller.orgs, "projects": caller.projects}
        for name, allowed in limits.items():
            if allowed is not None:
                raise NotInAllowList(
                    name,
                    None,
                    f"Webhooks receive events of the whole workspace; this key is limited to some {name}. Use a key without that list.",
                )
        return cls(
            workspace_id=caller.workspace_id, public_workspace_id=caller.public_workspace_id, by=Actor.from_caller(caller), caller=caller
        )

    def require_scopes(self, scopes: Iterable[str]) -> None:
        """Raise an error unless the caller has *scopes*, for all agents. Raises as `Caller.require_scope`."""
        if self.caller is not None:
            for scope in self._required_scopes(scopes):
                self.caller.require_scope(scope)

    def has_scopes(self, scopes: Iterable[str]) -> bool:
        """Return whether `require_scopes` would raise no error."""
        return self.caller is None or all(self.caller.has_scope(scope) for scope in self._required_scopes(scopes))

    def _required_scopes(self, scopes: Iterable[str]) -> list[str]:
        needed_scopes = list(scopes)
        is_agent_bound = self.caller is not None and self.caller.agent_id is not None
        return [*needed_scopes, _ALL_AGENTS_SCOPE] if is_agent_bound and _MEMORY_READ_SCOPE in needed_scopes else needed_scopes


MAX_EVENTS = 100
MAX_CONCURRENCY = 16
MAX_EVENT_NAME_LENGTH = 100
MAX_GRACE_HOURS = 720


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The settings of an endpoint, which its owner chooses."""

    url: Annotated[
        str, Field(min_length=1, max_length=MAX_URL_LENGTH, description="The URL for deliveries.", examples=["https://example.com/hooks"])
    ]
    events: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=MAX_EVENT_NAME_LENGTH)], ...],
        Field(
            min_length=1,
            max_length=MAX_EVENTS,
            description="Names of events, `memory.*` for all events of a resource, or `*` for all except tool.called and webhook.test.",
            examples=[["memory.*", "plan.completed"]],
        ),
    ]
    description: Annotated[str, Field(max_length=500)] = ""
    include_content: Annotated[bool, Field(description="Send the content of memories in their events.")] = False
    strict_order: Annotated[
        bool, Field(description="Send one delivery at a time, in the order of events. A failing delivery blocks the later ones.")
    ] = False
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY, description="Maximum deliveries sent at the same time.")] = 4
    enabled: bool = True


EndpointChange: TypeAlias = Patch[WebhookSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The fields of an endpoint that the outbox reads for every event, and no more."""

    id: str
    public_workspace_id: int
    events: tuple[str, ...]
    include_content: bool
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint(WebhookSettings):
    """
    A URL that receives events.

    Attributes:
        workspace_id: The tenant whose events it receives; the sandbox for an endpoint created with a test key.
        enabled_at: When it was created or last enabled. The day without success that disables it starts at or after this time.
        sealed_secret: The sealed secret; None if it was lost with its sealing key and must be replaced.
        previous_secret: The sealed previous secret, which also signs until *previous_until*.
    """

    id: str
    workspace_id: int
    public_workspace_id: int
    enabled_at: datetime
    disabled_at: datetime | None
    disabled_reason: Annotated[
        DisabledReason | None,
        Field(description="by_hand; failures: 20 in a row without a success for a day; gone: the endpoint answered 410."),
    ]
    failures: Annotated[int, Field(description="Failed deliveries since the last success.")] = 0
    last_success_at: datetime | None = None
    sealed_secret: bytes | None = None
    previous_secret: bytes | None = None
    previous_until: datetime | None = None
    created_at: datetime
    updated_at: datetime

    def grace_until(self, now: datetime) -> datetime | None:
        """Return the end of the previous secret's grace period; None if that is over."""
        return self.previous_until if self.previous_until is not None and now < self.previous_until else None

    @property
    def version(self) -> str:
        """The version of its settings and secret, for ETags. `failures` and `last_success_at` are not part of it."""
        return compute_version(self.id, to_micros(self.updated_at))

    @property
    def subscription(self) -> Subscription:
        """The fields that the outbox needs."""
        return Subscription(
            id=self.id,
            public_workspace_id=self.public_workspace_id,
            events=self.events,
            include_content=self.include_content,
            enabled=self.enabled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecrets:
    """The secrets that sign an endpoint's deliveries; *previous* is set only during its grace period."""

    current: Secret
    previous: Secret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointWithSecret:
    """An endpoint and its new secret, which is returned only once."""

    endpoint: WebhookEndpoint
    secret: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUpdate:
    """A changed endpoint; *held_count*: deliveries that can be resent, set if the change enabled the endpoint."""

    endpoint: WebhookEndpoint
    held_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """
    An event with at least one subscriber.

    Attributes:
        body: The bytes sent at every attempt: {id, type, created_at, workspace_id, data} as JSON.
        full_body: The same with the content of memories; None if that is the same, or no subscriber wants it.
        memory_id: The memory whose content one of the bodies has; None: no body has content.
    """

    id: str
    workspace_id: int
    type: str
    created_at: datetime
    body: bytes
    full_body: bytes | None
    memory_id: str | None = None

    def get_body(self, delivery: Delivery) -> bytes:
        return self.full_body if delivery.with_content and self.full_body is not None else self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """
    The delivery of one event to one endpoint. Its row is both the queue entry and the log entry.

    Attributes:
        with_content: Send the event's `full_body`.
        attempt_count: Number of attempts, interrupted ones included; also the number of the latest attempt.
        used_attempts: Attempts counted against the maximum of four. Interrupted ones do not count.
        next_at: Pending: when it is due. Sending: when the lease of *owner* expires. Else None.
        status: The HTTP status of the latest attempt; None: no response.
        error: The reason why it is not delivered.
        resend_of: The delivered delivery that this one resends.
    """

    id: str
    workspace_id: int
    endpoint_id: str
    event_id: str
    event_type: str
    kind: DeliveryKind
    state: DeliveryState
    with_content: bool
    attempt_count: int
    used_attempts: int
    next_at: datetime | None
    owner: str | None
    status: int | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    resend_of: str | None

    @property
    def next_attempt_at(self) -> datetime | None:
        """When the next attempt is due, while the delivery is pending."""
        return self.next_at if self.state is DeliveryState.PENDING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a delivery. Its row is inserted before anything is sent."""

    delivery_id: str
    workspace_id: int
    number: int
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Annotated[
        Outcome | None,
        Field(
            description="Null: running. interrupted: the outcome is unknown; the delivery may have arrived. It does not count as one of "
            "the four attempts."
        ),
    ] = None
    status: Annotated[int | None, Field(description="The HTTP status; null: no response.")] = None
    error: str | None = None
    response: Annotated[str | None, Field(description="The first 10,000 characters of the response.")] = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDetails:
    """A delivery with its body and its attempts, oldest first."""

    delivery: Delivery
    body: bytes
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """A filter of deliveries; None: no filter. *since* is inclusive."""

    state: DeliveryState | None = None
    type: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverResponse:
    """The response of a receiver; *headers* by lower-case name, *excerpt*: the start of the body."""

    status: int
    headers: Mapping[str, str]
    excerpt: str
