"""The construction of webhooks. It is a part of `wiring`, in a file of its own for its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rookery.access.audit_log import AuditLog
from rookery.engines import webhook_client
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.metrics import Metrics
from rookery.kernel.periodic import PeriodicTask
from rookery.kernel.sealing import Sealer
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.delivery_metrics import DeliveryMetrics
from rookery.webhooks.dispatcher import Dispatcher
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.ports import WebhookClient
from rookery.webhooks.sender import DeliverySender
from rookery.webhooks.store import endpoints as endpoint_store
from rookery.webhooks.store import events as event_store

PURGERS: Sequence[Callable[[Tx, int], int]] = (endpoint_store.purge, event_store.purge)
"""Functions that delete the webhook data of a deleted workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServices:
    """The services of webhooks."""

    outbox: Outbox
    endpoints: WebhookEndpoints
    deliveries: Deliveries
    dispatcher: Dispatcher
    client: WebhookClient
    periodic_tasks: Sequence[PeriodicTask]


def build_webhooks(
    settings: Settings,
    *,
    db: Database,
    audit: AuditLog,
    sealer: Sealer,
    egress: EgressGuard,
    bus: EventBus,
    metrics: Metrics,
    clock: Clock,
    ids: IdFactory,
) -> WebhookServices:
    """Build the services of webhooks. Nothing is started."""
    outbox = Outbox(clock, ids)
    endpoints = WebhookEndpoints(db, sealer, audit, egress, bus=bus, clock=clock, ids=ids)
    deliveries = Deliveries(db, outbox, clock=clock)
    client = webhook_client.open(egress)
    dispatcher = Dispatcher(
        db=db,
        sender=DeliverySender(client, endpoints.get_signing_secrets, clock),
        disable_endpoint=endpoints.disable,
        metrics=DeliveryMetrics(metrics, db, clock),
        clock=clock,
        ids=ids,
        lease_s=settings.job_lease_s,
    )
    outbox.wake = dispatcher.wake
    retention = timedelta(days=settings.webhook_deliveries_days)

    async def delete_old() -> int:
        return await deliveries.delete_old(before=clock() - retention)

    return WebhookServices(
        outbox=outbox,
        endpoints=endpoints,
        deliveries=deliveries,
        dispatcher=dispatcher,
        client=client,
        periodic_tasks=[
            PeriodicTask(name="old webhook deliveries", interval_s=3600, run=delete_old),
            PeriodicTask(name="webhook secrets past their grace", interval_s=600, run=endpoints.delete_expired_secrets),
        ],
    )
