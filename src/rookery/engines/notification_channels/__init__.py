"""The channels of notifications. Their libraries are imported with the first message, so that other starts do not wait for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import cast

from rookery.engines.notification_channels.smtp_address import SmtpServer, parse_smtp_address
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import WrongSettings
from rookery.kernel.imports import import_in_thread
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelType, NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ports import BeginSend, ChannelKeys, InstallationKeys, NotificationChannel, PushKeyHolder, begin_freely

__all__ = ["LOCAL_SUBJECT", "get_vapid_subject", "open"]

LOCAL_SUBJECT = "mailto:rookery@localhost"
"""The contact of an installation without a public address. Apple's push service refuses it."""

_WEBHOOK_CONCURRENCY = 64
_NTFY_CONCURRENCY = 16
_WEB_PUSH_CONCURRENCY = 64
_APPRISE_CONCURRENCY = 8


class LazyChannel:
    """A `NotificationChannel` that creates the real one with *load* when it is first used."""

    def __init__(self, load: Callable[[], NotificationChannel], *, max_concurrency: int) -> None:
        self.max_concurrency = max_concurrency
        self._load = load
        self._loading: asyncio.Future[NotificationChannel] | None = None

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        """Send a message. The first calls wait for the import, which runs in a thread and does not block the event loop."""
        return await (await self._get()).send(message, begin)

    async def check(self) -> None:
        await (await self._get()).check()

    async def close(self) -> None:
        loading, self._loading = self._loading, None
        if loading is not None:
            await (await loading).close()

    async def _get(self) -> NotificationChannel:
        if self._loading is None:
            self._loading = asyncio.ensure_future(import_in_thread(self._load))
        return self._loading.result() if self._loading.done() else await asyncio.shield(self._loading)


class LazyWebPush(LazyChannel):
    """The Web Push channel, which also returns its public key."""

    async def get_public_key(self) -> str:
        return await cast("PushKeyHolder", await self._get()).get_public_key()

    async def find_subject_warning(self) -> str | None:
        return await cast("PushKeyHolder", await self._get()).find_subject_warning()


class UnsetChannel:
    """A channel without the settings that it needs. *reason*: what to set."""

    max_concurrency = 1

    def __init__(self, channel: ChannelType, reason: str) -> None:
        self._channel = channel
        self._reason = reason

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        del message, begin
        return SendResult(outcome=SendOutcome.BLOCKED, reason=self._reason)

    async def check(self) -> None:
        raise ChannelNotReady(self._channel, self._reason)

    async def close(self) -> None:
        """Do nothing."""


def open(  # noqa: A001 - each engine folder has an `open`
    settings: Settings, egress: EgressGuard, keys: ChannelKeys, installation_keys: InstallationKeys, *, clock: Clock = utc_now
) -> Mapping[ChannelType, NotificationChannel]:
    """
    Return the channels. Nothing is connected before a message is sent. The addresses of the operator are checked at once.

    Args:
        egress: Allows the addresses of subscribers. Each new connection is checked again. It does not apply to the SMTP server,
            which the operator chooses.

    Raises:
        WrongSettings: ROOKERY_SMTP, ROOKERY_DKIM_KEY, ROOKERY_VAPID_PRIVATE_KEY or ROOKERY_VAPID_SUBJECT is invalid.
    """

    def load_webhook() -> NotificationChannel:
        from rookery.engines.notification_channels.webhook import WebhookChannel

        return WebhookChannel(egress, keys, clock, max_concurrency=_WEBHOOK_CONCURRENCY)

    def load_ntfy() -> NotificationChannel:
        from rookery.engines.notification_channels.ntfy import NtfyChannel

        return NtfyChannel(egress, clock, max_concurrency=_NTFY_CONCURRENCY)

    if settings.vapid_private_key is not None:
        from rookery.engines.notification_channels.vapid import parse_configured_key

        parse_configured_key(settings.vapid_private_key)

    def load_web_push() -> NotificationChannel:
        from rookery.engines.notification_channels.vapid import VapidKeys
        from rookery.engines.notification_channels.webpush import WebPushChannel

        return WebPushChannel(
            egress,
            VapidKeys(settings.vapid_private_key, installation_keys).load,
            clock,
            subject=get_vapid_subject(settings),
            default_url=settings.public_url_of("/"),
            max_concurrency=_WEB_PUSH_CONCURRENCY,
        )

    server = None if settings.smtp is None else parse_smtp_address(settings.smtp.reveal())
    selector = _require_matching_selector(settings, server)
    signer = None
    if settings.dkim_key is not None and server is not None:
        from rookery.engines.notification_channels.dkim import DkimSigner

        signer = DkimSigner(settings.dkim_key, domain=server.sender.domain, selector=selector)

    def load_email(server: SmtpServer) -> NotificationChannel:
        from rookery.engines.notification_channels.smtp import EmailChannel

        return EmailChannel(server, clock, tls=_create_tls_context(verify=settings.verify_ssl), signer=signer)

    def load_apprise() -> NotificationChannel:
        from rookery.engines.notification_channels.apprise_urls import AppriseChannel

        return AppriseChannel(egress, max_concurrency=_APPRISE_CONCURRENCY)

    apprise_fault = _find_apprise_fault(settings)
    return {
        ChannelType.APPRISE: UnsetChannel(ChannelType.APPRISE, apprise_fault)
        if apprise_fault
        else LazyChannel(load_apprise, max_concurrency=_APPRISE_CONCURRENCY),
        ChannelType.EMAIL: UnsetChannel(ChannelType.EMAIL, "ROOKERY_SMTP is not set, the address of an SMTP server.")
        if server is None
        else LazyChannel(partial(load_email, server), max_concurrency=server.connections),
        ChannelType.WEBHOOK: LazyChannel(load_webhook, max_concurrency=_WEBHOOK_CONCURRENCY),
        ChannelType.NTFY: LazyChannel(load_ntfy, max_concurrency=_NTFY_CONCURRENCY),
        ChannelType.WEBPUSH: LazyWebPush(load_web_push, max_concurrency=_WEB_PUSH_CONCURRENCY),
    }


def get_vapid_subject(settings: Settings) -> str:
    """Return the contact that push services see: the setting, else the public URL, else the sender of mails."""
    if settings.vapid_subject is not None:
        return settings.vapid_subject
    url = settings.public_url_of("/")
    if url.startswith("https://") or settings.smtp is None:
        return url if url.startswith("https://") else LOCAL_SUBJECT
    return f"mailto:{parse_smtp_address(settings.smtp.reveal()).sender}"


def _require_matching_selector(settings: Settings, server: SmtpServer | None) -> str:
    """Return the selector of the DKIM key; empty without one. Raises `WrongSettings` for half of the settings."""
    selector = (server and server.dkim_selector) or ""
    if (settings.dkim_key is None) != (not selector):
        raise WrongSettings("ROOKERY_DKIM_KEY and dkim_selector in ROOKERY_SMTP belong together: set both or none")
    return selector


def _find_apprise_fault(settings: Settings) -> str | None:
    if not settings.apprise:
        return "ROOKERY_APPRISE is not true. It lets subscribers use Apprise URLs."
    return "Apprise is not installed. Run: pip install 'rookery[apprise]'" if find_spec("apprise") is None else None


def _create_tls_context(*, verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
