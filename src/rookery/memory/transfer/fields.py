"""Reading what others wrote: each field as it must be (D-40's bounds), or a word on why it is not. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast

from rookery.kernel.clock import parse_iso, to_micros
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import is_uuid
from rookery.memory.merging import MAX_CONTENT, MAX_TAGS
from rookery.memory.metadata import check as check_metadata
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.records import must_own_up

TYPE = re.compile(r"[a-z][a-z0-9_-]{0,63}")

LONGEST_TAG = 128
LONGEST_NAME = 100
LONGEST_PROJECT = 255
_LONGEST_RUN = 200

_SCOPES = {scope.value: scope for scope in MemoryScope}
_SHOWN = 40

_FIRST_MICROS = to_micros(datetime(1, 1, 2, tzinfo=UTC))
_LAST_MICROS = to_micros(datetime(9999, 12, 30, tzinfo=UTC))


class Fields:
    """The fields of one object; each reader raises `ValidationFailed` with the field's name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def text(self, name: str) -> str:
        """Return a text that must be there."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise wrong(name, "is missing" if value is None else f"must be a text, and is {_shown(value)}")
        return value

    def maybe_text(self, name: str) -> str | None:
        """Return a text, or None where there is none."""
        return None if self._values.get(name) is None else self.text(name)

    def uuid(self, name: str) -> str:
        """Return a UUID that must be there, as we write them."""
        text = self.text(name).lower()
        if not is_uuid(text):
            raise wrong(name, f"must be a UUID, and is {_shown(text)}")
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
            raise wrong(name, "is missing" if value is None else f"must be a number, and is {_shown(value)}")
        if not 0 <= value <= 1:
            raise wrong(name, f"must be from 0 to 1, and is {_shown(value)}")
        return float(value)

    def count(self, name: str) -> int:
        """Return a whole number of 0 or more that must be there."""
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_CONTENT:
            raise wrong(name, f"must be a whole number of 0 to {MAX_CONTENT:,}, and is {_shown(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a yes or no that must be there."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise wrong(name, f"must be true or false, and is {_shown(value)}")
        return value

    def moment(self, name: str) -> datetime:
        """Return a time that must be there."""
        found = self.maybe_moment(name)
        if found is None:
            raise wrong(name, "is missing")
        return found

    def maybe_moment(self, name: str) -> datetime | None:
        """Return a time, or None where there is none; YAML gives times and days as such, JSON as text."""
        value = self._values.get(name)
        if isinstance(value, date):
            value = value.isoformat()
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise wrong(name, f"must be an ISO 8601 time, and is {_shown(value)}")
        try:
            moment = parse_iso(value)
        except ValueError as error:
            raise wrong(name, f"must be an ISO 8601 time, and is {_shown(value)}") from error
        if not _FIRST_MICROS <= to_micros(moment) <= _LAST_MICROS:
            raise wrong(name, f"{_shown(value)} is no time that can be kept")
        return moment

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; none where there is none."""
        value = self._values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            raise wrong(name, f"must be a list of texts, and is {_shown(value)}")
        items = cast("Sequence[object]", value)
        if not all(isinstance(item, str) for item in items):
            raise wrong(name, "must be a list of texts")
        return tuple(cast("Sequence[str]", items))

    def maybe_object(self, name: str) -> dict[str, object]:
        """Return an object with texts for keys; an empty one where there is none."""
        value = self._values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise wrong(name, f"must be an object, and is {_shown(value)}")
        if not all(isinstance(key, str) for key in cast("dict[object, object]", value)):
            raise wrong(name, "must have texts for keys")
        return cast("dict[str, object]", value)

    def scope(self, name: str, default: MemoryScope | None = None) -> MemoryScope:
        """Return a scope; *default* where there is none."""
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or value not in _SCOPES:
            raise wrong(name, f"must be one of {', '.join(_SCOPES)}, and is {_shown(value)}")
        return _SCOPES[value]


def must_fit(memory: Memory) -> None:
    """
    Do nothing if *memory* is one that `remember` could have stored (D-40).

    Raises:
        ValidationFailed: It says which field is not.
    """
    if not memory.content.strip():
        raise wrong("content", "must not be blank")
    if len(memory.content) > MAX_CONTENT:
        raise wrong("content", f"has {len(memory.content):,} characters, and may have {MAX_CONTENT:,}")
    if TYPE.fullmatch(memory.type) is None:
        raise wrong("type", f"{_shown(memory.type)} is no type: small letters, digits, _ and -, at most 64, a letter first")
    if len(memory.tags) > MAX_TAGS:
        raise wrong("tags", f"are {len(memory.tags)}, and may be {MAX_TAGS}")
    for tag in memory.tags:
        _must_be_named("tags", tag, longest=LONGEST_TAG)
    for name, value, longest in (
        ("org", memory.org, LONGEST_NAME),
        ("project", memory.project, LONGEST_PROJECT),
        ("agent_id", memory.agent_id, LONGEST_NAME),
        ("session_id", memory.session_id, LONGEST_NAME),
        ("source", memory.source, LONGEST_NAME),
    ):
        if value is not None:
            _must_be_named(name, value, longest=longest)
    for text in (memory.content, memory.source, *memory.tags):
        _must_be_storable(text)
    try:
        check_metadata(memory.metadata)
    except ValueError as error:
        raise wrong("metadata", str(error)) from error
    must_own_up(memory)


def run(text: str) -> str:
    """Return the name of a run of consolidate, if it can be one."""
    if not 0 < len(text) <= _LONGEST_RUN or not text.isprintable():
        raise wrong("run", f"must have 1 to {_LONGEST_RUN} characters that can be shown")
    return text


def wrong(field: str, why: str) -> ValidationFailed:
    """Return what is raised of a field."""
    return ValidationFailed({field: [why]})


def _must_be_named(name: str, value: str, *, longest: int) -> None:
    if not value.strip() or len(value) > longest:
        raise wrong(name, f"must have 1 to {longest} characters, and has {len(value):,}")
    _must_be_storable(value)


def _must_be_storable(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise wrong("content", "has half of a character (a lone surrogate)") from error
    if "\0" in text:
        raise wrong("content", "has the character NUL")


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str | int | float | bool) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
