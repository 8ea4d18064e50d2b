"""The services of webhooks, each built on first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from rookery.access.wiring import AccessServices
from rookery.kernel.delivery_engine import Signal
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventCatalogue
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import Runtime
from rookery.kernel.sealing import Sealer
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.dispatcher import DeliveryMetrics, Dispatcher
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.ports import WebhookClient
from rookery.webhooks.sender import DeliverySender


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
