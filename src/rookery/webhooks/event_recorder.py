"""The recording of declared events for webhooks: their type, recipients and data (D-80, D-81)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import structlog

from rookery.access.event_sources import AnyEventSource, EventData, EventSource, EventType, Recipient, StateEventSource, make_viewer
from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.runtime import Runtime
from rookery.webhooks.outbox import NewEvent, Outbox
from rookery.webhooks.store.endpoints import list_subscribed_tenants

_log = structlog.stdlib.get_logger("rookery.events")

_MAX_QUEUED_EVENTS = 10_000
"""Maximum state events that wait to be written. Any beyond these are dropped and logged."""

Sources = dict[type[object], EventSource[Any]]


class EventRecorder:
    """
    Records the webhook events of a transaction at its end, all of one tenant together.

    At the end, the data equals what the next GET returns, even if the transaction changes more after publishing the event.
    """

    def __init__(self, runtime: Runtime, outbox: Outbox, sources: Iterable[AnyEventSource]) -> None:
        """Subscribe to every declared class of events."""
        self._runtime = runtime
        self._outbox = outbox
        self._sources = Sources()
        for source in sources:
            if not isinstance(source, EventSource):
                continue
            self._sources[source.event] = source
            if source.types:
                runtime.bus.add_recorder(source.event, self._collect)
            if source.erased_memory_id is not None:
                runtime.bus.add_recorder(source.event, partial(self._erase, source.erased_memory_id))

    def _erase(self, get_memory_id: Callable[[Any], str], tx: Tx, event: Any) -> None:  # noqa: ANN401 - an event of the source
        self._outbox.redact_memory(tx, event.workspace_id, get_memory_id(event))

    def _collect(self, tx: Tx, event: object) -> None:
        tx.before_commit(self._record, event)

    def _record(self, tx: Tx, events: list[object]) -> None:
        by_recipient = dict[Recipient, list[object]]()
        for event in events:
            for recipient in self._sources[type(event)].recipients(event):
                by_recipient.setdefault(recipient, []).append(event)
        # Sorted, so that two transactions with the same tenants cannot deadlock.
        for (workspace_id, excluded_id), tenant_events in sorted(by_recipient.items(), key=lambda item: item[0]):
            new_events = self._iter_new_events(tx, workspace_id, tenant_events)
            self._outbox.add_events(tx, workspace_id, new_events, excluded_endpoint_id=excluded_id or None)

    def _iter_new_events(self, tx: Tx, workspace_id: int, events: list[Any]) -> Iterator[NewEvent]:
        for event in events:
            source = self._sources[type(event)]
            for event_type in _select_types(source, event):
                yield NewEvent(
                    type=event_type,
                    at=event.at,
                    build_data=partial(self._render, tx, workspace_id, source, event),
                    memory_id=source.memory_id(event) if source.memory_id else None,
                )

    def _render(self, tx: Tx, workspace_id: int, source: EventSource[Any], event: Any, with_content: bool) -> EventData:  # noqa: ANN401, FBT001
        return source.render(self._runtime, tx, make_viewer(tx, workspace_id), event, with_content)


class StateEventPublisher:
    """Publishes events about the state of this process, which have no transaction, to each tenant that they concern."""

    def __init__(self, runtime: Runtime, outbox: Outbox, sources: Iterable[AnyEventSource]) -> None:
        """Queue events from now on. They are published while `run` runs."""
        self._runtime = runtime
        self._outbox = outbox
        self._queue = asyncio.Queue[tuple[StateEventSource[Any], Any]](_MAX_QUEUED_EVENTS)
        for source in sources:
            if isinstance(source, StateEventSource):
                runtime.bus.subscribe(source.event, partial(self._enqueue, source))

    async def run(self) -> None:
        """Publish each queued event, until cancelled."""
        while True:
            source, event = await self._queue.get()
            try:
                for event_type in _select_types(source, event):
                    await self._publish(source, event_type, event)
            except Exception:  # noqa: BLE001 - logged; the next event is still published
                _log.exception("event.not_published", event_class=type(event).__name__)

    def _enqueue(self, source: StateEventSource[Any], event: object) -> None:
        try:
            self._queue.put_nowait((source, event))
        except asyncio.QueueFull:
            _log.warning("event.not_published", event_class=type(event).__name__, reason="too many changes at once")

    async def _publish(self, source: StateEventSource[Any], event_type: EventType, event: Any) -> None:  # noqa: ANN401 - as declared
        def read(tx: Tx) -> list[Caller]:
            tenants = (tenant for tenant in list_subscribed_tenants(tx, event_type) if source.concerns(event, tenant))
            return [make_viewer(tx, tenant) for tenant in tenants]

        payloads = dict[int, EventData]()
        for viewer in await self._runtime.db.read(read):
            data = source.render(self._runtime, viewer, event)
            if data is not None:
                payloads[viewer.workspace_id] = data
            await asyncio.sleep(0)  # there may be many viewers, so the event loop runs in between

        def write(tx: Tx) -> None:
            for workspace_id, data in payloads.items():
                self._outbox.add_event(tx, event_type, workspace_id, lambda _, data=data: data, event.at)

        if payloads:
            await self._runtime.db.write(write)


def _select_types(source: AnyEventSource, event: object) -> list[EventType]:
    names = source.select(event)
    return [event_type for event_type in source.types if event_type.name in names]
