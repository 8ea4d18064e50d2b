"""
The base of the events of the platform, the catalogue of their webhook types, and the bus that delivers them.

Each domain declares its events in `events`, one frozen class each. There are two kinds of subscribers. A recorder runs in the
transaction of the event and stores what follows from it, such as a webhook delivery. A listener in this process is called after the
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

import structlog

from rookery.kernel.db import Tx
from rookery.kernel.sentences import suggest

ALL_EVENTS = "*"

E = TypeVar("E")

Recipient = tuple[int, str]
"""A tenant, and the id of a webhook to exclude, because the event is about it; usually ""."""

_log = structlog.stdlib.get_logger("rookery.events")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventType:
    """
    A type of webhook event.

    Attributes:
        description: A sentence about when it occurs.
        data: The content of `data`, in words.
        scope: The scope that reads the data, and that subscribing needs.
        resource: The GET route whose response `data` equals; None: no such route.
        in_wildcard: Whether `*` and `<group>.*` include it.
    """

    name: str
    description: str
    data: str
    scope: str
    resource: str | None = None
    in_wildcard: bool = True

    @property
    def group_pattern(self) -> str:
        """The pattern of all types with the same first word, such as `memory.*`."""
        return f"{self.name.partition('.')[0]}.*"

    def matches(self, patterns: Iterable[str]) -> bool:
        """Return whether one of *patterns* is this name, or a wildcard that includes it."""
        return any(pattern == self.name or (self.in_wildcard and pattern in {ALL_EVENTS, self.group_pattern}) for pattern in patterns)


class Event:
    """
    The base of all events. A subclass is a frozen dataclass in `events` of its domain.

    An event with webhook types has the fields `at` and `workspace_id`. `event_payloads` of its domain renders its data, from the function
    for its class or for the nearest base of it.

    Attributes:
        types: The types of webhook events that an event of the class can become.
    """

    __slots__ = ()

    types: ClassVar[Sequence[EventType]] = ()

    def select_types(self) -> Sequence[EventType]:
        """Return the webhook types of this event: all those of its class."""
        return self.types

    def list_recipients(self) -> Sequence[Recipient]:
        """Return the tenants that the event concerns: that of its `workspace_id`."""
        event: Any = self
        return ((event.workspace_id, ""),)

    def get_content_id(self) -> str | None:
        """Return the id of the memory whose content the data has if a webhook asks for content."""
        return None

    def get_erased_id(self) -> str | None:
        """Return the id of the memory whose content stored deliveries must no longer have."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEvent(Event):
    """The base of events with several kinds. *name* is the kind, and the webhook type that the event becomes."""

    name: str

    def select_types(self) -> Sequence[EventType]:
        return [event_type for event_type in self.types if event_type.name == self.name]


class StateEvent(Event):
    """The base of events about the state of this process. They are published with `EventBus.publish`, outside a transaction."""

    __slots__ = ()

    def concerns(self, tenant: int) -> bool:
        del tenant
        return True


class EventCatalogue:
    """All types of webhook events, in the order of lists, and what subscriptions to them need."""

    def __init__(self, events: Iterable[type[Event]]) -> None:
        self.types: Sequence[EventType] = tuple(event_type for event in events for event_type in event.types)
        self.by_name = {event_type.name: event_type for event_type in self.types}

    def list_scopes(self, patterns: Iterable[str]) -> list[str]:
        """Return the scopes that read the events that match *patterns*. Subscribing needs the same scopes."""
        pattern_list = list(patterns)
        return list(dict.fromkeys(event_type.scope for event_type in self.types if event_type.matches(pattern_list)))

    def find_pattern_error(self, pattern: str) -> str | None:
        """Return the error in a pattern, with a suggestion; None if the pattern matches at least one event."""
        if any(event_type.matches([pattern]) for event_type in self.types):
            return None
        groups = dict.fromkeys(event_type.group_pattern for event_type in self.types)
        suggestion = suggest(pattern, [*self.by_name, *groups])
        return f"{pattern[:100]!r} matches no event{suggestion or '.'} GET /api/v1/events lists all names."


@dataclass(slots=True)
class EventBus:
    """
    A bus that delivers each event at once to the subscribers of its class, in the order of their subscription.

    A listener is a plain function that returns quickly. Long work belongs in a job, and work that must not be lost in a recorder.
    An exception in a listener is logged, and the other listeners are still called.
    """

    _listeners: dict[type[object], list[Callable[[object], None]]] = field(
        default_factory=dict[type[object], list[Callable[[object], None]]]
    )
    _recorders: dict[type[object], list[Callable[[Tx, object], None]]] = field(
        default_factory=dict[type[object], list[Callable[[Tx, object], None]]]
    )

    def subscribe(self, event: type[E], listener: Callable[[E], None]) -> None:
        """Call *listener* with every later event of exactly this class."""
        self._listeners.setdefault(event, []).append(cast("Callable[[object], None]", listener))

    def add_recorder(self, event: type[E], recorder: Callable[[Tx, E], None]) -> None:
        """Call *recorder* in the transaction of every later event of exactly this class. An exception rolls the transaction back."""
        self._recorders.setdefault(event, []).append(cast("Callable[[Tx, object], None]", recorder))

    def publish_on_commit(self, tx: Tx, event: object) -> None:
        """Pass *event*, a result of *tx*, to the recorders now and to the listeners after the commit."""
        for recorder in self._recorders.get(type(event), ()):
            recorder(tx, event)
        tx.after_commit(lambda: self.publish(event))

    def publish(self, event: object) -> None:
        """Call the listeners of *event*, which belongs to no transaction. Never raises."""
        for listener in self._listeners.get(type(event), ()):
            try:
                listener(event)
            except Exception:
                _log.exception("event.listener_failed", event_class=type(event).__name__)
