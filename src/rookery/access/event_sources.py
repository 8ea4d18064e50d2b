"""
The declaration of webhook events (D-80, D-81).

A domain declares its events in `event_payloads.EVENTS`: the class on the bus, the types that subscribers see, the scope that reads them
and the function that renders the data. Webhooks, the list of events and the API description read these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from rookery.access.models import Caller
from rookery.access.store import workspaces
from rookery.kernel.db import Tx
from rookery.kernel.runtime import Runtime

ALL_EVENTS = "*"

EventData = Mapping[str, object]
"""The `data` of an event, ready for JSON."""

Recipient = tuple[int, str]
"""A tenant, and the id of an endpoint to exclude, because the event is about it; usually ""."""


class BusEvent(Protocol):
    """The field that every event on the bus has if it can become a webhook event."""

    @property
    def at(self) -> datetime: ...


E = TypeVar("E", bound=BusEvent)


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


def _select_none(_: object) -> Sequence[str]:
    return ()


def _render_nothing(*_: object) -> EventData:
    return {}


def _get_tenant(event: Any) -> Sequence[Recipient]:  # noqa: ANN401 - any event that has a workspace
    return ((event.workspace_id, ""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSource(Generic[E]):
    """
    The webhook events of one class of events that are published with `EventBus.publish_on_commit`.

    Attributes:
        types: The types that an event of the class can become. None: webhooks only erase content because of it.
        select: Returns the names of the types that this event becomes.
        render: Returns the data at the end of the transaction, as the viewer may see it. The last argument: with the content of a memory.
        recipients: Returns the tenants. By default the one in `workspace_id`.
        memory_id: Returns the id of the memory whose content the data has if a webhook asks for content (D-81).
        erased_memory_id: Returns the id of the memory whose content stored deliveries must no longer have.
    """

    event: type[E]
    types: Sequence[EventType] = ()
    select: Callable[[E], Sequence[str]] = _select_none
    render: Callable[[Runtime, Tx, Caller, E, bool], EventData] = _render_nothing
    recipients: Callable[[E], Sequence[Recipient]] = _get_tenant
    memory_id: Callable[[E], str] | None = None
    erased_memory_id: Callable[[E], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEventSource(Generic[E]):
    """
    The webhook events of a class of events about the state of this process, published with `EventBus.publish`, outside a transaction.

    Attributes:
        concerns: Returns whether the event concerns a tenant, given its id.
        render: Returns the data as the viewer may see it; None: the viewer may not see the subject. Called on the event loop.
    """

    event: type[E]
    types: Sequence[EventType]
    select: Callable[[E], Sequence[str]]
    concerns: Callable[[E, int], bool]
    render: Callable[[Runtime, Caller, E], EventData | None]


AnyEventSource = EventSource[Any] | StateEventSource[Any]


def make_viewer(tx: Tx, workspace_id: int) -> Caller:
    """
    Return a caller with every right in the tenant, for rendering the data of events. It has no key.

    Rendering needs a caller because the same code makes the responses of the API.
    """
    public_id = workspaces.get_public_id(tx, workspace_id)
    return Caller.without_limits("webhooks", workspace_id, public_workspace_id=public_id)
