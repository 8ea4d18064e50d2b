"""The nouns of webhooks: who wants to be told, what happened, and how telling it went. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self

from rookery.access.models import LIVE, TEST, Actor, Caller, Environment
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import NotInAllowList
from rookery.kernel.preconditions import version_of
from rookery.kernel.secret import Secret

_MEMORY_READ_SCOPE = "brain:read"
_ALL_AGENTS_SCOPE = "brain:admin"
"""What a key that speaks for one agent needs to read another's own memories (D-43), of which webhooks are told as of all others."""


class DeliveryState(StrEnum):
    """Where a delivery stands; the first three are open: `next_at` counts."""

    PENDING = "pending"
    """It waits for its time, `next_at`."""
    SENDING = "sending"
    """A dispatcher has it, and renews its lease, `next_at`; one whose lease ran out may be taken by another."""
    HELD = "held"
    """Its endpoint was disabled when it was due; it goes out only when it is resent."""
    DELIVERED = "delivered"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """Its endpoint was deleted."""


OPEN_STATES = frozenset({DeliveryState.PENDING, DeliveryState.SENDING})
"""States in which a delivery will be worked on by itself."""

RESENDABLE_STATES = frozenset({DeliveryState.FAILED, DeliveryState.HELD})
"""What did not arrive, and may wait for its turn again as it is; what did is resent as another delivery."""


class DeliveryKind(StrEnum):
    """Why a delivery is there."""

    EVENT = "event"
    TEST = "test"
    RESEND = "resend"


class Outcome(StrEnum):
    """How an attempt ended, as far as is known."""

    SUCCESS = "success"
    FAILURE = "failure"
    INTERRUPTED = "interrupted"
    """Nobody wrote down how it ended: the process died, or was stopped. The receiver may have got it."""


class DisabledReason(StrEnum):
    """Why an endpoint is told nothing."""

    BY_HAND = "by_hand"
    FAILURES = "failures"
    GONE = "gone"
    """It answered 410."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTenant:
    """
    Whose webhooks are worked on, and by whom.

    Attributes:
        workspace_id: The tenant that every query is bound to: the sandbox twin for a test key (D-25).
        public_workspace_id: The workspace that answers, payloads and the audit log show.
        caller: Whose scopes bound what may be told; None: the command line's, which may everything.
    """

    workspace_id: int
    public_workspace_id: int
    by: Actor
    caller: Caller | None = None

    @classmethod
    def from_caller(cls, caller: Caller) -> Self:
        """
        Return the tenant that *caller* acts in.

        Raises:
            NotInList: The key's allow-lists leave out a part of the workspace (D-23), and a webhook is told of all of it.
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
        """Do nothing if the caller may read all that *scopes* let one read, of all agents; raises as `Caller.must`."""
        if self.caller is not None:
            for scope in self._required_scopes(scopes):
                self.caller.require_scope(scope)

    def has_scopes(self, scopes: Iterable[str]) -> bool:
        """Tell whether `must` would do nothing."""
        return self.caller is None or all(self.caller.has_scope(scope) for scope in self._required_scopes(scopes))

    def _required_scopes(self, scopes: Iterable[str]) -> list[str]:
        needed = list(scopes)
        speaks_for_one = self.caller is not None and self.caller.agent_id is not None
        return [*needed, _ALL_AGENTS_SCOPE] if speaks_for_one and _MEMORY_READ_SCOPE in needed else needed

    @classmethod
    def for_operator(cls, workspace_id: int, by: Actor) -> Self:
        """Return the workspace that the command line works on."""
        return cls(workspace_id=workspace_id, public_workspace_id=workspace_id, by=by)

    @property
    def environment(self) -> Environment:
        """Whether this is a sandbox."""
        return LIVE if self.workspace_id == self.public_workspace_id else TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What decides whether an endpoint is told of an event, and how: read at every event, so no more than that."""

    id: str
    public_workspace_id: int
    events: tuple[str, ...]
    include_content: bool
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEndpoint:
    """
    An address that wants to be told (spec 2.4).

    Attributes:
        workspace_id: The tenant whose events it gets: the twin for one that a test key made.
        events: Patterns as given: exact names, `memory.*`, or `*`.
        include_content: Whether memories come with their content.
        strict_order: One delivery at a time, in the order of their events; one that fails holds up those behind it.
        concurrency: How many deliveries may be under way at once.
        enabled_at: When it was made or last enabled again: the day without success that disables it begins no earlier.
        failures: Deliveries that failed for good since the last that did not.
        sealed_secret: None after its secret was lost with the key that sealed it: a new one must be made.
        previous_secret: The sealed secret before, which signs too until *previous_until*.
    """

    id: str
    workspace_id: int
    public_workspace_id: int
    url: str
    events: tuple[str, ...]
    description: str
    include_content: bool
    strict_order: bool
    concurrency: int
    enabled: bool
    enabled_at: datetime
    disabled_at: datetime | None
    disabled_reason: DisabledReason | None
    failures: int
    last_success_at: datetime | None
    sealed_secret: bytes | None
    previous_secret: bytes | None
    previous_until: datetime | None
    created_at: datetime
    updated_at: datetime

    def grace_until(self, now: datetime) -> datetime | None:
        """Return until when the secret before still signs; None: it does not."""
        return self.previous_until if self.previous_until is not None and now < self.previous_until else None

    @property
    def version(self) -> str:
        """The version of its settings and secret. What deliveries change of it, `failures` and `last_success_at`, is no part of it."""
        return version_of(self.id, to_micros(self.updated_at))

    @property
    def subscription(self) -> Subscription:
        """What of it decides whether it is told."""
        return Subscription(
            id=self.id,
            public_workspace_id=self.public_workspace_id,
            events=self.events,
            include_content=self.include_content,
            enabled=self.enabled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecrets:
    """What an endpoint's deliveries are signed with; *previous* only while its grace lasts."""

    current: Secret
    previous: Secret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointWithSecret:
    """An endpoint, and its secret, which is shown this one time."""

    endpoint: WebhookEndpoint
    secret: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointUpdate:
    """An endpoint after a change; *held_count*: how many deliveries wait to be resent, told when it was enabled again."""

    endpoint: WebhookEndpoint
    held_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """
    Something that happened and that somebody wanted to be told.

    Attributes:
        body: What is sent, byte for byte, at every attempt: {id, type, created_at, workspace_id, data} as JSON.
        full_body: The same with the content of memories; None where that is the same, or nobody wanted it.
        memory_id: The memory whose content is in one of them; None: none is.
    """

    id: str
    workspace_id: int
    type: str
    created_at: datetime
    body: bytes
    full_body: bytes | None
    memory_id: str | None = None

    def body_of(self, delivery: Delivery) -> bytes:
        """Return what *delivery* sends."""
        return self.full_body if delivery.with_content and self.full_body is not None else self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """
    One event on its way to one endpoint; the row is the queue and the log.

    Attributes:
        with_content: Whether the event's *full_body* body is what is sent.
        attempt_count: How often it was tried, interrupted ones included; the number of its newest attempt.
        used_attempts: How many of its four attempts are used up; an interrupted one costs none.
        next_at: Pending: when it is due. Sending: until when the lease of *owner* runs. Else None.
        status: Of the newest attempt's answer; None: there was none. *error*: why it is not delivered, in words.
        resend_of: Of one that brings again what has arrived: which did.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """
    One try of a delivery; the row is there before anything is sent.

    Attributes:
        outcome: None while it is under way.
        status: Of the answer; None: there was none.
        response: The start of what was answered.
    """

    delivery_id: str
    workspace_id: int
    number: int
    started_at: datetime
    ended_at: datetime | None = None
    outcome: Outcome | None = None
    status: int | None = None
    error: str | None = None
    response: str | None = None
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryDetails:
    """A delivery by itself: with what is (or was) sent, and every attempt, oldest first."""

    delivery: Delivery
    body: bytes
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEndpoint:
    """An endpoint to be made; *secret* None: one is made for it."""

    url: str
    events: tuple[str, ...]
    secret: Secret | None = None
    description: str = ""
    include_content: bool = False
    strict_order: bool = False
    concurrency: int = 4
    enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """What to change of an endpoint; None: stays as it is."""

    url: str | None = None
    events: tuple[str, ...] | None = None
    description: str | None = None
    include_content: bool | None = None
    strict_order: bool | None = None
    concurrency: int | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryFilter:
    """Which deliveries are asked for; None: all. *since* is among them."""

    state: DeliveryState | None = None
    type: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEventType:
    """
    A type of event there is.

    Attributes:
        description: When it happens, in a sentence.
        data_description: What its `data` is, in words.
        resource: The GET whose answer `data` is; None: none is.
        in_wildcard: Whether `*` means it too.
    """

    name: str
    description: str
    data_description: str
    resource: str | None = None
    in_wildcard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverResponse:
    """What a receiver answered; *headers* by lower-case name, *excerpt* cut while it was read."""

    status: int
    headers: Mapping[str, str]
    excerpt: str
