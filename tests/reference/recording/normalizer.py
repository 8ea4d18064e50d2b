"""Normalization of responses into examples: short, stable, and without secrets. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

START = datetime(2027, 3, 1, 9, 30, tzinfo=UTC)
"""The start of the story, by its server's clock."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
_TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(sk_live_|sk_test_|ak_|whsec_)[A-Za-z0-9+/=]{16,}"), r"\1EXAMPLE"),
    (re.compile(r"\b(sk_live_|sk_test_|ak_|whsec_)[A-Za-z0-9+/]{4,}\.\.\."), r"\1EXAMPLE..."),
    (re.compile(r"\bevt_[A-Za-z0-9]{24}\b"), "evt_" + "0" * 23 + "1"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "0" * 31 + "1"),
    (re.compile(r"(/notify/(?:un)?subscribe/)[\w.~-]+"), r"\1EXAMPLE"),
    (re.compile(r"\breq_[A-Za-z0-9_-]{8,}"), "req_EXAMPLE"),
    (re.compile(r"http%3A%2F%2F127\.0\.0\.1%3A8400"), "https%3A%2F%2Frookery.example.org"),
    (re.compile(r"http%3A%2F%2F127\.0\.0\.1%3A\d+"), "https%3A%2F%2Ftools.example.org"),
    (re.compile(r"(_bucket\{[^}]*\}) [0-9.]+"), r"\1 12.0"),
    (re.compile(r"https?://(?:127\.0\.0\.1:8400|localhost(?::8400)?)"), "https://rookery.example.org"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "https://tools.example.org"),
    (re.compile(r"\blocalhost/"), "org.example.rookery/"),
    (re.compile(r"\b127\.0\.0\.1\b"), "192.0.2.17"),
    (re.compile(r"((?:code|code_challenge|client_id)=|state=(?=[\w.~-]{16}))[^&\"\s]+"), r"\1EXAMPLE"),
)
_SECRETS = frozenset({"claim_token", "prefix", "key_prefix", "fingerprint", "request_id", "request_state"})
_SECRET_INPUTS = frozenset({"claim_token", "code"})
_MIN_LOGIN_STATE_CHARS = 16
"""A shorter `state` is not that of a login, but one of a task or a memory."""
_RANDOM_FIELDS = {"hash": "5" * 64, "public_key": "EXAMPLE", "previous": "4" * 64, "seen_at": "2027-03-01T09:30:00.000000Z"}
"""Fields that depend on random values, or on the time of a listing."""

_EXAMPLE = "EXAMPLE"
_MAX_OBJECTS, _MAX_VALUES = 1, 6


def shorten(value: object) -> object:
    """Return *value* with lists of objects cut to one, and others to a few."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        max_items = _MAX_OBJECTS if any(isinstance(item, dict) for item in items) else _MAX_VALUES
        return [shorten(item) for item in items[:max_items]]
    if isinstance(value, dict):
        return {name: shorten(field) for name, field in cast("dict[str, object]", value).items()}
    return value


def _is_secret_input(name: str, value: object) -> bool:
    return name in _SECRET_INPUTS or (name == "state" and isinstance(value, str) and len(value) >= _MIN_LOGIN_STATE_CHARS)


class Normalizer:
    """A normalizer that replaces values that differ between runs; ids are numbered in order of appearance."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def normalize_request(self, value: object) -> object:
        """Return a request value as an example shows it; chosen numbers stay."""
        if isinstance(value, dict):
            return {
                name: _EXAMPLE if _is_secret_input(name, field) else self.normalize_request(field)
                for name, field in cast("Mapping[str, object]", value).items()
            }
        if isinstance(value, list):
            return [self.normalize_request(item) for item in cast("list[object]", value)]
        return self._normalize_text(value) if isinstance(value, str) else value

    def normalize_response(self, value: object, name: str = "") -> object:
        """Return *value*, the field *name* of a response, as an example shows it."""
        if isinstance(value, dict):
            return {
                self._normalize_text(key): self.normalize_response(field, key) for key, field in cast("Mapping[str, object]", value).items()
            }
        if isinstance(value, list):
            return [self.normalize_response(item, name) for item in cast("list[object]", value)]
        if isinstance(value, str):
            return _EXAMPLE if name in _SECRETS else _RANDOM_FIELDS.get(name, self._normalize_text(value))
        if isinstance(value, float):
            return _normalize_float(name, value)
        if isinstance(value, int) and not isinstance(value, bool) and _is_measured(name):
            return 12
        return value

    def _normalize_text(self, value: str) -> str:
        for pattern, placeholder in _TEXTS:
            value = pattern.sub(placeholder, value)
        value = _UUID.sub(lambda match: self._ids.setdefault(match[0], f"01954000-0000-7000-8000-{len(self._ids) + 1:012d}"), value)
        return _TIME.sub(_normalize_time, value)


def _is_measured(name: str) -> bool:
    return name.endswith(("_ms", "_bytes")) or name in {"pid", "port", "expires_in", "size"}


def _normalize_float(name: str, value: float) -> float:
    return 12.5 if _is_measured(name) else round(value, 2)


def _normalize_time(match: re.Match[str]) -> str:
    """Return a time of the story's clock unchanged, and any other time as the start of the story."""
    at = datetime.fromisoformat(match[0])
    return match[0] if at >= START.replace(hour=0, minute=0) else START.isoformat().replace("+00:00", "Z")
