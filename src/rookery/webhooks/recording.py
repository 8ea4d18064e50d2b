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

from rookery.kernel.clock import Clock, iso
from rookery.kernel.db import Tx
from rookery.kernel.ids import Ids
from rookery.webhooks.catalogue import has_content, wants
from rookery.webhooks.models import Delivery, DeliveryKind, DeliveryState, Event, Listener
from rookery.webhooks.store import deliveries, endpoints, events

MAX_OPEN = 100_000
"""How many deliveries of one workspace may wait; what comes on top of them is born failed (D-17)."""

BACKLOG_FULL = "too many deliveries of this workspace were waiting; resend it once they are fewer"
HELD = "the webhook is disabled; resend it once it is enabled"

_RECOUNT = timedelta(seconds=1)
_MOST_UNCOUNTED = 1_000

Portrait = Callable[[bool], Mapping[str, object]]
"""Returns an event's `data`, ready for JSON: of a memory with its content if true, without it if false; of the rest both are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """
    One thing that happened: the type's name, when, and how it looks; *data* is called only if somebody listens.

    Attributes:
        about: The memory whose content *data* may have; None: none.
    """

    type: str
    at: datetime
    data: Portrait
    about: str | None = None


@dataclass(slots=True)
class _Room:
    """How many more may wait before they are counted again; *is_full*: none could when they were."""

    left: int
    is_full: bool
    counted_at: datetime


@dataclass(slots=True)
class Recorder:
    """
    Writes events down for who wants them.

    Attributes:
        wake: Called on the event loop once deliveries are committed; the dispatcher puts its own here.
    """

    clock: Clock
    ids: Ids
    max_open: int = MAX_OPEN
    wake: Callable[[], None] = lambda: None
    _rooms: dict[int, _Room] = field(default_factory=dict[int, _Room])

    def tell(self, tx: Tx, type: str, workspace_id: int, data: Portrait, at: datetime) -> None:
        """Write down, in *tx*, an event and a delivery for each endpoint of the tenant that wants it; nothing if none does."""
        self.tell_all(tx, workspace_id, [Told(type=type, at=at, data=data)])

    def tell_all(self, tx: Tx, workspace_id: int, told: Iterable[Told], *, but: str | None = None) -> None:
        """
        Write down many things of one tenant, in their order, at the cost of one look.

        Args:
            but: The endpoint that is not told: it is what they are about.
        """
        listeners = endpoints.listeners(tx, workspace_id)
        new, to_send = list[Event](), list[Delivery]()
        for each in told if listeners else ():
            hearers = [one for one in listeners if one.id != but and wants(one.events, each.type)]
            if hearers:
                event = _event(workspace_id, each, hearers)
                new.append(event)
                to_send += [self._delivery(event, one, DeliveryKind.EVENT) for one in hearers]
        if new:
            events.add(tx, new)
            self.add(tx, to_send)

    def tell_one(self, tx: Tx, workspace_id: int, listener: Listener, told: Told, kind: DeliveryKind) -> Delivery:
        """Write down what one endpoint alone is told, whatever it subscribed to."""
        event = _event(workspace_id, told, [listener])
        events.add(tx, [event])
        return self.add(tx, [self._delivery(event, listener, kind)])[0]

    def forget(self, tx: Tx, workspace_id: int, memory_id: str) -> None:
        """Take the content of a memory out of all that is kept of what was told: it left every store, and so this one (D-41)."""
        events.blank(tx, workspace_id, memory_id)

    def again(self, delivery: Delivery) -> Delivery:
        """Return a new delivery of what an old one brought, or should have."""
        now = self.clock()
        return replace(
            delivery,
            id=self.ids(),
            kind=DeliveryKind.RESEND,
            state=DeliveryState.PENDING,
            attempts=0,
            spent=0,
            next_at=now,
            owner=None,
            status=None,
            error=None,
            created_at=now,
            ended_at=None,
            of_delivery=delivery.id,
        )

    def add(self, tx: Tx, to_send: Sequence[Delivery]) -> list[Delivery]:
        """Write down deliveries of one tenant, and return them as they are kept: failed, those that there is no room for."""
        waiting = sum(each.state is DeliveryState.PENDING for each in to_send)
        room = self._taken(tx, to_send[0].workspace_id, waiting) if waiting else 0
        kept = list[Delivery]()
        for each in to_send:
            fits = each.state is not DeliveryState.PENDING or room > 0
            kept.append(each if fits else _refused(each))
            room -= each.state is DeliveryState.PENDING
        deliveries.add(tx, kept)
        tx.after_commit(self.wake)
        return kept

    def free(self, tx: Tx, workspace_id: int) -> int:
        """Return how many more deliveries of a workspace may wait."""
        return max(0, self.max_open - deliveries.count_open(tx, workspace_id, at_most=self.max_open))

    def _taken(self, tx: Tx, workspace_id: int, wanted: int) -> int:
        """Take room for so many, and return how many there is room for: counted now and then, since counting 100,000 takes milliseconds."""
        now, room = self.clock(), self._rooms.get(workspace_id)
        if room is None or (room.left < wanted and not (room.is_full and now - room.counted_at < _RECOUNT)):
            free = self.free(tx, workspace_id)
            room = self._rooms[workspace_id] = _Room(min(free, max(wanted, _MOST_UNCOUNTED)), free == 0, now)
        had = room.left
        room.left = max(0, had - wanted)
        return had

    def _delivery(self, event: Event, listener: Listener, kind: DeliveryKind) -> Delivery:
        now = self.clock()
        return Delivery(
            id=self.ids(),
            workspace_id=event.workspace_id,
            endpoint_id=listener.id,
            event_id=event.id,
            event_type=event.type,
            kind=kind,
            state=DeliveryState.PENDING if listener.enabled else DeliveryState.HELD,
            with_content=event.full is not None and listener.include_content,
            attempts=0,
            spent=0,
            next_at=now if listener.enabled else None,
            owner=None,
            status=None,
            error=None if listener.enabled else HELD,
            created_at=now,
            ended_at=None,
            of_delivery=None,
        )


def _event(workspace_id: int, told: Told, hearers: Sequence[Listener]) -> Event:
    name = f"evt_{token_hex(12)}"
    shown = hearers[0].shown_workspace_id

    def body(*, with_content: bool) -> bytes:
        data = told.data(with_content)
        return orjson.dumps({"id": name, "type": told.type, "created_at": iso(told.at), "workspace_id": shown, "data": data})

    bodies = {with_content: body(with_content=with_content) for with_content in {_wants_content(told, one) for one in hearers}}
    return Event(
        id=name,
        workspace_id=workspace_id,
        type=told.type,
        created_at=told.at,
        body=bodies[False] if False in bodies else bodies[True],
        full=bodies[True] if len(bodies) > 1 else None,
        about=told.about if True in bodies else None,
    )


def _wants_content(told: Told, listener: Listener) -> bool:
    return listener.include_content and has_content(told.type)


def _refused(delivery: Delivery) -> Delivery:
    return replace(delivery, state=DeliveryState.FAILED, next_at=None, error=BACKLOG_FULL, ended_at=delivery.created_at)
