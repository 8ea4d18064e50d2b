"""The recording of events for webhooks: their types, recipients and data."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import structlog

from rookery.access.event_rendering import (
    EventContext,
    EventData,
    Renderer,
    Renderers,
    StateRenderer,
    StateRenderers,
    find_renderer,
    make_viewer,
)
from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.events import Event, EventType, Recipient, StateEvent
from rookery.kernel.runtime import Runtime
from rookery.webhooks.outbox import NewEvent, Outbox
from rookery.webhooks.store.endpoints import list_subscribed_tenants

_log = structlog.stdlib.get_logger("rookery.events")

_MAX_QUEUED_EVENTS = 10_000
"""Maximum state events that wait to be written. Any beyond these are dropped and logged."""


class EventRecorder:
    """
    Records the webhook events of a transaction at its end, all of one tenant together.

    At the end, the data equals what the next GET returns, even if the transaction changes more after publishing the event.
    """

    def __init__(self, runtime: Runtime, outbox: Outbox, events: Iterable[type[Event]], renderers: Renderers) -> None:
        """Subscribe to *events*, except those about the state of a process. Raise ValueError if one has types but no renderer."""
        self._runtime = runtime
        self._outbox = outbox
        self._renderers = dict[type[Event], Renderer]()
        for event in events:
            if issubclass(event, StateEvent):
                continue
            runtime.bus.add_recorder(event, self._collect)
            if event.types:
                self._renderers[event] = find_renderer(renderers, event)

    def _collect(self, tx: Tx, event: Any) -> None:  # noqa: ANN401 - an event, whose fields depend on its class
        erased_id = event.get_erased_id()
        if erased_id is not None:
            self._outbox.redact_memory(tx, event.workspace_id, erased_id)
        if event.types:
            tx.before_commit(self._record, event)

    def _record(self, tx: Tx, events: list[Any]) -> None:
        by_recipient = dict[Recipient, list[Any]]()
        for event in events:
            for recipient in event.list_recipients():
                by_recipient.setdefault(recipient, []).append(event)
        # Sorted, so that two transactions with the same tenants cannot deadlock.
        for (workspace_id, excluded_id), tenant_events in sorted(by_recipient.items(), key=lambda item: item[0]):
            new_events = self._iter_new_events(tx, workspace_id, tenant_events)
            self._outbox.add_events(tx, workspace_id, new_events, excluded_endpoint_id=excluded_id or None)

    def _iter_new_events(self, tx: Tx, workspace_id: int, events: list[Any]) -> Iterator[NewEvent]:
        for event in events:
            for event_type in event.select_types():
                build_data = partial(self._render, tx, workspace_id, event)
                yield NewEvent(type=event_type, at=event.at, build_data=build_data, memory_id=event.get_content_id())

    def _render(self, tx: Tx, workspace_id: int, event: Event, with_content: bool) -> EventData:  # noqa: FBT001
        context = EventContext(self._runtime, tx, make_viewer(tx, workspace_id), with_content)
        return self._renderers[type(event)](context, event)


class StateEventPublisher:
    """Publishes events about the state of this process, which have no transaction, to each tenant that they concern."""

    def __init__(self, runtime: Runtime, outbox: Outbox, events: Iterable[type[Event]], renderers: StateRenderers) -> None:
        """Queue the *events* about the state of this process from now on. They are published while `run` runs."""
        self._runtime = runtime
        self._outbox = outbox
        self._renderers = dict[type[Event], StateRenderer]()
        self._queue = asyncio.Queue[Any](_MAX_QUEUED_EVENTS)
        for event in events:
            if issubclass(event, StateEvent):
                self._renderers[event] = find_renderer(renderers, event)
                runtime.bus.subscribe(event, self._enqueue)

    async def run(self) -> None:
        """Publish each queued event, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                for event_type in event.select_types():
                    await self._publish(event_type, event)
            except Exception:  # noqa: BLE001 - logged; the next event is still published
                _log.exception("event.not_published", event_class=type(event).__name__)

    def _enqueue(self, event: StateEvent) -> None:
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("event.not_published", event_class=type(event).__name__, reason="too many changes at once")

    async def _publish(self, event_type: EventType, event: Any) -> None:  # noqa: ANN401 - a state event with `at`
        def read(tx: Tx) -> list[Caller]:
            tenants = (tenant for tenant in list_subscribed_tenants(tx, event_type) if event.concerns(tenant))
            return [make_viewer(tx, tenant) for tenant in tenants]

        render, payloads = self._renderers[type(event)], dict[int, EventData]()
        for viewer in await self._runtime.db.read(read):
            data = render(self._runtime, viewer, event)
            if data is not None:
                payloads[viewer.workspace_id] = data
            await asyncio.sleep(0)  # there may be many viewers, so the event loop runs in between

        def write(tx: Tx) -> None:
            for workspace_id, data in payloads.items():
                self._outbox.add_event(tx, event_type, workspace_id, lambda _, data=data: data, event.at)

        if payloads:
            await self._runtime.db.write(write)
