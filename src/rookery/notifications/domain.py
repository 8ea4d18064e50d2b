"""The registration of the notifications domain."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import timedelta

from rookery.kernel.domain import Domain
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.notifications.api import NotificationApi
from rookery.notifications.store import campaigns, host_waits, installation_keys, log, secrets, subscribers
from rookery.notifications.store.tables import SEALED_COLUMNS
from rookery.notifications.wiring import NotificationServices

PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(NotificationServices)
    dispatcher = services.dispatcher
    api = NotificationApi(services, runtime.clock, runtime.settings.organization)
    retention = timedelta(days=runtime.settings.notify_deliveries_days)

    async def delete_old_deliveries() -> int:
        before = runtime.clock() - retention
        return await services.campaigns.delete_old_deliveries(before=before) + await services.log.delete_old_outbox(before=before)

    async def probe_mail() -> str:
        is_refusing = any(wait.is_fault for wait in await services.list_shared_waits())
        return "refuses messages" if is_refusing else "ok"

    async def start(stack: AsyncExitStack, *, serves: bool) -> None:
        del serves  # workers send notifications too
        await dispatcher.start()
        stack.push_async_callback(dispatcher.stop)
        services.channel_checker.start()
        stack.push_async_callback(services.channel_checker.stop)

    return Domain(
        operations=[*((prefix, api.operations()) for prefix in PREFIXES), ("", api.root_operations())],
        tool_servers=[api.server()],
        periodic_tasks=[
            PeriodicTask(name="old notifications", interval_s=3600, run=delete_old_deliveries),
            PeriodicTask(name="idle hosts of notifications", interval_s=3600, run=dispatcher.delete_idle_hosts),
            PeriodicTask(name="journals of dead processes", interval_s=3600, run=services.crash_recovery.delete_old_journals),
            PeriodicTask(name="notification secrets past their grace", interval_s=600, run=services.secrets.delete_expired),
        ],
        purgers=[campaigns.purge, subscribers.purge, host_waits.purge, log.purge, secrets.purge],
        probes={} if runtime.settings.smtp is None else {"mail": probe_mail},
        sealed_columns=[*SEALED_COLUMNS, *installation_keys.SEALED_COLUMNS],
        start=start,
    )
