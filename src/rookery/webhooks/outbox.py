"""
Events and their deliveries, written in the transaction of what they announce: so neither is there without the other.

It is on the path of every remember and every tool call, so where nobody listens it costs one look by index, and nothing is
portrayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from secrets import token_hex

import orjson

from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Tx
from rookery.kernel.ids import IdFactory
from rookery.webhooks.event_types import has_content, is_subscribed
from rookery.webhooks.models import Delivery, DeliveryKind, DeliveryState, Subscription, WebhookEvent
from rookery.webhooks.store import deliveries, endpoints, events

MAX_OPEN_DELIVERIES = 100_000
"""How many deliveries of one workspace may wait; what comes on top of them is born failed (D-17)."""

BACKLOG_FULL_MESSAGE = "too many deliveries of this workspace were waiting; resend it once they are fewer"
HELD_MESSAGE = "the webhook is disabled; resend it once it is enabled"

_RECOUNT_INTERVAL = timedelta(seconds=1)
_MAX_UNCOUNTED = 1_000

BuildData = Callable[[bool], Mapping[str, object]]
"""Returns an event's `build_data`, ready for JSON: of a memory with its content if true, without it if false; of the rest both are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """
    One thing that happened: the type's name, when, and how it looks; *build_data* is called only if somebody listens.

    Attributes:
        memory_id: The memory whose content *build_data* may have; None: none.
    """

    type: str
    at: datetime
    build_data: BuildData
    memory_id: str | None = None


@dataclass(slots=True)
class _Capacity:
    """How many more may wait before they are counted again; *is_full*: none could when they were."""

    remaining: int
    is_full: bool
    counted_at: datetime


@dataclass(slots=True)
class Outbox:
    """
    Writes events down for who wants them.

    Attributes:
        wake: Called on the event loop once deliveries are committed; the dispatcher puts its own here.
    """

    clock: Clock
    ids: IdFactory
    max_open: int = MAX_OPEN_DELIVERIES
    wake: Callable[[], None] = lambda: None
    _capacities: dict[int, _Capacity] = field(default_factory=dict[int, _Capacity])

    def add_event(self, tx: Tx, type: str, workspace_id: int, data: BuildData, at: datetime) -> None:
        """Write down, in *tx*, an event and a delivery for each endpoint of the tenant that wants it; nothing if none does."""
        self.add_events(tx, workspace_id, [NewEvent(type=type, at=at, build_data=data)])

    def add_events(self, tx: Tx, workspace_id: int, new_events: Iterable[NewEvent], *, excluded_endpoint_id: str | None = None) -> None:
        """
        Write down many things of one tenant, in their order, at the cost of one look.

        Args:
            excluded_endpoint_id: The endpoint that is not told: it is what they are about.
        """
        listeners = endpoints.list_subscriptions(tx, workspace_id)
        new, to_send = list[WebhookEvent](), list[Delivery]()
        for each in new_events if listeners else ():
            hearers = [one for one in listeners if one.id != excluded_endpoint_id and is_subscribed(one.events, each.type)]
            if hearers:
                event = _build_event(workspace_id, each, hearers)
                new.append(event)
                to_send += [self._build_delivery(event, one, DeliveryKind.EVENT) for one in hearers]
        if new:
            events.insert_events(tx, new)
            self.add_deliveries(tx, to_send)

    def add_for_endpoint(self, tx: Tx, workspace_id: int, subscription: Subscription, new_event: NewEvent, kind: DeliveryKind) -> Delivery:
        """Write down what one endpoint alone is told, whatever it subscribed to."""
        event = _build_event(workspace_id, new_event, [subscription])
        events.insert_events(tx, [event])
        return self.add_deliveries(tx, [self._build_delivery(event, subscription, kind)])[0]

    def redact_memory(self, tx: Tx, workspace_id: int, memory_id: str) -> None:
        """Take the content of a memory out of all that is kept of what was told: it left every store, and so this one (D-41)."""
        events.redact_memory(tx, workspace_id, memory_id)

    def build_resend(self, delivery: Delivery) -> Delivery:
        """Return a new delivery of what an old one brought, or should have."""
        now = self.clock()
        return replace(
            delivery,
            id=self.ids(),
            kind=DeliveryKind.RESEND,
            state=DeliveryState.PENDING,
            attempt_count=0,
            used_attempts=0,
            next_at=now,
            owner=None,
            status=None,
            error=None,
            created_at=now,
            ended_at=None,
            resend_of=delivery.id,
        )

    def add_deliveries(self, tx: Tx, to_send: Sequence[Delivery]) -> list[Delivery]:
        """Write down deliveries of one tenant, and return them as they are kept: failed, those that there is no room for."""
        waiting = sum(each.state is DeliveryState.PENDING for each in to_send)
        room = self._reserve(tx, to_send[0].workspace_id, waiting) if waiting else 0
        kept = list[Delivery]()
        for each in to_send:
            fits = each.state is not DeliveryState.PENDING or room > 0
            kept.append(each if fits else _failed_backlog_full(each))
            room -= each.state is DeliveryState.PENDING
        deliveries.insert_deliveries(tx, kept)
        tx.after_commit(self.wake)
        return kept

    def count_free(self, tx: Tx, workspace_id: int) -> int:
        """Return how many more deliveries of a workspace may wait."""
        return max(0, self.max_open - deliveries.count_open(tx, workspace_id, limit=self.max_open))

    def _reserve(self, tx: Tx, workspace_id: int, wanted: int) -> int:
        """Take room for so many, and return how many there is room for: counted now and then, since counting 100,000 takes milliseconds."""
        now, room = self.clock(), self._capacities.get(workspace_id)
        if room is None or (room.remaining < wanted and not (room.is_full and now - room.counted_at < _RECOUNT_INTERVAL)):
            free = self.count_free(tx, workspace_id)
            room = self._capacities[workspace_id] = _Capacity(min(free, max(wanted, _MAX_UNCOUNTED)), free == 0, now)
        had = room.remaining
        room.remaining = max(0, had - wanted)
        return had

    def _build_delivery(self, event: WebhookEvent, listener: Subscription, kind: DeliveryKind) -> Delivery:
        now = self.clock()
        return Delivery(
            id=self.ids(),
            workspace_id=event.workspace_id,
            endpoint_id=listener.id,
            event_id=event.id,
            event_type=event.type,
            kind=kind,
            state=DeliveryState.PENDING if listener.enabled else DeliveryState.HELD,
            with_content=event.full_body is not None and listener.include_content,
            attempt_count=0,
            used_attempts=0,
            next_at=now if listener.enabled else None,
            owner=None,
            status=None,
            error=None if listener.enabled else HELD_MESSAGE,
            created_at=now,
            ended_at=None,
            resend_of=None,
        )


def _build_event(workspace_id: int, told: NewEvent, hearers: Sequence[Subscription]) -> WebhookEvent:
    name = f"evt_{token_hex(12)}"
    shown = hearers[0].public_workspace_id

    def body(*, with_content: bool) -> bytes:
        data = told.build_data(with_content)
        return orjson.dumps({"id": name, "type": told.type, "created_at": format_iso(told.at), "workspace_id": shown, "data": data})

    bodies = {with_content: body(with_content=with_content) for with_content in {_includes_content(told, one) for one in hearers}}
    return WebhookEvent(
        id=name,
        workspace_id=workspace_id,
        type=told.type,
        created_at=told.at,
        body=bodies[False] if False in bodies else bodies[True],
        full_body=bodies[True] if len(bodies) > 1 else None,
        memory_id=told.memory_id if True in bodies else None,
    )


def _includes_content(told: NewEvent, listener: Subscription) -> bool:
    return listener.include_content and has_content(told.type)


def _failed_backlog_full(delivery: Delivery) -> Delivery:
    return replace(delivery, state=DeliveryState.FAILED, next_at=None, error=BACKLOG_FULL_MESSAGE, ended_at=delivery.created_at)
