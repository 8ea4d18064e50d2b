"""The shape of an importer: how a program's files are recognised, and how their memories are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, cast

from rookery.kernel.errors import RookeryError
from rookery.memory.metadata import ForeignId
from rookery.memory.models import Memory
from rookery.memory.transfer.items import ImportedMemory, ImportFormat, ImportItem, ReadProgress, RejectedItem, new_memory
from rookery.memory.transfer.lenient import LenientReader, Warn, fit_memory
from rookery.memory.transfer.sqlite_files import ForeignDatabase

CONFIDENCE = 0.8
"""The confidence of memories whose program has none."""

USER_TAG_PREFIX = "user:"
"""A user of another program has no field in Rookery and becomes a tag, which `--map` can turn into an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceContext:
    """
    The parameters of an importer beside the file.

    Attributes:
        file_name: The name of the file in warnings.
        default_time: The creation time of memories that have none: that of the file's last change, if it is a file.
        timezone: The zone of times that a program wrote without one; None if the caller named none.
        companion: A second file of the same program.
    """

    progress: ReadProgress
    file_name: str
    default_time: datetime
    timezone: tzinfo | None = None
    companion: Path | None = None

    def warn_at(self, location: str) -> Warn:
        """Return the function that reports a field of the entry at *location*."""
        return lambda name, message: self.progress.warn(f"{self.file_name}, {location}", f"{name}: {message}")

    def reader(self, values: Mapping[str, object], location: str, *, zone: tzinfo | None = UTC) -> LenientReader:
        """Return a reader of an entry; *zone* is that of times without one, unless the caller named one. None is this machine's."""
        return LenientReader(values, self.warn_at(location), zone=self.timezone or zone)


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One value of a JSON document or a line, and its place."""

    location: str
    value: object


EntryReader = Callable[[Iterable[SourceEntry], SourceContext], Iterator[ImportItem]]
DatabaseReader = Callable[[ForeignDatabase, SourceContext], Iterator[ImportItem]]


def _find_nothing(_: object) -> Sequence[object] | None:
    return None


def _is_nothing(_: object) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySource:
    """
    An importer of one form of a program's files.

    Attributes:
        name: The program, as in `--from`.
        title: The program and the form, for the report.
        find_entries: Return the entries of a JSON document of this form, else None.
        is_line: Return whether a JSON object is a line of this form.
        is_database: Return whether a SQLite file has this form.
        takes_companion: A second file of the program adds what the first one lacks.
        refusal: The reason why this form is recognised but not imported, and what to do instead.
    """

    name: ImportFormat | None
    title: str
    find_entries: Callable[[object], Sequence[object] | None] = _find_nothing
    is_line: Callable[[Mapping[str, object]], bool] = _is_nothing
    read_entries: EntryReader | None = None
    is_database: Callable[[ForeignDatabase], bool] = _is_nothing
    read_database: DatabaseReader | None = None
    takes_companion: bool = False
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMemory:
    """
    A memory as another program has it.

    Attributes:
        memory: Its values before they are fitted to Rookery's limits. An id means that the program's id is used.
        identity: What identifies it in its program, beside the program. Unused if the memory has an id.
        supersedes: The identity of the version before it.
    """

    memory: Memory
    default_type: str
    identity: tuple[str, ...] = ()
    supersedes: tuple[str, ...] | None = None


def to_imported(foreign: ForeignMemory, source: str, warn: Warn) -> ImportedMemory:
    """Return the memory with what Rookery can store; the rest is reported."""
    memory = fit_memory(foreign.memory, warn, default_type=foreign.default_type)
    return ImportedMemory(
        memory=memory,
        identity=None if memory.id else (source, *foreign.identity),
        supersedes=None if foreign.supersedes is None else (source, *foreign.supersedes),
    )


def new_foreign_memory(*, content: str, at: datetime, confidence: float = CONFIDENCE, **fields: Any) -> Memory:  # noqa: ANN401 - the fields of Memory
    """Return a memory with defaults, last changed at *at*."""
    return new_memory(content=content, confidence=confidence, at=at, **fields)


def read_each(
    entries: Iterable[SourceEntry],
    context: SourceContext,
    parse: Callable[[LenientReader, Mapping[str, object], str], Iterable[ImportedMemory]],
) -> Iterator[ImportItem]:
    """Yield the memories of each entry. An entry without a text is refused, and does not stop the others."""
    for entry in entries:
        value = entry.value
        if not isinstance(value, dict):
            yield ImportItem(location=entry.location, content=RejectedItem(reason="the entry is not a JSON object"))
            continue
        values = cast("dict[str, object]", value)
        try:
            for imported in parse(context.reader(values, entry.location), values, entry.location):
                yield ImportItem(location=entry.location, content=imported)
        except RookeryError as error:
            yield ImportItem(location=entry.location, content=RejectedItem(reason=error.message))


def track(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[SourceEntry]:
    """Yield *entries*, and count them as read."""
    for number, entry in enumerate(entries, start=1):
        context.progress.done = number
        yield entry


def to_mapping(value: object) -> dict[str, object]:
    """Return an object, empty if the value is not one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def to_objects(value: object) -> list[object] | None:
    """Return a list, None if the value is not one."""
    return cast("list[object]", value) if isinstance(value, list) else None


def has_keys(value: object, *names: str) -> bool:
    """Return whether a value is an object with all these keys."""
    return isinstance(value, dict) and cast("dict[str, object]", value).keys() >= set(names)


def is_list_of(value: object, *names: str) -> bool:
    """Return whether a value is a list whose first entry is an object with all these keys."""
    items = to_objects(value)
    return bool(items) and has_keys(items[0], *names)


def with_id(metadata: Mapping[str, object], name: ForeignId, foreign_id: object) -> dict[str, object]:
    """Return the metadata with the id that the memory had in its program, first."""
    return {name: foreign_id, **metadata} if foreign_id not in (None, "") else dict(metadata)
