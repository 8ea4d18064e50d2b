"""The reason that the body of an error response gives, as one short line of text. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

import orjson

from rookery.kernel.redaction import redact

_MAX_REASON_CHARS = 300
_MAX_DEPTH = 3
_REASON_FIELDS = ("message", "error_description", "detail", "error", "title", "msg", "errors", "reason")
"""Fields of a JSON body that hold a reason, or an object or a list with one, in order of preference."""

_PLAIN_TYPES = frozenset({"", "text/plain", "application/json", "application/problem+json"})
_HTML = re.compile(r"\A\s*<|</[a-z]|<!doctype|<br\b", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\s]+")
_MIN_SECRET_CHARS = 6
"""Shorter values are not redacted, because they occur in ordinary words."""


def find_reason(content_type: str, body: bytes, secrets: Iterable[str]) -> str:
    """Return the reason in *body* without *secrets*; empty if it has none, or is HTML or too long to be a message."""
    text = _find_text(content_type.partition(";")[0].strip().lower(), body)
    if text is None or _HTML.search(text):
        return ""
    line = _UNPRINTABLE.sub(" ", redact_reason(text, secrets)).strip()
    return line if len(line) <= _MAX_REASON_CHARS else line[: _MAX_REASON_CHARS - 1].rstrip() + "…"


def redact_reason(text: str, secrets: Iterable[str]) -> str:
    """Return *text* without *secrets*, and without keys and other credentials."""
    # With and without a scheme such as Bearer.
    hidden = {part for secret in secrets for part in (secret, secret.rpartition(" ")[2]) if len(part) >= _MIN_SECRET_CHARS}
    for value in sorted(hidden, key=len, reverse=True):
        text = text.replace(value, "***")
    return redact(text)


def _find_text(media_type: str, body: bytes) -> str | None:
    if "html" in media_type:
        return None
    try:
        document: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _find_plain_text(body) if media_type in _PLAIN_TYPES else None
    return _find_in_json(document, _MAX_DEPTH)


def _find_in_json(value: object, depth: int) -> str | None:
    if isinstance(value, str):
        return value.strip() or None
    if depth == 0:
        return None
    if isinstance(value, list):
        items = cast("list[object]", value)
        return _find_in_json(items[0], depth - 1) if items else None
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        texts = (_find_in_json(fields.get(name), depth - 1) for name in _REASON_FIELDS)
        return next((text for text in texts if text is not None), None)
    return None


def _find_plain_text(body: bytes) -> str | None:
    """Return a short text, or a short first line of a longer one. Anything else is not a message."""
    try:
        text = body.decode().strip()
    except UnicodeDecodeError:
        return None
    if len(text) > _MAX_REASON_CHARS:
        text = text.split("\n", 1)[0].strip()
    return text if 0 < len(text) <= _MAX_REASON_CHARS else None
