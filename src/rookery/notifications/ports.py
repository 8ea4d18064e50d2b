"""The ports of notification channels: what an engine implements, the keys that it gets, and the sizes of messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rookery.kernel.secret import Secret
from rookery.notifications.messages import ChannelType, NotificationMessage, SendResult
from rookery.notifications.models import RenderedMessage

BeginSend = Callable[[], None]
"""Called at the last moment at which a message has certainly not arrived. Nothing is sent if it raises."""

NTFY_MAX_TEXT_BYTES = 4_095
"""The longest text that ntfy shows. It turns a longer one into a file, or refuses it where files are off."""

NTFY_MAX_BODY_BYTES = 8_191
"""The longest request in JSON that ntfy accepts: less than twice the length of a text."""

WEB_PUSH_MAX_TEXT_BYTES = 3_600
"""Bytes of the title, the text and the URL that certainly fit in a push message."""

_ELLIPSIS = "…"


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


def shorten(text: str, fits: Callable[[str], bool]) -> str | None:
    """Return *text*, or its longest beginning with an ellipsis for which *fits* returns true; None if not even an ellipsis fits."""
    if fits(text):
        return text
    if not fits(_ELLIPSIS):
        return None
    fitting, too_long = 0, len(text)
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        is_fitting = fits(text[:middle].rstrip() + _ELLIPSIS)
        fitting, too_long = (middle, too_long) if is_fitting else (fitting, middle)
    return text[:fitting].rstrip() + _ELLIPSIS


def find_length_warnings(message: RenderedMessage, kinds: Collection[str]) -> tuple[str, ...]:
    """Return the channels of *kinds* that cut the text of *message*."""
    body_bytes = _count_bytes(message.body)
    warnings = list[str]()
    if ChannelType.NTFY.value in kinds and body_bytes > NTFY_MAX_TEXT_BYTES:
        warnings.append(
            f"ntfy: the text has {body_bytes:,} bytes in UTF-8. ntfy shows at most {NTFY_MAX_TEXT_BYTES:,}, so it is cut there."
        )
    all_bytes = body_bytes + _count_bytes(message.title) + _count_bytes(message.url or "")
    if ChannelType.WEBPUSH.value in kinds and all_bytes > WEB_PUSH_MAX_TEXT_BYTES:
        warnings.append(
            f"webpush: title, text and URL have {all_bytes:,} bytes in UTF-8. About {WEB_PUSH_MAX_TEXT_BYTES:,} fit in a push message, "
            "so the text is cut."
        )
    return tuple(warnings)


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
