"""
Lenient reading of other programs' fields: an optional value that cannot be read or stored costs a warning, never the memory.

A missing or blank text, and a text that is too long, are still errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from typing import TypeVar, cast

from rookery.kernel.clock import from_micros
from rookery.kernel.errors import RookeryError
from rookery.memory.metadata import MAX_BYTES, MAX_KEY_CHARS, MAX_KEYS, to_json
from rookery.memory.models import MAX_NAME_CHARS, MAX_PROJECT_CHARS, MAX_TAG_CHARS, MAX_TAGS, Memory, MemoryScope
from rookery.memory.transfer.items import (
    TYPE_PATTERN,
    TYPE_RULE,
    FieldReader,
    describe_value,
    field_error,
    is_storable_moment,
    truncate,
)

T = TypeVar("T")

Warn = Callable[[str, str], None]
"""Called with the name of a field, and with what is wrong with its value."""

_MICROS_BY_LIMIT = ((1e11, 1_000_000), (1e14, 1_000), (1e17, 1))
"""Microseconds in one unit of a number below a limit: seconds up to the year 5138, then milliseconds, then microseconds."""

_NAME_LIMITS = {
    "org": MAX_NAME_CHARS,
    "project": MAX_PROJECT_CHARS,
    "agent_id": MAX_NAME_CHARS,
    "session_id": MAX_NAME_CHARS,
    "source": MAX_NAME_CHARS,
}


def parse_moment(value: object, zone: tzinfo | None = UTC) -> datetime:
    """
    Return a time: a number since 1970, a time or date of YAML, or ISO 8601.

    Args:
        zone: The zone of times without one; None for the zone of this machine.

    Raises:
        ValueError: It has none of these forms, or is not in the years 1 to 9999.
    """
    if isinstance(value, str) and value.strip().isdecimal() and len(value.strip()) >= 9:
        value = int(value.strip()[:30])
    if isinstance(value, int | float) and not isinstance(value, bool):
        moment = _from_number(value)
    else:
        text = value.isoformat() if isinstance(value, date) else value
        if not isinstance(text, str):
            msg = describe_value(value)
            raise ValueError(msg)  # noqa: TRY004 - the error of every other wrong value
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None and zone is not None:
            moment = moment.replace(tzinfo=zone)
        try:
            moment = moment.astimezone(UTC)
        except OverflowError as error:
            raise ValueError(text) from error
    if not is_storable_moment(moment):
        msg = f"{describe_value(value)} is not in the years 1 to 9999"
        raise ValueError(msg)
    return moment


def _from_number(number: float) -> datetime:
    micros = next((unit for limit, unit in _MICROS_BY_LIMIT if abs(number) < limit), None)
    if micros is None or not math.isfinite(number):
        msg = f"{number} is not a time"
        raise ValueError(msg)
    try:
        return from_micros(round(number * micros))
    except OverflowError as error:
        raise ValueError(str(number)) from error


@dataclass(frozen=True, slots=True)
class _Reading:
    """The warnings of one object, and the zone of its times."""

    warn: Warn
    zone: tzinfo | None


class LenientReader(FieldReader):
    """A reader of optional fields. A value that cannot be read is reported to *warn*, and counts as missing."""

    def __init__(self, values: Mapping[str, object], warn: Warn, *, zone: tzinfo | None = UTC) -> None:
        super().__init__(values)
        self._reading = _Reading(warn, zone)

    def value(self, name: str) -> object:
        """Return the value as it is, None if it is missing."""
        return self._values.get(name)

    def name(self, name: str) -> str | None:
        """Return a name: a text that is not blank, or a number as text."""
        value = self._values.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = str(value)
        if value is None or (isinstance(value, str) and not value.strip()):
            return None
        if not isinstance(value, str):
            self._reading.warn(name, f"must be a string, not {describe_value(value)}")
            return None
        return value.strip()

    def maybe_text(self, name: str) -> str | None:
        return self._attempt(name, super().maybe_text)

    def maybe_moment(self, name: str) -> datetime | None:
        value = self._values.get(name)
        if value is None or value == "":
            return None
        try:
            return parse_moment(value, self._reading.zone)
        except ValueError:
            self._reading.warn(name, f"{describe_value(value)} is not a time in ISO 8601, nor a number of seconds; it was left out")
            return None

    def maybe_number(self, name: str) -> float | None:
        """Return a number from 0 to 1."""
        return self._attempt(name, self.number) if self.has(name) else None

    def maybe_scope(self, name: str) -> MemoryScope | None:
        return self._attempt(name, self.scope) if self.has(name) else None

    def maybe_object(self, name: str) -> dict[str, object]:
        return self._attempt(name, super().maybe_object) or {}

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of names, or a text separated by commas. Other values of the list are reported and left out."""
        value = self._values.get(name)
        if value is None:
            return ()
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if not isinstance(value, list | tuple):
            self._reading.warn(name, f"must be a list of strings, not {describe_value(value)}; it was left out")
            return ()
        items = cast("Sequence[object]", value)
        good = [str(item) for item in items if isinstance(item, str | int | float) and not isinstance(item, bool)]
        if len(good) < len(items):
            self._reading.warn(name, "has items that are not strings; they were left out")
        return tuple(item.strip() for item in good if item.strip())

    def _attempt(self, name: str, read: Callable[[str], T]) -> T | None:
        try:
            return read(name)
        except RookeryError as error:
            self._reading.warn(name, f"{error.message.removeprefix(f'{name}: ')}; it was left out")
            return None


def fit_memory(memory: Memory, warn: Warn, *, default_type: str) -> Memory:
    """Return *memory* with optional fields that Rookery can store; what does not fit is reported and left out or shortened."""
    names = {name: _fit_name(name, getattr(memory, name), limit, warn) for name, limit in _NAME_LIMITS.items()}
    if "\0" in memory.content:
        warn("content", "has the character NUL, which cannot be stored; it was left out")
    return replace(
        memory,
        content=memory.content.replace("\0", ""),
        **{**names, "source": names["source"] or memory.source},
        type=_fit_type(memory.type, warn, default_type),
        tags=_fit_tags(memory.tags, warn),
        metadata=_fit_metadata(memory.metadata, warn),
    )


def require_text(value: object, field: str) -> str:
    """
    Return the text of a memory.

    Raises:
        ValidationFailed: It is missing, no text, or blank.
    """
    if not isinstance(value, str) or not value.strip():
        raise field_error(field, "is missing" if value is None else f"must be a text that is not blank, not {describe_value(value)}")
    return value


def _fit_type(name: str, warn: Warn, default_type: str) -> str:
    if TYPE_PATTERN.fullmatch(name):
        return name
    if TYPE_PATTERN.fullmatch(name.lower()):
        return name.lower()
    warn("type", f"{describe_value(name)} is not a valid type, so it is {default_type}; {TYPE_RULE}")
    return default_type


def _fit_name(field: str, name: str | None, limit: int, warn: Warn) -> str | None:
    if name is None or not name.strip():
        return None
    if not _is_storable(name):
        warn(field, "has a character that cannot be stored; it was left out")
        return None
    if len(name) > limit:
        warn(field, f"has more than {limit} characters; it was shortened")
    return truncate(name, limit)


def _fit_tags(tags: Sequence[str], warn: Warn) -> tuple[str, ...]:
    names = list(dict.fromkeys(truncate(tag.strip(), MAX_TAG_CHARS) for tag in tags if tag.strip()))
    good = [name for name in names if _is_storable(name)]
    if len(good) < len(names):
        warn("tags", "have a character that cannot be stored; such tags were left out")
    if len(good) > MAX_TAGS:
        warn("tags", f"are {len(good)}, and a memory has at most {MAX_TAGS}; the last ones were left out")
    return tuple(good[:MAX_TAGS])


def _fit_metadata(metadata: Mapping[str, object], warn: Warn) -> Mapping[str, object]:
    """Return the first fields that fit. Fields that are not JSON, and the largest ones beyond the limit, are left out."""
    sizes = {name: size for name, value in metadata.items() if (size := _measure(name, value)) is not None}
    names = list(sizes)[:MAX_KEYS]
    while sum(sizes[name] for name in names) > MAX_BYTES:
        names.remove(max(names, key=lambda name: sizes[name]))
    left_out = [describe_value(name) for name in metadata if name not in names]
    if left_out:
        listed = ", ".join(left_out[:5]) + (", …" if len(left_out) > 5 else "")
        warn("metadata", f"{listed} cannot be stored and were left out; the limits are {MAX_KEYS} keys and {MAX_BYTES // 1024} KiB")
    return {name: metadata[name] for name in names}


def _measure(name: str, value: object) -> int | None:
    """Return the bytes of a field as JSON; None if it cannot be stored."""
    if not 0 < len(name) <= MAX_KEY_CHARS:
        return None
    try:
        encoded = to_json({name: value})
    except ValueError:
        return None
    return None if b"\\u0000" in encoded else len(encoded)


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
