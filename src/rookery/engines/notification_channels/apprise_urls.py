"""
The Apprise channel: about 150 services, each by a URL. It needs the extra `rookery[apprise]`.

Apprise connects by its own HTTP library. So the egress guard checks only the host in the URL, before the call: neither redirects nor a name
that changes its address in between. The operator switches it on by ROOKERY_APPRISE.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, cast

import apprise

from rookery.kernel.egress import AddressRefused, EgressGuard, HostNotResolved
from rookery.notifications.messages import NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ports import BeginSend, begin_freely

TIMEOUT_S = 20.0
_SOCKET_TIMEOUT_S = 4.0
_LOCAL_PLUGINS = frozenset({"NotifyDBus", "NotifyGLib", "NotifyGnome", "NotifyMacOSX", "NotifyWindows", "NotifySyslog"})
"""Services that would act on the server's own desktop or log."""


class _Plugin(Protocol):
    """The parts of an Apprise service that are used here. The library has no types."""

    socket_connect_timeout: float
    socket_read_timeout: float
    host: str | None
    port: int | None
    smtp_host: str | None

    def notify(self, *, body: str, title: str) -> bool | None: ...


class AppriseChannel:
    """Sends each message by one call with one URL, so that each delivery has its own result."""

    def __init__(self, egress: EgressGuard, *, max_concurrency: int, timeout_s: float = TIMEOUT_S) -> None:
        self.max_concurrency = max_concurrency
        self._egress = egress
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(max_concurrency, thread_name_prefix="apprise")

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        plugin = _create_plugin(message.target.address)
        if plugin is None:
            return SendResult(outcome=SendOutcome.REJECTED, reason="Apprise does not know this URL, or its service is not allowed.")
        try:
            await self._require_allowed(plugin)
        except AddressRefused as error:
            return SendResult(outcome=SendOutcome.REJECTED, reason=error.message)
        body = message.body if message.url is None else f"{message.body}\n\n{message.url}"
        begin()
        sending = asyncio.get_running_loop().run_in_executor(self._threads, _notify, plugin, message.title, body)
        try:
            async with asyncio.timeout(self._timeout_s):
                is_sent = await asyncio.shield(sending)
        except TimeoutError:
            sending.add_done_callback(lambda future: future.cancelled() or future.exception())
            return SendResult(outcome=SendOutcome.UNKNOWN, reason=f"Apprise did not finish within {self._timeout_s:g} seconds.")
        if is_sent:
            return SendResult(outcome=SendOutcome.SENT)
        return SendResult(outcome=SendOutcome.REJECTED, reason="Apprise reports a failure. It does not report the reason.")

    async def check(self) -> None:
        """Do nothing: services have no configuration in common."""

    async def close(self) -> None:
        """Let no further call begin. Calls that run end within their own time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _require_allowed(self, plugin: _Plugin) -> None:
        """Check the hosts of the URL. Services with a host of their own have a token in its place, which is no name of a host."""
        for host in {getattr(plugin, "host", None), getattr(plugin, "smtp_host", None)} - {None, ""}:
            try:
                await self._egress.resolve_allowed(str(host), getattr(plugin, "port", None) or 443)
            except HostNotResolved:
                continue


def _create_plugin(url: str) -> _Plugin | None:
    plugin = cast("_Plugin | None", apprise.Apprise.instantiate(url))  # pyright: ignore[reportUnknownMemberType] - no types
    if plugin is None or type(plugin).__name__ in _LOCAL_PLUGINS:
        return None
    plugin.socket_connect_timeout = plugin.socket_read_timeout = _SOCKET_TIMEOUT_S  # a URL can set others
    return plugin


def _notify(plugin: _Plugin, title: str, body: str) -> bool:
    return bool(plugin.notify(body=body, title=title))
