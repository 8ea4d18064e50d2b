"""
The mapping of events on the bus to webhook events: their type, recipients and data (D-80, D-81).

Events of keys and webhooks are mapped here, so that commands on keys need not import the other domains. `event_wiring` maps the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from rookery.access import event_payloads as key_payloads
from rookery.access.models import Caller, KeyKind
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus, KeyChanged, WebhookDisabled
from rookery.kernel.imports import import_lazily
from rookery.webhooks.event_types import DISABLED_EVENT
from rookery.webhooks.outbox import NewEvent, Outbox

if TYPE_CHECKING:
    from rookery.webhooks import event_payloads as webhook_payloads
else:
    webhook_payloads = import_lazily("rookery.webhooks.event_payloads")  # commands on keys do not import pydantic

E = TypeVar("E")

RenderPayload = Callable[[Tx, Caller, bool], Mapping[str, object]]
"""Returns the data of an event at the end of a transaction, as the viewer may see it, with or without content."""

Recipient = tuple[int, str]
"""A tenant, and the id of an endpoint to exclude, because the event is about it; usually ""."""


@dataclass(frozen=True, slots=True)
class MappedEvent:
    """One webhook event for one tenant. *memory_id* names the memory whose content the data may contain."""

    type: str
    at: datetime
    render: RenderPayload
    memory_id: str | None = None


class _TenantEvent(Protocol):
    @property
    def workspace_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EventMapping(Generic[E]):
    """The mapping of one class of events. `map_event` is called only if an endpoint subscribes to the event."""

    recipients: Callable[[E], Sequence[Recipient]]
    map_event: Callable[[E], list[MappedEvent]]


EventMappings = Mapping[type[object], EventMapping[object]]


@dataclass(frozen=True, slots=True, eq=False)
class EventMapper:
    """
    Records the webhook events of a transaction at its end, all of one tenant together.

    At the end, the data equals what the next GET returns, even if the transaction changes more after publishing the event.
    """

    outbox: Outbox
    mappings: EventMappings

    def subscribe(self, bus: EventBus) -> None:
        """Subscribe to every class of events that has a mapping."""
        for event in self.mappings:
            bus.add_recorder(event, self._collect)

    def _collect(self, tx: Tx, event: object) -> None:
        tx.before_commit(self._record, event)

    def _record(self, tx: Tx, events: list[object]) -> None:
        by_recipient = dict[Recipient, list[object]]()
        for event in events:
            for recipient in self.mappings[type(event)].recipients(event):
                by_recipient.setdefault(recipient, []).append(event)
        # Sorted, so that two transactions with the same tenants cannot deadlock.
        for (workspace_id, excluded_id), tenant_events in sorted(by_recipient.items(), key=lambda item: item[0]):
            new_events = self._iter_new_events(tx, workspace_id, tenant_events)
            self.outbox.add_events(tx, workspace_id, new_events, excluded_endpoint_id=excluded_id or None)

    def _iter_new_events(self, tx: Tx, workspace_id: int, events: list[object]) -> Iterator[NewEvent]:
        for event in events:
            for mapped_event in self.mappings[type(event)].map_event(event):
                yield to_new_event(tx, workspace_id, mapped_event)


def to_new_event(tx: Tx, workspace_id: int, mapped_event: MappedEvent) -> NewEvent:
    """Return the event that the outbox stores for a tenant."""

    def data(with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - called with one positional argument
        return mapped_event.render(tx, key_payloads.make_system_caller(tx, workspace_id), with_content)

    return NewEvent(type=mapped_event.type, at=mapped_event.at, build_data=data, memory_id=mapped_event.memory_id)


def make_mapping(
    event: type[E],
    map_event: Callable[[E], list[MappedEvent]],
    recipients: Callable[[E], Sequence[Recipient]] | None = None,
) -> EventMapping[object]:
    """Return the mapping of one class of events. Without *recipients*, the event goes to its own tenant."""
    del event
    return cast("EventMapping[object]", EventMapping(recipients or cast("Callable[[E], Sequence[Recipient]]", _event_tenant), map_event))


def key_event_mappings(clock: Clock) -> EventMappings:
    """Return the mapping of key events."""

    def map_key_change(event: KeyChanged) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            if event.last_snapshot is not None:
                return event.last_snapshot
            return key_payloads.serialize_key_event(tx, cast("KeyKind", event.kind), viewer.public_workspace_id, event.key_id, clock=clock)

        return [MappedEvent(event.name, event.at, render)]

    def recipients(event: KeyChanged) -> Sequence[Recipient]:
        # A test key is visible in its workspace and in the sandbox; a live key is not visible in the sandbox (D-25).
        return [(tenant, "") for tenant in dict.fromkeys((event.workspace_id, event.tenant_id))]

    return {KeyChanged: make_mapping(KeyChanged, map_key_change, recipients)}


def webhook_event_mappings(clock: Clock) -> EventMappings:
    """Return the mapping of the event that a webhook was disabled."""

    def disabled(event: WebhookDisabled) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return webhook_payloads.serialize_endpoint_event(tx, viewer.workspace_id, event.endpoint_id, clock=clock)

        return [MappedEvent(DISABLED_EVENT, event.at, render)]

    return {WebhookDisabled: make_mapping(WebhookDisabled, disabled, lambda event: [(event.workspace_id, event.endpoint_id)])}


def _event_tenant(event: _TenantEvent) -> Sequence[Recipient]:
    return ((event.workspace_id, ""),)
