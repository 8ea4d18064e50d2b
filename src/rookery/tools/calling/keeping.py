"""What of a call's texts may stand in its row: without secrets, short, of characters that every store takes (D-38). Pure."""

from __future__ import annotations

import re
from typing import cast

from rookery.kernel.redaction import redact
from rookery.tools.calling.results import as_json

_MAX_ERROR = 500
_MAX_ARGUMENTS = 4096
_CUT = "…"
_SECRET = re.compile(
    r"passw|pwd|passphrase|secret|token|(?:api|access|private|signing|encryption)[-_ ]?key|authori[sz]ation|bearer|jwt|credential"
    r"|cookie|dsn|connection[-_ ]?string|^(?:pin|otp|cvv|cvc)$",
    re.IGNORECASE,
)
"""Names of arguments whose values are nobody's business, whatever they look like."""


def kept_error(text: str) -> str:
    """Return what is kept of a failure's text."""
    return kept_text(text, _MAX_ERROR)


def kept_arguments(arguments: dict[str, object]) -> str:
    """Return what is kept of a call's arguments: JSON, cut at its end if it is long."""
    return kept_text(as_json(cast("dict[str, object]", _without_secrets(arguments))).decode(), _MAX_ARGUMENTS)


def kept_text(text: str, most: int) -> str:
    """Return *text* without keys, at most *most* characters of it."""
    # Cut after redacting: half of a key would not be known for one.
    shown = redact(text)[:most]
    return shown.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _without_secrets(value: object) -> object:
    if isinstance(value, dict):
        found = cast("dict[str, object]", value)
        return {name: _CUT if _SECRET.search(name) else _without_secrets(each) for name, each in found.items()}
    if isinstance(value, list):
        return [_without_secrets(each) for each in cast("list[object]", value)]
    return value
