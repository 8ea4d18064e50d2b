"""Reading what others wrote: each field as it must be (D-40's bounds), or a word on why it is not. Pure."""

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

MAX_TAG_CHARS = 128
MAX_NAME_CHARS = 100
MAX_PROJECT_CHARS = 255
_MAX_RUN_CHARS = 200

_SCOPES = {scope.value: scope for scope in MemoryScope}
_MAX_SHOWN_CHARS = 40

_FIRST_MICROS = to_micros(datetime(1, 1, 2, tzinfo=UTC))
_LAST_MICROS = to_micros(datetime(9999, 12, 30, tzinfo=UTC))


class FieldReader:
    """The fields of one object; each reader raises `ValidationFailed` with the field's name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise field_error(name, "is missing" if value is None else f"must be a text, and is {_describe(value)}")
        return value

    def maybe_text(self, name: str) -> str | None:
        """Return a text, or None where there is none."""
        return None if self._values.get(name) is None else self.text(name)

    def uuid(self, name: str) -> str:
        """Return a UUID that must be there, as we write them."""
        text = self.text(name).lower()
        if not is_uuid(text):
            raise field_error(name, f"must be a UUID, and is {_describe(text)}")
        return text

    def maybe_uuid(self, name: str) -> str | None:
        """Return a UUID, or None where there is none."""
        return None if self._values.get(name) is None else self.uuid(name)

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number of 0 to 1; *default* where there is none."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise field_error(name, "is missing" if value is None else f"must be a number, and is {_describe(value)}")
        if not 0 <= value <= 1:
            raise field_error(name, f"must be from 0 to 1, and is {_describe(value)}")
        return float(value)

    def count(self, name: str) -> int:
        """Return a whole number of 0 or more that must be there."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CONTENT_CHARS:
            raise field_error(name, f"must be a whole number of 0 to {MAX_CONTENT_CHARS:,}, and is {_describe(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a yes or no that must be there."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise field_error(name, f"must be true or false, and is {_describe(value)}")
        return value

    def moment(self, name: str) -> datetime:
        """Return a time that must be there."""
        found = self.maybe_moment(name)
        if found is None:
            raise field_error(name, "is missing")
        return found

    def maybe_moment(self, name: str) -> datetime | None:
        """Return a time, or None where there is none; YAML gives times and days as such, JSON as text."""
        value = self._values.get(name)
        if isinstance(value, date):
            value = value.isoformat()
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise field_error(name, f"must be an ISO 8601 time, and is {_describe(value)}")
        try:
            moment = parse_iso(value)
        except ValueError as error:
            raise field_error(name, f"must be an ISO 8601 time, and is {_describe(value)}") from error
        if not _FIRST_MICROS <= to_micros(moment) <= _LAST_MICROS:
            raise field_error(name, f"{_describe(value)} is no time that can be kept")
        return moment

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; none where there is none."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise field_error(name, f"must be a list of texts, and is {_describe(value)}")
        items = cast("Sequence[object]", value)
        if not all(isinstance(item, str) for item in items):
            raise field_error(name, "must be a list of texts")
        return tuple(cast("Sequence[str]", items))

    def maybe_object(self, name: str) -> dict[str, object]:
        """Return an object with texts for keys; an empty one where there is none."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise field_error(name, f"must be an object, and is {_describe(value)}")
        if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            raise field_error(name, "must have texts for keys")
        return cast("dict[str, object]", value)

    def scope(self, name: str, default: MemoryScope | None = None) -> MemoryScope:
        """Return a scope; *default* where there is none."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in _SCOPES:
            raise field_error(name, f"must be one of {', '.join(_SCOPES)}, and is {_describe(value)}")
        return _SCOPES[value]


def validate_memory(memory: Memory) -> None:
    """
    Do nothing if *memory* is one that `remember` could have stored (D-40).

    Raises:
        ValidationFailed: It says which field is not.
    """
    if not memory.content.strip():
        raise field_error("content", "must not be blank")
    if len(memory.content) > MAX_CONTENT_CHARS:
        raise field_error("content", f"has {len(memory.content):,} characters, and may have {MAX_CONTENT_CHARS:,}")
    if TYPE_PATTERN.fullmatch(memory.type) is None:
        raise field_error("type", f"{_describe(memory.type)} is no type: small letters, digits, _ and -, at most 64, a letter first")
    if len(memory.tags) > MAX_TAGS:
        raise field_error("tags", f"are {len(memory.tags)}, and may be {MAX_TAGS}")
    for tag in memory.tags:
        _validate_name("tags", tag, max_chars=MAX_TAG_CHARS)
    for name, value, longest in (
        ("org", memory.org, MAX_NAME_CHARS),
        ("project", memory.project, MAX_PROJECT_CHARS),
        ("agent_id", memory.agent_id, MAX_NAME_CHARS),
        ("session_id", memory.session_id, MAX_NAME_CHARS),
        ("source", memory.source, MAX_NAME_CHARS),
    ):
        if value is not None:
            _validate_name(name, value, max_chars=longest)
    for text in (memory.content, memory.source, *memory.tags):
        _validate_storable(text)
    try:
        check_metadata(memory.metadata)
    except ValueError as error:
        raise field_error("metadata", str(error)) from error
    require_owner(memory)


def validate_run(text: str) -> str:
    """Return the name of a run of consolidate, if it can be one."""
    if not 0 < len(text) <= _MAX_RUN_CHARS or not text.isprintable():
        raise field_error("run", f"must have 1 to {_MAX_RUN_CHARS} characters that can be shown")
    return text


def field_error(field: str, message: str) -> ValidationFailed:
    """Return what is raised of a field."""
    return ValidationFailed({field: [message]})


def _validate_name(name: str, value: str, *, max_chars: int) -> None:
    if not value.strip() or len(value) > max_chars:
        raise field_error(name, f"must have 1 to {max_chars} characters, and has {len(value):,}")
    _validate_storable(value)


def _validate_storable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise field_error("content", "has half of a character (a lone surrogate)") from error
    if "\0" in text:
        raise field_error("content", "has the character NUL")


def _describe(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"
