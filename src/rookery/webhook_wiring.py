"""Webhooks, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rookery.access.audit import Audit
from rookery.engines import receivers
from rookery.kernel.chores import Chore
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids
from rookery.kernel.metrics import Metrics
from rookery.kernel.sealing import Sealer
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.dispatching import Dispatcher
from rookery.webhooks.endpoints import Endpoints
from rookery.webhooks.figures import Figures
from rookery.webhooks.ports import Receiver
from rookery.webhooks.recording import Recorder
from rookery.webhooks.sending import Sender
from rookery.webhooks.store import endpoints as endpoint_store
from rookery.webhooks.store import events as event_store

PURGERS: Sequence[Callable[[Tx, int], int]] = (endpoint_store.purge, event_store.purge)
"""Delete all that webhooks keep of a workspace that is being deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServices:
    """Who is told of what, and how that went."""

    recorder: Recorder
    endpoints: Endpoints
    deliveries: Deliveries
    dispatcher: Dispatcher
    receiver: Receiver
    chores: Sequence[Chore]


def build_webhooks(
    settings: Settings,
    *,
    db: Database,
    audit: Audit,
    sealer: Sealer,
    egress: EgressGuard,
    bus: Bus,
    metrics: Metrics,
    clock: Clock,
    ids: Ids,
) -> WebhookServices:
    """Put webhooks together; nothing is started yet."""
    recorder = Recorder(clock, ids)
    endpoints = Endpoints(db, sealer, audit, egress, bus=bus, clock=clock, ids=ids)
    deliveries = Deliveries(db, recorder, clock=clock)
    receiver = receivers.open(egress)
    dispatcher = Dispatcher(
        db=db,
        sender=Sender(receiver, endpoints.secrets, clock),
        disable=endpoints.disable,
        figures=Figures(metrics, db, clock),
        clock=clock,
        ids=ids,
        lease_s=settings.job_lease_s,
    )
    recorder.wake = dispatcher.wake
    kept = timedelta(days=settings.webhook_deliveries_days)

    async def forget_old() -> int:
        return await deliveries.forget(before=clock() - kept)

    return WebhookServices(
        recorder=recorder,
        endpoints=endpoints,
        deliveries=deliveries,
        dispatcher=dispatcher,
        receiver=receiver,
        chores=[
            Chore(name="old webhook deliveries", every_s=3600, work=forget_old),
            Chore(name="webhook secrets past their grace", every_s=600, work=endpoints.end_graces),
        ],
    )
