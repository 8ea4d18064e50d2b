"""What of a call's texts may stand in its row: without secrets, short, of characters that every store takes (D-38). Pure."""

from __future__ import annotations

import re
from typing import cast

from rookery.kernel.redaction import redact
from rookery.tools.calling.results import to_json

_MAX_ERROR_LENGTH = 500
_MAX_ARGUMENTS_LENGTH = 4096
_REDACTED = "…"
_SECRET_NAME = re.compile(
    r"passw|pwd|passphrase|secret|token|(?:api|access|private|signing|encryption)[-_ ]?key|authori[sz]ation|bearer|jwt|credential"
    r"|cookie|dsn|connection[-_ ]?string|^(?:pin|otp|cvv|cvc)$",
    re.IGNORECASE,
)
"""Names of arguments whose values are nobody's business, whatever they look like."""


def redact_error(text: str) -> str:
    """Return what is kept of a failure's text."""
    return redact_text(text, _MAX_ERROR_LENGTH)


def redact_arguments(arguments: dict[str, object]) -> str:
    """Return what is kept of a call's arguments: JSON, cut at its end if it is long."""
    return redact_text(to_json(cast("dict[str, object]", _redact_values(arguments))).decode(), _MAX_ARGUMENTS_LENGTH)


def redact_text(text: str, max_length: int) -> str:
    """Return *text* without keys, at most *max_length* characters of it."""
    # Cut after redacting: half of a key would not be known for one.
    shown = redact(text)[:max_length]
    return shown.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _redact_values(value: object) -> object:
    if isinstance(value, dict):
        found = cast("dict[str, object]", value)
        return {name: _REDACTED if _SECRET_NAME.search(name) else _redact_values(each) for name, each in found.items()}
    if isinstance(value, list):
        return [_redact_values(each) for each in cast("list[object]", value)]
    return value
