"""
From the facts on the bus to the events of webhooks: which type, for whom, with which data (D-80, D-81).

Keys and webhooks are mapped here, so that a command on keys need not import the other domains; `event_wiring` maps the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar, cast

from rookery.access import event_payloads as key_portraits
from rookery.access.models import Caller, KeyKind
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus, KeyChanged, WebhookDisabled
from rookery.webhooks.event_types import DISABLED_EVENT
from rookery.webhooks.outbox import NewEvent, Outbox
from rookery.webhooks.serializers import serialize_endpoint
from rookery.webhooks.store import endpoints

E = TypeVar("E")

RenderPayload = Callable[[Tx, Caller, bool], Mapping[str, object]]
"""Returns an event's data as a viewer sees it at the end of a transaction, with content or without."""

Recipient = tuple[int, str]
"""A tenant, and the id of an endpoint to leave out, which is the one that the event is about; usually ""."""


@dataclass(frozen=True, slots=True)
class MappedEvent:
    """One event for one tenant; *memory_id* is the id of the memory whose content its data may have."""

    type: str
    at: datetime
    render: RenderPayload
    memory_id: str | None = None


class _TenantEvent(Protocol):
    @property
    def workspace_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EventMapping(Generic[E]):
    """How facts of one class become events; *make_mapping* is called only where an endpoint listens."""

    recipients: Callable[[E], Sequence[Recipient]]
    map_event: Callable[[E], list[MappedEvent]]


EventMappings = Mapping[type[object], EventMapping[object]]


@dataclass(frozen=True, slots=True, eq=False)
class EventMapper:
    """
    Records the events of a transaction at its end, all of one tenant at once.

    At its end, so that the data is what the next GET returns, whatever else the transaction changes after the announcement.
    """

    outbox: Outbox
    mappings: EventMappings

    def subscribe(self, bus: EventBus) -> None:
        """Subscribe to every fact that has a mapping."""
        for event in self.mappings:
            bus.add_recorder(event, self._collect)

    def _collect(self, tx: Tx, event: object) -> None:
        tx.before_commit(self._record, event)

    def _record(self, tx: Tx, facts: list[object]) -> None:
        by_recipient = dict[Recipient, list[object]]()
        for fact in facts:
            for recipient in self.mappings[type(fact)].recipients(fact):
                by_recipient.setdefault(recipient, []).append(fact)
        # In one order, so that two transactions with the same tenants do not wait for each other in a circle.
        for (workspace_id, excluded), theirs in sorted(by_recipient.items(), key=lambda item: item[0]):
            self.outbox.add_events(tx, workspace_id, self._iter_new_events(tx, workspace_id, theirs), excluded_endpoint_id=excluded or None)

    def _iter_new_events(self, tx: Tx, workspace_id: int, facts: list[object]) -> Iterator[NewEvent]:
        for fact in facts:
            for announcement in self.mappings[type(fact)].map_event(fact):
                yield to_new_event(tx, workspace_id, announcement)


def to_new_event(tx: Tx, workspace_id: int, announcement: MappedEvent) -> NewEvent:
    """Return what the recorder writes for an announcement to a tenant."""

    def data(with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - as a portrait is called
        return announcement.render(tx, key_portraits.make_system_caller(tx, workspace_id), with_content)

    return NewEvent(type=announcement.type, at=announcement.at, build_data=data, memory_id=announcement.memory_id)


def make_mapping(
    event: type[E],
    announcements: Callable[[E], list[MappedEvent]],
    recipients: Callable[[E], Sequence[Recipient]] | None = None,
) -> EventMapping[object]:
    """Return the mapping of one class of facts; without *recipients* its own tenant is the recipient."""
    del event
    return cast(
        "EventMapping[object]", EventMapping(recipients or cast("Callable[[E], Sequence[Recipient]]", _event_tenant), announcements)
    )


def key_event_mappings(clock: Clock) -> EventMappings:
    """Return how changes of keys are announced."""

    def changed(event: KeyChanged) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            if event.last_snapshot is not None:
                return event.last_snapshot
            return key_portraits.serialize_key_event(tx, cast("KeyKind", event.kind), viewer.public_workspace_id, event.key_id, clock=clock)

        return [MappedEvent(event.name, event.at, render)]

    def recipients(event: KeyChanged) -> Sequence[Recipient]:
        # A test key is visible in its workspace and in the sandbox; a live key is not visible in the sandbox (D-25).
        return [(tenant, "") for tenant in dict.fromkeys((event.workspace_id, event.tenant_id))]

    return {KeyChanged: make_mapping(KeyChanged, changed, recipients)}


def webhook_event_mappings(clock: Clock) -> EventMappings:
    """Return how disabled webhooks are announced."""

    def disabled(event: WebhookDisabled) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            found = endpoints.find(tx, viewer.workspace_id, event.endpoint_id)
            return {"id": event.endpoint_id} if found is None else serialize_endpoint(found, clock())

        return [MappedEvent(DISABLED_EVENT, event.at, render)]

    return {WebhookDisabled: make_mapping(WebhookDisabled, disabled, lambda event: [(event.workspace_id, event.endpoint_id)])}


def _event_tenant(event: _TenantEvent) -> Sequence[Recipient]:
    return ((event.workspace_id, ""),)
