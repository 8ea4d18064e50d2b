"""The services of notifications, each built on first use, and the registration of the domain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import cast

from rookery.access.build import AccessServices
from rookery.access.workspaces import Workspaces
from rookery.kernel.data_folder import JOURNAL_FOLDER
from rookery.kernel.delivery_engine import Signal
from rookery.kernel.domain import Domain
from rookery.kernel.egress import EgressGuard
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer, drop_empty_fields
from rookery.kernel.metrics import Metrics
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.sealing import Sealer
from rookery.notifications import tool_declarations
from rookery.notifications.api.campaigns import CampaignApi
from rookery.notifications.api.deliveries import NotificationLogApi
from rookery.notifications.api.pages import PublicPages
from rookery.notifications.api.public import PublicApi
from rookery.notifications.api.subscribers import SubscriberApi
from rookery.notifications.campaign_progress import CampaignProgress
from rookery.notifications.campaigns import Campaigns
from rookery.notifications.channel_check import ChannelChecker
from rookery.notifications.channel_secrets import ChannelSecrets
from rookery.notifications.crash_recovery import CrashRecovery
from rookery.notifications.deliveries_log import NotificationLog
from rookery.notifications.delivery_counters import DeliveryCounters
from rookery.notifications.dispatcher import CampaignDispatcher
from rookery.notifications.installation_keys import InstallationKeyStore
from rookery.notifications.links import UNSUBSCRIBE_PATH, PublicLinks
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import HostWait
from rookery.notifications.pacing import HostRate, SendSlots
from rookery.notifications.ports import ChannelKeys, InstallationKeys, NotificationChannel, PushKeyHolder
from rookery.notifications.public_subscriptions import PublicSubscriptions
from rookery.notifications.send_journal import SendJournal
from rookery.notifications.sending import NotificationSender
from rookery.notifications.store import campaigns, host_waits, installation_keys, log, secrets, subscribers
from rookery.notifications.store.tables import SEALED_COLUMNS
from rookery.notifications.subscriber_import import SubscriberImport
from rookery.notifications.subscribers import Subscribers


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationPorts:
    """The implementations that notifications get from engines: the channels that this installation has."""

    open_channels: Callable[[ChannelKeys, InstallationKeys], Mapping[ChannelType, NotificationChannel]]


class NotificationServices:
    """Subscribers, campaigns, and the dispatcher that sends them."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._access = runtime.use(AccessServices)
        self._due = Signal()

    @cached_property
    def subscribers(self) -> Subscribers:
        runtime = self._runtime
        return Subscribers(runtime.db, self._access.audit, runtime.use(EgressGuard), bus=runtime.bus, clock=runtime.clock, ids=runtime.ids)

    @cached_property
    def subscriber_import(self) -> SubscriberImport:
        runtime = self._runtime
        return SubscriberImport(
            runtime.db, self._access.audit, runtime.use(EgressGuard), bus=runtime.bus, clock=runtime.clock, ids=runtime.ids
        )

    @cached_property
    def campaigns(self) -> Campaigns:
        runtime = self._runtime
        return Campaigns(runtime.db, self._access.audit, bus=runtime.bus, clock=runtime.clock, ids=runtime.ids, wake=self._due.send)

    @cached_property
    def log(self) -> NotificationLog:
        return NotificationLog(self._runtime.db)

    @cached_property
    def secrets(self) -> ChannelSecrets:
        runtime = self._runtime
        return ChannelSecrets(runtime.db, runtime.use(Sealer), self._access.audit, clock=runtime.clock, ids=runtime.ids)

    @cached_property
    def campaign_operations(self) -> list[Operation]:
        return CampaignApi(self.campaigns, self._runtime.clock).operations()

    @cached_property
    def operations(self) -> list[Operation]:
        """The operations, without those of public pages."""
        subscribing = SubscriberApi(self.subscribers, self.subscriber_import).operations()
        return [*subscribing, *self.campaign_operations, *NotificationLogApi(self.log, self.secrets).operations()]

    @property
    def workspaces(self) -> Workspaces:
        return self._access.workspaces

    @cached_property
    def installation_keys(self) -> InstallationKeyStore:
        return InstallationKeyStore(self._runtime.db, self._runtime.use(Sealer), self._runtime.clock)

    @cached_property
    def channels(self) -> Mapping[ChannelType, NotificationChannel]:
        """The channels, closed with the runtime."""
        channels = self._runtime.use(NotificationPorts).open_channels(self.secrets, self.installation_keys)
        for channel in channels.values():
            self._runtime.on_close(channel.close)
        return channels

    @cached_property
    def channel_checker(self) -> ChannelChecker:
        return ChannelChecker(self.channels, self.installation_keys, self._runtime.settings)

    @cached_property
    def dispatcher(self) -> CampaignDispatcher:
        runtime = self._runtime
        channels = self.channels
        # A type without an engine has a slot too, so that its campaigns pause with the reason.
        host_rate = runtime.settings.notify_host_rate
        limits = {kind: channels[kind].max_concurrency if kind in channels else 1 for kind in ChannelType}
        return CampaignDispatcher(
            db=runtime.db,
            due=self._due,
            sender=NotificationSender(
                channels=channels, clock=runtime.clock, ids=runtime.ids, build_unsubscribe_url=self.links.build_unsubscribe_url
            ),
            progress=self.progress,
            recovery=self.crash_recovery,
            journal=self.send_journal,
            counters=DeliveryCounters(runtime.use(Metrics), runtime.db, runtime.clock),
            slots=SendSlots(limits, runtime.settings.notify_host_concurrency),
            clock=runtime.clock,
            ids=runtime.ids,
            host_rate=None if host_rate is None else HostRate(host_rate),
            shares=runtime.shares,
            lease_s=runtime.settings.job_lease_s,
        )

    @cached_property
    def progress(self) -> CampaignProgress:
        runtime = self._runtime
        return CampaignProgress(runtime.db, self._access.audit, bus=runtime.bus, clock=runtime.clock)

    @cached_property
    def send_journal(self) -> SendJournal:
        return SendJournal(self._runtime.settings.data_dir / JOURNAL_FOLDER)

    @cached_property
    def crash_recovery(self) -> CrashRecovery:
        return CrashRecovery(self._runtime.db, self.progress, self.send_journal, self._runtime.clock)

    @cached_property
    def links(self) -> PublicLinks:
        settings = self._runtime.settings
        address = settings.public_url_of(UNSUBSCRIBE_PATH)
        return PublicLinks(
            self.installation_keys.get_link_key,
            self._runtime.clock,
            base_url=address if settings.has_public_urls else None,
            local_url=address,
        )

    @cached_property
    def public_subscriptions(self) -> PublicSubscriptions:
        return PublicSubscriptions(self.subscribers, self.links, self._runtime.clock)

    async def list_shared_waits(self) -> list[HostWait]:
        """Return the waits that concern all workspaces: that of the mail server, if it takes no messages for now."""
        return await self._runtime.db.lookup(host_waits.list_shared)

    async def get_vapid_public_key(self) -> str:
        """Return the key with which browsers subscribe."""
        return await cast("PushKeyHolder", self.channels[ChannelType.WEBPUSH]).get_public_key()


PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services = runtime.use(NotificationServices)
    dispatcher = services.dispatcher
    public = PublicApi(
        services.subscribers,
        services.links,
        services.public_subscriptions,
        PublicPages(runtime.settings.organization),
        services.get_vapid_public_key,
    )
    operations = [*services.operations, *public.operations()]
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
        operations=[*((prefix, operations) for prefix in PREFIXES), ("", public.root_operations())],
        tool_servers=[OperationServer(services.campaign_operations, tool_declarations.SERVER, compact=drop_empty_fields)],
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
