"""Webhooks and workspaces, opened for one command without the other domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.cli.store import open_records
from rookery.event_mapping import EventMapper, webhook_event_mappings
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.sealing import KeySource, Sealer
from rookery.webhooks.commands.webhook_services import WebhookCommandServices
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.store.tables import SEALED_COLUMNS


@asynccontextmanager
async def open_webhooks(settings: Settings) -> AsyncGenerator[WebhookCommandServices]:
    """Open them. A running server or worker sends the deliveries."""
    async with open_records(settings) as records:
        db, bus, outbox = records.db, EventBus(), Outbox(utc_now, uuid7)
        source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
        sealer = Sealer(db, source, SEALED_COLUMNS, utc_now)
        egress = EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private)
        EventMapper(outbox, webhook_event_mappings(utc_now)).subscribe(bus)
        yield WebhookCommandServices(
            workspaces=records.workspaces,
            endpoints=WebhookEndpoints(db, sealer, records.audit, egress, bus=bus, clock=utc_now, ids=uuid7),
            deliveries=Deliveries(db, outbox, clock=utc_now),
        )
