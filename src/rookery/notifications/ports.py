"""The ports of notification channels: what an engine implements, and the keys that it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rookery.kernel.secret import Secret
from rookery.notifications.messages import NotificationMessage, SendResult

BeginSend = Callable[[], None]
"""Called at the last moment at which a message has certainly not arrived. Nothing is sent if it raises."""


def begin_freely() -> None:
    """Do nothing. For messages that no journal needs to have."""


class NotificationChannel(Protocol):
    """
    A client of one kind of channel. Many messages may be sent at the same time.

    Attributes:
        max_concurrency: Sends at the same time that the service is configured for; the dispatcher starts no more.
    """

    @property
    def max_concurrency(self) -> int: ...

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        """
        Send *message* once and return the outcome. Every wait is bounded.

        A fault of the address, the service or the configuration is an outcome, not an exception. If this is cancelled, the
        outcome is unknown.

        Args:
            begin: Called before the message may be accepted, immediately before the part that completes it is written. It may be called
                again if the message is sent again on a new connection.

        Raises:
            RookeryError: What *begin* raises.
        """
        ...

    async def check(self) -> None:
        """
        Check the configuration that is common to all addresses: keys, address of the server, login.

        Raises:
            ChannelNotReady: It cannot work as configured (`notifications.errors`; a RookeryError with the reason).
        """
        ...

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        ...


class ChannelKeys(Protocol):
    """The keys with which channels sign, created at first use and stored encrypted."""

    async def get_signing_secrets(self, workspace_id: int) -> Sequence[Secret]:
        """
        Return the secrets that sign webhook messages of a workspace, the newest first; two during a grace period.

        Raises:
            EngineUnavailable: They cannot be decrypted.
        """
        ...


class InstallationKeys(Protocol):
    """The keys that the whole installation has, created at first use and stored encrypted."""

    async def get_vapid_key(self) -> Secret:
        """
        Return the private key of Web Push, 32 bytes in base64url.

        Raises:
            EngineUnavailable: It cannot be decrypted.
        """
        ...


class PushKeyHolder(Protocol):
    """The Web Push channel, as far as browsers need it."""

    async def get_public_key(self) -> str:
        """
        Return the public key with which browsers subscribe, in base64url.

        Raises:
            EngineUnavailable: The private key cannot be decrypted.
        """
        ...

    async def find_subject_warning(self) -> str | None:
        """Return why some push services refuse the contact of the operator; None if all accept it."""
        ...
