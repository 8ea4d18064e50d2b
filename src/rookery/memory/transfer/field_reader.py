"""Validation of imported fields, with the limits of D-40. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast

from rookery.kernel.clock import parse_iso, to_micros
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import is_uuid
from rookery.memory.merging import MAX_CONTENT_CHARS, MAX_TAGS
from rookery.memory.metadata import validate_metadata as check_metadata
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.records import require_owner

TYPE_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,63}")
TYPE_RULE = "a type has 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter"
"""`TYPE_PATTERN` in words, for errors."""

MAX_TAG_CHARS = 128
MAX_NAME_CHARS = 100
MAX_PROJECT_CHARS = 255
_MAX_RUN_CHARS = 200

_SCOPES = {scope.value: scope for scope in MemoryScope}
_MAX_SHOWN_CHARS = 40

_FIRST_MICROS = to_micros(datetime(1, 1, 2, tzinfo=UTC))
_LAST_MICROS = to_micros(datetime(9999, 12, 30, tzinfo=UTC))


class FieldReader:
    """A reader of the fields of one object. Each method raises `ValidationFailed` with the field's name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a required string."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise field_error(name, "is missing" if value is None else f"must be a string, not {_describe(value)}")
        return value

    def maybe_text(self, name: str) -> str | None:
        """Return a string, or None if it is missing."""
        return None if self._values.get(name) is None else self.text(name)

    def uuid(self, name: str) -> str:
        """Return a required UUID, in lower case."""
        text = self.text(name).lower()
        if not is_uuid(text):
            raise field_error(name, f"must be a UUID, not {_describe(text)}")
        return text

    def maybe_uuid(self, name: str) -> str | None:
        """Return a UUID, or None if it is missing."""
        return None if self._values.get(name) is None else self.uuid(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number from 0 to 1, or *default* if it is missing."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise field_error(name, "is missing" if value is None else f"must be a number, not {_describe(value)}")
        if not 0 <= value <= 1:
            raise field_error(name, f"must be from 0 to 1, not {_describe(value)}")
        return float(value)

    def count(self, name: str) -> int:
        """Return a required integer of 0 or more."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CONTENT_CHARS:
            raise field_error(name, f"must be an integer from 0 to {MAX_CONTENT_CHARS:,}, not {_describe(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a required boolean."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise field_error(name, f"must be true or false, not {_describe(value)}")
        return value

    def moment(self, name: str) -> datetime:
        """Return a required time."""
        moment = self.maybe_moment(name)
        if moment is None:
            raise field_error(name, "is missing")
        return moment

    def maybe_moment(self, name: str) -> datetime | None:
        """Return a time, or None if it is missing. YAML gives times and dates as such, JSON as text."""
        value = self._values.get(name)
        if isinstance(value, date):
            value = value.isoformat()
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise field_error(name, f"must be an ISO 8601 time, not {_describe(value)}")
        try:
            moment = parse_iso(value)
        except ValueError as error:
            raise field_error(name, f"must be an ISO 8601 time, not {_describe(value)}") from error
        if not _FIRST_MICROS <= to_micros(moment) <= _LAST_MICROS:
            raise field_error(name, f"{_describe(value)} is out of range; times must be in the years 1 to 9999")
        return moment

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, empty if it is missing."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise field_error(name, f"must be a list of strings, not {_describe(value)}")
        items = cast("Sequence[object]", value)
        if not all(isinstance(item, str) for item in items):
            raise field_error(name, "must be a list of strings")
        return tuple(cast("Sequence[str]", items))

    def maybe_object(self, name: str) -> dict[str, object]:
        """Return an object with string keys, empty if it is missing."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise field_error(name, f"must be an object, not {_describe(value)}")
        if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            raise field_error(name, "must have only strings as keys")
        return cast("dict[str, object]", value)

    def scope(self, name: str, default: MemoryScope | None = None) -> MemoryScope:
        """Return a scope, or *default* if it is missing."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in _SCOPES:
            raise field_error(name, f"must be one of {', '.join(_SCOPES)}, not {_describe(value)}")
        return _SCOPES[value]


def validate_memory(memory: Memory) -> None:
    """
    Check that *memory* is one that `remember` could have stored (D-40).

    Raises:
        ValidationFailed: A field is invalid.
    """
    if not memory.content.strip():
        raise field_error("content", "must not be blank")
    if len(memory.content) > MAX_CONTENT_CHARS:
        raise field_error("content", f"must have at most {MAX_CONTENT_CHARS:,} characters, not {len(memory.content):,}")
    if TYPE_PATTERN.fullmatch(memory.type) is None:
        raise field_error("type", f"{_describe(memory.type)} is not a valid type; {TYPE_RULE}")
    if len(memory.tags) > MAX_TAGS:
        raise field_error("tags", f"must have at most {MAX_TAGS} items, not {len(memory.tags)}")
    for tag in memory.tags:
        _validate_name("tags", tag, max_chars=MAX_TAG_CHARS)
    for name, value, max_chars in (
        ("org", memory.org, MAX_NAME_CHARS),
        ("project", memory.project, MAX_PROJECT_CHARS),
        ("agent_id", memory.agent_id, MAX_NAME_CHARS),
        ("session_id", memory.session_id, MAX_NAME_CHARS),
        ("source", memory.source, MAX_NAME_CHARS),
    ):
        if value is not None:
            _validate_name(name, value, max_chars=max_chars)
    for text in (memory.content, memory.source, *memory.tags):
        _validate_storable(text)
    try:
        check_metadata(memory.metadata)
    except ValueError as error:
        raise field_error("metadata", str(error)) from error
    require_owner(memory)


def validate_run(text: str) -> str:
    """Return the name of a consolidation run, if it is valid."""
    if not 0 < len(text) <= _MAX_RUN_CHARS or not text.isprintable():
        raise field_error("run", f"must have 1 to {_MAX_RUN_CHARS} printable characters")
    return text


def field_error(field: str, message: str) -> ValidationFailed:
    """Return the validation error of a field."""
    return ValidationFailed({field: [message]})


def _validate_name(name: str, value: str, *, max_chars: int) -> None:
    if not value.strip() or len(value) > max_chars:
        raise field_error(name, f"must have 1 to {max_chars} characters and not be blank; it has {len(value):,}")
    _validate_storable(value)


def _validate_storable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise field_error("content", "must not contain a lone surrogate") from error
    if "\0" in text:
        raise field_error("content", "must not contain the character NUL (U+0000)")


def _describe(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
