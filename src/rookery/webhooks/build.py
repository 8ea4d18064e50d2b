"""The services of webhooks, each built on first use, and the registration of the domain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from rookery.access.build import AccessServices
from rookery.access.workspaces import Workspaces
from rookery.kernel.delivery_engine import Signal
from rookery.kernel.domain import Domain
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventCatalogue
from rookery.kernel.http import Operation
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.sealing import Sealer
from rookery.webhooks.api import WebhooksApi
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.dispatcher import DeliveryMetrics, Dispatcher
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.ports import WebhookClient
from rookery.webhooks.sender import DeliverySender
from rookery.webhooks.store import endpoints, events
from rookery.webhooks.store.tables import SEALED_COLUMNS


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPorts:
    """The implementations that webhooks get from engines."""

    open_client: Callable[[], WebhookClient]


class WebhookServices:
    """Endpoints, their deliveries, and the outbox that records events."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._access = runtime.use(AccessServices)
        self._due = Signal()

    @cached_property
    def outbox(self) -> Outbox:
        return Outbox(self._runtime.clock, self._runtime.ids, wake=self._due.send)

    @cached_property
    def endpoints(self) -> WebhookEndpoints:
        runtime = self._runtime
        return WebhookEndpoints(
            runtime.db,
            runtime.use(Sealer),
            self._access.audit,
            runtime.use(EgressGuard),
            self._get_catalogue,
            bus=runtime.bus,
            clock=runtime.clock,
            ids=runtime.ids,
        )

    @cached_property
    def deliveries(self) -> Deliveries:
        return Deliveries(self._runtime.db, self.outbox, self._get_catalogue, clock=self._runtime.clock)

    @cached_property
    def operations(self) -> list[Operation]:
        return WebhooksApi(self.endpoints, self.deliveries, self._get_catalogue(), self._runtime.clock).operations()

    @property
    def workspaces(self) -> Workspaces:
        return self._access.workspaces

    @cached_property
    def client(self) -> WebhookClient:
        client = self._runtime.use(WebhookPorts).open_client()
        self._runtime.on_close(client.close)
        return client

    @cached_property
    def dispatcher(self) -> Dispatcher:
        runtime = self._runtime
        return Dispatcher(
            db=runtime.db,
            due=self._due,
            sender=DeliverySender(self.client, self.endpoints.get_signing_secrets, runtime.clock),
            disable_endpoint=self.endpoints.disable,
            metrics=DeliveryMetrics(runtime.use(Metrics), runtime.db, runtime.clock),
            clock=runtime.clock,
            ids=runtime.ids,
            lease_s=runtime.settings.job_lease_s,
        )

    def _get_catalogue(self) -> EventCatalogue:
        return self._runtime.use(EventCatalogue)


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(WebhookServices)
    dispatcher = services.dispatcher
    retention = timedelta(days=runtime.settings.webhook_deliveries_days)

    async def delete_old_deliveries() -> int:
        return await services.deliveries.delete_old(before=runtime.clock() - retention)

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        del serves  # workers send deliveries too
        await dispatcher.start()
        stack.push_async_callback(dispatcher.stop)

    return Domain(
        operations=[("/api/v1", services.operations)],
        periodic_tasks=[
            PeriodicTask(name="old webhook deliveries", interval_s=3600, run=delete_old_deliveries),
            PeriodicTask(name="webhook secrets past their grace", interval_s=600, run=services.endpoints.delete_expired_secrets),
        ],
        purgers=[endpoints.purge, events.purge],
        sealed_columns=SEALED_COLUMNS,
        start=start,
    )
