"""Webhooks and workspaces, opened for one command without the other domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.access.wiring import AccessServices
from rookery.cli.records import build_runtime, open_runtime
from rookery.domains import load_events, load_renderers
from rookery.kernel.config import Settings
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventCatalogue
from rookery.kernel.sealing import KeySource, Sealer
from rookery.webhooks.api import WebhooksApi
from rookery.webhooks.commands.webhooks import WebhookCommandServices
from rookery.webhooks.event_recorder import EventRecorder
from rookery.webhooks.store.tables import SEALED_COLUMNS
from rookery.webhooks.wiring import WebhookServices


@asynccontextmanager
async def open_webhooks(settings: Settings) -> AsyncGenerator[WebhookCommandServices]:
    """Open them. A running server or worker sends the deliveries."""
    runtime = build_runtime(settings)
    source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
    runtime.provide(Sealer, lambda runtime: Sealer(runtime.db, source, SEALED_COLUMNS, runtime.clock))
    runtime.provide(EgressGuard, lambda _: EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private))
    catalogue = EventCatalogue(load_events())
    runtime.provide(EventCatalogue, lambda _: catalogue)
    webhooks = runtime.use(WebhookServices)
    EventRecorder(runtime, webhooks.outbox, load_events(["webhooks"]), load_renderers(["webhooks"]))
    async with open_runtime(runtime):
        yield WebhookCommandServices(
            workspaces=runtime.use(AccessServices).workspaces,
            operations=WebhooksApi(webhooks.endpoints, webhooks.deliveries, catalogue, runtime.clock).operations(),
            endpoints=webhooks.endpoints,
            deliveries=webhooks.deliveries,
        )
