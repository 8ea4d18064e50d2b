"""The webhook domain on a real store with a fake clock, for tests of the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.access.audit_log import AuditLog
from rookery.access.models import Actor
from rookery.access.workspaces import Workspaces
from rookery.engines import webhook_client
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.egress import EgressGuard
from rookery.kernel.events import EventBus, EventCatalogue
from rookery.kernel.ids import uuid7
from rookery.kernel.metrics import Metrics
from rookery.kernel.pages import PageSlice
from rookery.kernel.runtime import Runtime
from rookery.kernel.sealing import KeySource, Sealer
from rookery.webhooks.build import WebhookPorts, WebhookServices
from rookery.webhooks.models import OPEN_STATES, Delivery, DeliveryDetails, DeliveryFilter, WebhookEndpoint, WebhookSettings, WebhookTenant
from rookery.webhooks.outbox import NewEvent
from rookery.webhooks.store import deliveries
from tests.conftest import FakeClock, eventually
from tests.webhooks.makers import CATALOGUE

BY = Actor(kind="operator", name="test")


@dataclass
class WebhookRig:
    """The webhook services of one process; `tenant` is a workspace of its own."""

    services: WebhookServices
    db: Database
    clock: FakeClock
    tenant: WebhookTenant

    async def create_endpoint(self, url: str, *, enabled: bool = True, **fields: object) -> WebhookEndpoint:
        """Create an endpoint that is subscribed to all events."""
        new = WebhookSettings(url=url, events=("*",), enabled=enabled, **fields)  # pyright: ignore[reportArgumentType] - fields by name
        return (await self.services.endpoints.create(self.tenant, new)).endpoint

    async def add_events(self, *names: str) -> None:
        """Add one event for each of *names*, in one transaction."""
        events = [
            NewEvent(type=CATALOGUE.by_name["memory.stored"], at=self.clock(), build_data=lambda _, name=name: {"name": name})
            for name in names
        ]
        await self.db.write(lambda tx: self.services.outbox.add_events(tx, self.tenant.workspace_id, events))

    async def list_deliveries(self, endpoint: WebhookEndpoint) -> list[Delivery]:
        """Return the deliveries of *endpoint*, oldest first."""
        page, *_ = await self.services.deliveries.list_page(self.tenant, endpoint.id, DeliveryFilter(), page=PageSlice(2000))
        return sorted(page, key=lambda delivery: delivery.id)

    async def get_delivery(self, endpoint: WebhookEndpoint, position: int = 0) -> DeliveryDetails:
        """Return one delivery with its attempts."""
        return await self.services.deliveries.get(self.tenant, endpoint.id, (await self.list_deliveries(endpoint))[position].id)

    async def list_states(self, endpoint: WebhookEndpoint) -> list[str]:
        """Return the states of its deliveries, oldest first."""
        return [delivery.state.value for delivery in await self.list_deliveries(endpoint)]

    async def wait_until_finished(self, endpoint: WebhookEndpoint) -> list[Delivery]:
        """Wait until no delivery is open and return all."""

        def count_open(tx: Tx) -> int:
            filters = (DeliveryFilter(state=state) for state in OPEN_STATES)
            return sum(deliveries.list_page(tx, endpoint.workspace_id, endpoint.id, filter_, page=PageSlice(1))[1] for filter_ in filters)

        async def none_is_open() -> bool:
            return not await self.db.read(count_open)

        await eventually(none_is_open)
        return await self.list_deliveries(endpoint)

    async def wait_for_attempts(self, endpoint: WebhookEndpoint, times: int, position: int = 0) -> DeliveryDetails:
        """Wait until a delivery has *times* recorded attempts and return it."""

        async def find_details() -> DeliveryDetails | None:
            details = await self.get_delivery(endpoint, position)
            return details if len(details.attempts) == times and details.attempts[-1].outcome is not None else None

        details = await eventually(find_details)
        assert details is not None
        return details

    async def advance_clock(self, **units: float) -> None:
        """Advance the clock and wake the dispatcher."""
        self.clock.advance(**units)
        self.services.dispatcher.wake()
        await asyncio.sleep(0)


@asynccontextmanager
async def run_webhooks(
    db: Database,
    data_dir: Path,
    clock: FakeClock,
    *,
    egress: EgressGuard | None = None,
    tenant: WebhookTenant | None = None,
    is_dispatching: bool = True,
) -> AsyncGenerator[WebhookRig]:
    """Run the webhooks of one process on *db* until the block ends."""
    settings = Settings(data_dir=data_dir)
    sealer = Sealer(db, KeySource(data_dir, configured=None, previous=None), [], clock)
    await sealer.start()
    guard = egress or EgressGuard(allow=["127.0.0.0/8"])
    runtime = Runtime(settings, db=db, bus=EventBus(), clock=clock, ids=uuid7)
    runtime.provide(Metrics, lambda _: Metrics())
    runtime.provide(Sealer, lambda _: sealer)
    runtime.provide(EgressGuard, lambda _: guard)
    runtime.provide(EventCatalogue, lambda _: CATALOGUE)
    runtime.provide(WebhookPorts, lambda _: WebhookPorts(open_client=lambda: webhook_client.open(guard)))
    services = runtime.use(WebhookServices)
    services.dispatcher.stop_timeout_s = 0.1
    if tenant is None:
        workspace = await Workspaces(db, AuditLog(db, clock), clock).create(f"of {uuid7()}", by=BY)
        tenant = WebhookTenant.for_operator(workspace.id, BY)
    running = WebhookRig(services, db, clock, tenant)
    if is_dispatching:
        await services.dispatcher.start()
    try:
        yield running
    finally:
        await services.dispatcher.stop()
        await services.client.close()
