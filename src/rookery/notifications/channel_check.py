"""Checks the channels that the operator configured, before a campaign needs them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import structlog

from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.installation_keys import InstallationKeyStore
from rookery.notifications.messages import ChannelType
from rookery.notifications.ports import NotificationChannel, PushKeyHolder

CHECK_TIMEOUT_S = 20.0

_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCheck:
    """
    The result of the check of one channel.

    Attributes:
        fault: Why the channel cannot send; None if it can.
        warning: Why some services may refuse its messages.
    """

    channel: ChannelType
    fault: str | None = None
    warning: str | None = None


class ChannelChecker:
    """
    Checks the SMTP server if it is set, and the VAPID key if it is set or was created. Nothing is sent or created.

    Args:
        timeout_s: Time limit of each check.
    """

    def __init__(
        self,
        channels: Mapping[ChannelType, NotificationChannel],
        keys: InstallationKeyStore,
        settings: Settings,
        *,
        timeout_s: float = CHECK_TIMEOUT_S,
    ) -> None:
        self._channels = channels
        self._keys = keys
        self._settings = settings
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None

    async def check_all(self) -> list[ChannelCheck]:
        """Return the results in the order of the names; empty if nothing is configured."""
        kinds = list[ChannelType]()
        if self._settings.smtp is not None:
            kinds.append(ChannelType.EMAIL)
        if self._settings.vapid_private_key is not None or await self._keys.has_vapid_key():
            kinds.append(ChannelType.WEBPUSH)
        return await asyncio.gather(*(self._check(kind) for kind in kinds))

    def start(self) -> None:
        """Check in the background and log the faults. The server does not wait for it."""
        self._task = asyncio.create_task(self._log_faults(), name="notifications-channel-check")

    async def stop(self) -> None:
        """Cancel a check that still runs. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _check(self, kind: ChannelType) -> ChannelCheck:
        channel = self._channels[kind]
        try:
            async with asyncio.timeout(self._timeout_s):
                await channel.check()
                warning = await cast("PushKeyHolder", channel).find_subject_warning() if kind is ChannelType.WEBPUSH else None
        except TimeoutError:
            return ChannelCheck(channel=kind, fault=f"The check did not finish within {self._timeout_s:g} seconds.")
        except ChannelNotReady as error:
            return ChannelCheck(channel=kind, fault=error.reason)
        except RookeryError as error:
            return ChannelCheck(channel=kind, fault=error.message)
        return ChannelCheck(channel=kind, warning=warning)

    async def _log_faults(self) -> None:
        try:
            checks = await self.check_all()
        except Exception as error:  # noqa: BLE001 - a failed check stops nothing; campaigns report the same fault
            _log.warning("notifications.check_failed", reason=str(error))
            return
        for check in checks:
            if check.fault is not None:
                _log.warning("notifications.channel_not_ready", channel=check.channel.value, reason=check.fault)
            elif check.warning is not None:
                _log.warning("notifications.channel_warning", channel=check.channel.value, reason=check.warning)
