"""Notifications and workspaces, opened for one command without the other domains."""

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
from rookery.notifications.api.campaigns import CampaignApi
from rookery.notifications.api.deliveries import NotificationLogApi
from rookery.notifications.api.subscribers import SubscriberApi
from rookery.notifications.commands.notification_services import NotificationCommandServices
from rookery.notifications.store.tables import SEALED_COLUMNS
from rookery.notifications.wiring import NotificationServices
from rookery.webhooks.event_recorder import EventRecorder
from rookery.webhooks.outbox import Outbox


@asynccontextmanager
async def open_notifications(settings: Settings) -> AsyncGenerator[NotificationCommandServices]:
    """Open them. A running server or worker sends the messages."""
    runtime = build_runtime(settings)
    source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
    runtime.provide(Sealer, lambda runtime: Sealer(runtime.db, source, SEALED_COLUMNS, runtime.clock))
    runtime.provide(EgressGuard, lambda _: EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private))
    runtime.provide(EventCatalogue, lambda _: EventCatalogue(load_events()))
    outbox = Outbox(runtime.clock, runtime.ids)
    EventRecorder(runtime, outbox, load_events(["notifications"]), load_renderers(["notifications"]))
    notifications = runtime.use(NotificationServices)
    operations = [
        *SubscriberApi(notifications.subscribers, notifications.subscriber_import).operations(),
        *CampaignApi(notifications.campaigns, runtime.clock).operations(),
        *NotificationLogApi(notifications.log, notifications.secrets).operations(),
    ]
    async with open_runtime(runtime):
        yield NotificationCommandServices(
            workspaces=runtime.use(AccessServices).workspaces,
            operations=operations,
            subscribers=notifications.subscribers,
            subscriber_import=notifications.subscriber_import,
            campaigns=notifications.campaigns,
            log=notifications.log,
        )
