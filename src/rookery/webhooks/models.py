"""The nouns of webhooks: who wants to be told, what happened, and how telling it went. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Self

from rookery.access.models import LIVE, TEST, Actor, Caller, Environment
from rookery.kernel.clock import to_micros
from rookery.kernel.errors import NotInList
from rookery.kernel.preconditions import version_of
from rookery.kernel.secret import Secret

_READS_MEMORY = "brain:read"
_READS_ALL_AGENTS = "brain:admin"
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


OPEN = frozenset({DeliveryState.PENDING, DeliveryState.SENDING})
"""States in which a delivery will be worked on by itself."""

RESENDABLE = frozenset({DeliveryState.FAILED, DeliveryState.HELD})
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
class Tenant:
    """
    Whose webhooks are worked on, and by whom.

    Attributes:
        workspace_id: The tenant that every query is bound to: the sandbox twin for a test key (D-25).
        shown_workspace_id: The workspace that answers, payloads and the audit log show.
        caller: Whose scopes bound what may be told; None: the command line's, which may everything.
    """

    workspace_id: int
    shown_workspace_id: int
    by: Actor
    caller: Caller | None = None

    @classmethod
    def of(cls, caller: Caller) -> Self:
        """
        Return the tenant that *caller* acts in.

        Raises:
            NotInList: The key's allow-lists leave out a part of the workspace (D-23), and a webhook is told of all of it.
        """
        limits = {"servers": caller.servers, "tools": caller.tools, "orgs": caller.orgs, "projects": caller.projects}
        for name, allowed in limits.items():
            if allowed is not None:
                raise NotInList(
                    name,
                    None,
                    f"Webhooks receive events of the whole workspace; this key is limited to some {name}. Use a key without that list.",
                )
        return cls(workspace_id=caller.workspace_id, shown_workspace_id=caller.shown_workspace_id, by=Actor.of(caller), caller=caller)

    def must(self, scopes: Iterable[str]) -> None:
        """Do nothing if the caller may read all that *scopes* let one read, of all agents; raises as `Caller.must`."""
        if self.caller is not None:
            for scope in self._needed(scopes):
                self.caller.must(scope)

    def may(self, scopes: Iterable[str]) -> bool:
        """Tell whether `must` would do nothing."""
        return self.caller is None or all(self.caller.may(scope) for scope in self._needed(scopes))

    def _needed(self, scopes: Iterable[str]) -> list[str]:
        needed = list(scopes)
        speaks_for_one = self.caller is not None and self.caller.agent_id is not None
        return [*needed, _READS_ALL_AGENTS] if speaks_for_one and _READS_MEMORY in needed else needed

    @classmethod
    def operated(cls, workspace_id: int, by: Actor) -> Self:
        """Return the workspace that the command line works on."""
        return cls(workspace_id=workspace_id, shown_workspace_id=workspace_id, by=by)

    @property
    def environment(self) -> Environment:
        """Whether this is a sandbox."""
        return LIVE if self.workspace_id == self.shown_workspace_id else TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What decides whether an endpoint is told of an event, and how: read at every event, so no more than that."""

    id: str
    shown_workspace_id: int
    events: tuple[str, ...]
    include_content: bool
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
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
    shown_workspace_id: int
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
    def listener(self) -> Listener:
        """What of it decides whether it is told."""
        return Listener(
            id=self.id,
            shown_workspace_id=self.shown_workspace_id,
            events=self.events,
            include_content=self.include_content,
            enabled=self.enabled,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What an endpoint's deliveries are signed with; *previous* only while its grace lasts."""

    current: Secret
    previous: Secret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Minted:
    """An endpoint, and its secret, which is shown this one time."""

    endpoint: Endpoint
    secret: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChanged:
    """An endpoint after a change; *held*: how many deliveries wait to be resent, told when it was enabled again."""

    endpoint: Endpoint
    held: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """
    Something that happened and that somebody wanted to be told.

    Attributes:
        body: What is sent, byte for byte, at every attempt: {id, type, created_at, workspace_id, data} as JSON.
        full: The same with the content of memories; None where that is the same, or nobody wanted it.
        about: The memory whose content is in one of them; None: none is.
    """

    id: str
    workspace_id: int
    type: str
    created_at: datetime
    body: bytes
    full: bytes | None
    about: str | None = None

    def body_of(self, delivery: Delivery) -> bytes:
        """Return what *delivery* sends."""
        return self.full if delivery.with_content and self.full is not None else self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """
    One event on its way to one endpoint; the row is the queue and the log.

    Attributes:
        with_content: Whether the event's *full* body is what is sent.
        attempts: How often it was tried, interrupted ones included; the number of its newest attempt.
        spent: How many of its four attempts are used up; an interrupted one costs none.
        next_at: Pending: when it is due. Sending: until when the lease of *owner* runs. Else None.
        status: Of the newest attempt's answer; None: there was none. *error*: why it is not delivered, in words.
        of_delivery: Of one that brings again what has arrived: which did.
    """

    id: str
    workspace_id: int
    endpoint_id: str
    event_id: str
    event_type: str
    kind: DeliveryKind
    state: DeliveryState
    with_content: bool
    attempts: int
    spent: int
    next_at: datetime | None
    owner: str | None
    status: int | None
    error: str | None
    created_at: datetime
    ended_at: datetime | None
    of_delivery: str | None


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
class DeliveryView:
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
class EventType:
    """
    A type of event there is.

    Attributes:
        says: When it happens, in a sentence.
        data: What its `data` is, in words.
        resource: The GET whose answer `data` is; None: none is.
        in_wildcard: Whether `*` means it too.
    """

    name: str
    says: str
    data: str
    resource: str | None = None
    in_wildcard: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a receiver answered; *headers* by lower-case name, *excerpt* cut while it was read."""

    status: int
    headers: Mapping[str, str]
    excerpt: str
