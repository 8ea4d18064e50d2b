"""
From the facts on the bus to the events of webhooks: which type, for whom, with which data (D-80, D-81).

Keys and webhooks are mapped here, so that a command on keys need not import the other domains; `event_wiring` maps the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar, cast

from rookery.access import portraits as key_portraits
from rookery.access.models import Caller, KeyKind
from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.events import Bus, KeyChanged, WebhookDisabled
from rookery.webhooks.catalogue import DISABLED
from rookery.webhooks.recording import Recorder, Told
from rookery.webhooks.shown import webhook
from rookery.webhooks.store import endpoints

E = TypeVar("E")

Renderer = Callable[[Tx, Caller, bool], Mapping[str, object]]
"""Returns an event's data as a viewer sees it at the end of a transaction, with content or without."""

Recipient = tuple[int, str]
"""A tenant, and the id of an endpoint to leave out, which is the one that the event is about; usually ""."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """One event for one tenant; *about* is the id of the memory whose content its data may have."""

    type: str
    at: datetime
    render: Renderer
    about: str | None = None


class _OfTenant(Protocol):
    @property
    def workspace_id(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EventMapping(Generic[E]):
    """How facts of one class become events; *announcements* is called only where an endpoint listens."""

    recipients: Callable[[E], Sequence[Recipient]]
    announcements: Callable[[E], list[Announcement]]


EventMappings = Mapping[type[object], EventMapping[object]]


@dataclass(frozen=True, slots=True, eq=False)
class Announcer:
    """
    Records the events of a transaction at its end, all of one tenant at once.

    At its end, so that the data is what the next GET returns, whatever else the transaction changes after the announcement.
    """

    recorder: Recorder
    mappings: EventMappings

    def connect(self, bus: Bus) -> None:
        """Subscribe to every fact that has a mapping."""
        for event in self.mappings:
            bus.record(event, self._collect)

    def _collect(self, tx: Tx, event: object) -> None:
        tx.at_end(self._record, event)

    def _record(self, tx: Tx, facts: list[object]) -> None:
        by_recipient = dict[Recipient, list[object]]()
        for fact in facts:
            for recipient in self.mappings[type(fact)].recipients(fact):
                by_recipient.setdefault(recipient, []).append(fact)
        # In one order, so that two transactions with the same tenants do not wait for each other in a circle.
        for (workspace_id, excluded), theirs in sorted(by_recipient.items(), key=lambda item: item[0]):
            self.recorder.tell_all(tx, workspace_id, self._all_of(tx, workspace_id, theirs), but=excluded or None)

    def _all_of(self, tx: Tx, workspace_id: int, facts: list[object]) -> Iterator[Told]:
        for fact in facts:
            for announcement in self.mappings[type(fact)].announcements(fact):
                yield to_record(tx, workspace_id, announcement)


def to_record(tx: Tx, workspace_id: int, announcement: Announcement) -> Told:
    """Return what the recorder writes for an announcement to a tenant."""

    def data(with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - as a portrait is called
        return announcement.render(tx, key_portraits.onlooker(tx, workspace_id), with_content)

    return Told(type=announcement.type, at=announcement.at, data=data, about=announcement.about)


def map_event(
    event: type[E],
    announcements: Callable[[E], list[Announcement]],
    recipients: Callable[[E], Sequence[Recipient]] | None = None,
) -> EventMapping[object]:
    """Return the mapping of one class of facts; without *recipients* its own tenant is the recipient."""
    del event
    return cast("EventMapping[object]", EventMapping(recipients or cast("Callable[[E], Sequence[Recipient]]", _own_tenant), announcements))


def key_announcements(clock: Clock) -> EventMappings:
    """Return how changes of keys are announced."""

    def changed(event: KeyChanged) -> list[Announcement]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            if event.last is not None:
                return event.last
            return key_portraits.key(tx, cast("KeyKind", event.kind), viewer.shown_workspace_id, event.key_id, clock=clock)

        return [Announcement(event.name, event.at, render)]

    def recipients(event: KeyChanged) -> Sequence[Recipient]:
        # A test key is visible in its workspace and in the sandbox; a live key is not visible in the sandbox (D-25).
        return [(tenant, "") for tenant in dict.fromkeys((event.workspace_id, event.acts_in))]

    return {KeyChanged: map_event(KeyChanged, changed, recipients)}


def webhook_announcements(clock: Clock) -> EventMappings:
    """Return how disabled webhooks are announced."""

    def disabled(event: WebhookDisabled) -> list[Announcement]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            found = endpoints.find(tx, viewer.workspace_id, event.endpoint_id)
            return {"id": event.endpoint_id} if found is None else webhook(found, clock())

        return [Announcement(DISABLED, event.at, render)]

    return {WebhookDisabled: map_event(WebhookDisabled, disabled, lambda event: [(event.workspace_id, event.endpoint_id)])}


def _own_tenant(event: _OfTenant) -> Sequence[Recipient]:
    return ((event.workspace_id, ""),)
