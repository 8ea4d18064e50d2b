"""The lengths of messages that services take, and texts cut to them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rookery.notifications.messages import ChannelType
from rookery.notifications.models import RenderedMessage

NTFY_MAX_TEXT_BYTES = 4_095
"""The longest text that ntfy shows. It turns a longer one into a file, or refuses it where files are off."""

NTFY_MAX_BODY_BYTES = 8_191
"""The longest request in JSON that ntfy accepts: less than twice the length of a text."""

WEB_PUSH_MAX_TEXT_BYTES = 3_600
"""Bytes of the title, the text and the URL that certainly fit in a push message."""

_ELLIPSIS = "…"


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
