"""
The transactional outbox: events and their deliveries are stored in the transaction of the change that they report.

It runs for every stored memory and every tool call. Without a subscriber it costs one indexed query, and no payload is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from secrets import token_hex

import orjson

from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Tx
from rookery.kernel.events import EventType
from rookery.kernel.ids import IdFactory
from rookery.webhooks.models import Delivery, DeliveryKind, DeliveryState, Subscription, WebhookEvent
from rookery.webhooks.store import deliveries, endpoints, events
from rookery.webhooks.store.tables import DELIVERIES, EVENTS

MAX_OPEN_DELIVERIES = 100_000
"""Maximum open deliveries of a workspace. Further ones are stored as failed."""

BACKLOG_FULL_MESSAGE = "the workspace had too many open deliveries; resend it later"
HELD_MESSAGE = "the webhook is disabled; enable it, then resend the delivery"

_RECOUNT_INTERVAL = timedelta(seconds=1)
_MAX_UNCOUNTED = 1_000

BuildData = Callable[[bool], Mapping[str, object]]
"""Returns the `data` of an event, ready for JSON. The argument selects the content of a memory; other events ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvent:
    """
    An event to be stored: its type, its time and its data. *build_data* is called only if there is a subscriber.

    Attributes:
        memory_id: The memory whose content *build_data* may return; None: no content.
    """

    type: EventType
    at: datetime
    build_data: BuildData
    memory_id: str | None = None


@dataclass(slots=True)
class _Capacity:
    """The remaining capacity of a workspace until the next count; *is_full*: the last count found no capacity."""

    remaining: int
    is_full: bool
    counted_at: datetime


@dataclass(slots=True)
class Outbox:
    """
    Stores events and deliveries for subscribers.

    Attributes:
        wake: Called on the event loop after deliveries are committed.
    """

    clock: Clock
    ids: IdFactory
    max_open: int = MAX_OPEN_DELIVERIES
    wake: Callable[[], None] = lambda: None
    _capacities: dict[int, _Capacity] = field(default_factory=dict[int, _Capacity])

    def add_event(self, tx: Tx, type: EventType, workspace_id: int, data: BuildData, at: datetime, *, memory_id: str | None = None) -> None:
        """Store an event in *tx*, with a delivery for each subscribed endpoint of the tenant. Store nothing without a subscriber."""
        self.add_events(tx, workspace_id, [NewEvent(type=type, at=at, build_data=data, memory_id=memory_id)])

    def add_events(self, tx: Tx, workspace_id: int, new_events: Iterable[NewEvent], *, excluded_endpoint_id: str | None = None) -> None:
        """
        Store several events of one tenant in order, with a single query for subscribers.

        Args:
            excluded_endpoint_id: An endpoint that gets no delivery, because the events are about it.
        """
        subscriptions = endpoints.list_subscriptions(tx, workspace_id)
        new, to_send = list[WebhookEvent](), list[Delivery]()
        for new_event in new_events if subscriptions else ():
            subscribers = [
                subscription
                for subscription in subscriptions
                if subscription.id != excluded_endpoint_id and new_event.type.matches(subscription.events)
            ]
            if subscribers:
                event = _build_event(workspace_id, new_event, subscribers)
                new.append(event)
                to_send += [self._build_delivery(event, subscription, DeliveryKind.EVENT) for subscription in subscribers]
        if new:
            EVENTS.insert(tx, *new)
            self.add_deliveries(tx, to_send)

    def add_for_endpoint(self, tx: Tx, workspace_id: int, subscription: Subscription, new_event: NewEvent, kind: DeliveryKind) -> Delivery:
        """Store an event for one endpoint only, regardless of its subscriptions."""
        event = _build_event(workspace_id, new_event, [subscription])
        EVENTS.insert(tx, event)
        return self.add_deliveries(tx, [self._build_delivery(event, subscription, kind)])[0]

    def redact_memory(self, tx: Tx, workspace_id: int, memory_id: str) -> None:
        """Remove the content of a deleted memory from all stored events."""
        events.redact_memory(tx, workspace_id, memory_id)

    def build_resend(self, delivery: Delivery) -> Delivery:
        """Return a new delivery that resends the event of an old one."""
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
        """Store deliveries of one tenant; return them as stored: those beyond the capacity are failed."""
        pending_count = sum(delivery.state is DeliveryState.PENDING for delivery in to_send)
        room = self._reserve(tx, to_send[0].workspace_id, pending_count) if pending_count else 0
        stored_deliveries = list[Delivery]()
        for delivery in to_send:
            fits = delivery.state is not DeliveryState.PENDING or room > 0
            stored_deliveries.append(delivery if fits else _failed_backlog_full(delivery))
            room -= delivery.state is DeliveryState.PENDING
        DELIVERIES.insert(tx, *stored_deliveries)
        tx.after_commit(self.wake)
        return stored_deliveries

    def count_free(self, tx: Tx, workspace_id: int) -> int:
        """Return the number of further open deliveries that the workspace may have."""
        return max(0, self.max_open - deliveries.count_open(tx, workspace_id, limit=self.max_open))

    def _reserve(self, tx: Tx, workspace_id: int, requested_count: int) -> int:
        """Reserve capacity; return the capacity before. It is counted only now and then: counting 100,000 rows takes milliseconds."""
        now, capacity = self.clock(), self._capacities.get(workspace_id)
        if capacity is None or (
            capacity.remaining < requested_count and not (capacity.is_full and now - capacity.counted_at < _RECOUNT_INTERVAL)
        ):
            free = self.count_free(tx, workspace_id)
            capacity = self._capacities[workspace_id] = _Capacity(min(free, max(requested_count, _MAX_UNCOUNTED)), free == 0, now)
        before = capacity.remaining
        capacity.remaining = max(0, before - requested_count)
        return before

    def _build_delivery(self, event: WebhookEvent, subscription: Subscription, kind: DeliveryKind) -> Delivery:
        now = self.clock()
        return Delivery(
            id=self.ids(),
            workspace_id=event.workspace_id,
            endpoint_id=subscription.id,
            event_id=event.id,
            event_type=event.type,
            kind=kind,
            state=DeliveryState.PENDING if subscription.enabled else DeliveryState.HELD,
            with_content=event.full_body is not None and subscription.include_content,
            attempt_count=0,
            used_attempts=0,
            next_at=now if subscription.enabled else None,
            owner=None,
            status=None,
            error=None if subscription.enabled else HELD_MESSAGE,
            created_at=now,
            ended_at=None,
            resend_of=None,
        )


def _build_event(workspace_id: int, new_event: NewEvent, subscribers: Sequence[Subscription]) -> WebhookEvent:
    name = f"evt_{token_hex(12)}"
    public_id = subscribers[0].public_workspace_id

    def body(*, with_content: bool) -> bytes:
        data = new_event.build_data(with_content)
        fields = {"id": name, "type": new_event.type.name, "created_at": format_iso(new_event.at), "workspace_id": public_id, "data": data}
        return orjson.dumps(fields)

    bodies = {
        with_content: body(with_content=with_content)
        for with_content in {_includes_content(new_event, subscription) for subscription in subscribers}
    }
    return WebhookEvent(
        id=name,
        workspace_id=workspace_id,
        type=new_event.type.name,
        created_at=new_event.at,
        body=bodies[False] if False in bodies else bodies[True],
        full_body=bodies[True] if len(bodies) > 1 else None,
        memory_id=new_event.memory_id if True in bodies else None,
    )


def _includes_content(new_event: NewEvent, subscription: Subscription) -> bool:
    return subscription.include_content and new_event.memory_id is not None


def _failed_backlog_full(delivery: Delivery) -> Delivery:
    return replace(delivery, state=DeliveryState.FAILED, next_at=None, error=BACKLOG_FULL_MESSAGE, ended_at=delivery.created_at)
