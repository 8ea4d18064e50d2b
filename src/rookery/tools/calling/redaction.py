"""Redaction of texts for call records: no secrets, limited length, and only characters that every store accepts."""

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
"""Argument names whose values are always redacted."""


def redact_error(text: str) -> str:
    """Return a failure's error message in the form in which it is stored."""
    return redact_text(text, _MAX_ERROR_LENGTH)


def redact_arguments(arguments: dict[str, object]) -> str:
    """Return a call's arguments as stored: JSON, truncated at the end if it is long."""
    return redact_text(to_json(cast("dict[str, object]", _redact_values(arguments))).decode(), _MAX_ARGUMENTS_LENGTH)


def redact_text(text: str, max_length: int) -> str:
    """Return *text* with secrets redacted, truncated to *max_length* characters."""
    # Truncate after redacting: half a key would not be recognised.
    short_text = redact(text)[:max_length]
    return short_text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _redact_values(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _REDACTED if _SECRET_NAME.search(name) else _redact_values(item) for name, item in fields.items()}
    if isinstance(value, list):
        return [_redact_values(item) for item in cast("list[object]", value)]
    return value
