"""The registration of the webhooks domain."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from rookery.kernel.domain import Domain
from rookery.kernel.events import EventCatalogue
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.webhooks.api import WebhooksApi
from rookery.webhooks.store import endpoints, events
from rookery.webhooks.store.tables import SEALED_COLUMNS
from rookery.webhooks.wiring import WebhookServices


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(WebhookServices)
    dispatcher = services.dispatcher
    api = WebhooksApi(services.endpoints, services.deliveries, runtime.use(EventCatalogue), runtime.clock)
    retention = timedelta(days=runtime.settings.webhook_deliveries_days)

    async def delete_old_deliveries() -> int:
        return await services.deliveries.delete_old(before=runtime.clock() - retention)

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        del serves  # workers send deliveries too
        await dispatcher.start()
        stack.push_async_callback(dispatcher.stop)

    return Domain(
        operations=[("/api/v1", api.operations())],
        periodic_tasks=[
            PeriodicTask(name="old webhook deliveries", interval_s=3600, run=delete_old_deliveries),
            PeriodicTask(name="webhook secrets past their grace", interval_s=600, run=services.endpoints.delete_expired_secrets),
        ],
        purgers=[endpoints.purge, events.purge],
        sealed_columns=SEALED_COLUMNS,
        start=start,
    )
