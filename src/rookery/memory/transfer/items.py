"""The items that import readers return: their fields and limits, their ids, and the options of an import."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from hashlib import blake2b
from typing import Any, BinaryIO, Literal, Protocol, TypeVar, cast, get_args, get_type_hints
from uuid import UUID

import orjson

from rookery.access.models import ActorKind
from rookery.kernel.clock import format_iso, parse_iso, to_micros
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import is_uuid
from rookery.memory.authorship import Author
from rookery.memory.merging import Merge
from rookery.memory.metadata import Metadata, validate_metadata
from rookery.memory.models import (
    EXPORTED_FIELDS,
    MAX_CONTENT_CHARS,
    MAX_NAME_CHARS,
    MAX_PROJECT_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    Memory,
    MemoryScope,
    Tombstone,
)
from rookery.memory.records import require_owner
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.label_mappings import LabelMapping

T = TypeVar("T")

ImportFormat = Literal[
    "auto", "jsonl", "markdown", "agents-md", "mem0", "mcp-memory-service", "server-memory", "basic-memory", "langgraph", "claude-code",
    "mempalace", "graphiti", "memori", "open-webui", "letta",
]  # fmt: skip
"""The names of `--from`. `jsonl` is Rookery's own export."""

NoteSplit = Literal["note", "section"]

NO_WORKSPACE_ID = 0
"""The workspace of an item before the import sets it."""

MAX_LINE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a line; more than any memory has. Longer lines are skipped without loading them into memory."""

BOM = b"\xef\xbb\xbf"
"""The byte order mark, which some editors write at the start of a file."""

UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""The first bytes of a text in UTF-16."""

TYPE_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,63}")
TYPE_RULE = "a type has 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter"
"""`TYPE_PATTERN` in words, for errors."""

MAX_LISTED_WARNINGS = 1_000
"""Maximum warnings that a report lists. Memory use does not depend on the number of memories."""

_MAX_RUN_CHARS = 200
_MAX_AUTHOR_CHARS = 255
_AUTHOR_KINDS = get_args(ActorKind)
_MAX_SHOWN_CHARS = 40

_UUID_VERSION_TIME = 7
_UUID_VERSION_HASH = 8
_UUID_VARIANT = 2
_HASHED_BITS = (1 << 62) - 1

_SCOPES = {scope.value: scope for scope in MemoryScope}
_FIRST_MICROS = to_micros(datetime(1, 1, 2, tzinfo=UTC))
_LAST_MICROS = to_micros(datetime(9999, 12, 30, tzinfo=UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMemory:
    """
    A memory that was read.

    Attributes:
        identity: The values that identify a memory without an id of Rookery in its source. The same text from the same place gets the
            same id, so that repeated imports store it once. None if the memory has an id.
        supersedes: The identity of the memory that this one replaced; None if that memory has an id, or this one replaced nothing.
        is_exact: True if all fields are those of a store. Otherwise only the author's fields count, and the others are defaults.
    """

    memory: Memory
    recalled_at: datetime | None = None
    identity: tuple[str, ...] | None = None
    supersedes: tuple[str, ...] | None = None
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedItem:
    """An item that cannot be stored, and the reason. *name* is its id, if known."""

    reason: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One item that was read, and its *location*: a line, an entry or a file."""

    location: str
    content: ImportedMemory | Tombstone | Merge | RejectedItem


@dataclass(slots=True)
class ReadProgress:
    """
    The number of lines, entries or files read, and their total, 0 if unknown.

    Attributes:
        recognised: The program that wrote the source, and the form of its file.
        warnings: The first warnings, each with its place. *warning_count* counts all.
    """

    done: int = 0
    total: int = 0
    recognised: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    warning_count: int = 0

    def warn(self, place: str, message: str) -> None:
        """Add a warning: a value at *place* could not be used, and its memory is imported without it."""
        self.warning_count += 1
        if len(self.warnings) < MAX_LISTED_WARNINGS:
            self.warnings.append("".join(char if char.isprintable() else "�" for char in f"{place}: {message}"))


class ImportReader(Protocol):
    """A source of items that can be iterated once, and reads while it is iterated."""

    @property
    def progress(self) -> ReadProgress: ...

    def __iter__(self) -> Iterator[ImportItem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOverrides:
    """
    Values that replace those of all imported memories; None keeps the original.

    Attributes:
        mappings: Changes of owners, projects and tags, made before the other values are set.
    """

    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    memory_scope: MemoryScope | None = None
    tags: tuple[str, ...] = ()
    mappings: tuple[LabelMapping, ...] = ()

    def apply_to(self, memory: Memory) -> Memory:
        """Return *memory* with the overrides. *tags* are added to its own."""
        for mapping in self.mappings:
            memory = mapping.apply_to(memory)
        values = {name: getattr(self, name) for name in ("org", "project", "agent_id", "type", "memory_scope")}
        tags = tuple(dict.fromkeys((*memory.tags, *self.tags)))
        return replace(memory, tags=tags, **{name: value for name, value in values.items() if value is not None})


class FieldReader:
    """A reader of the fields of one object. Each method raises `ValidationFailed` with the field's name."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def has(self, name: str) -> bool:
        """Return whether the field is present and not null."""
        return self._values.get(name) is not None

    def _read(self, name: str, types: type[T] | tuple[type[T], ...], expected: str) -> T:
        value = self._values.get(name)
        if value is None:
            raise field_error(name, "is missing")
        if not isinstance(value, types) or (isinstance(value, bool) and types is not bool):
            raise field_error(name, f"must be {expected}, not {describe_value(value)}")
        return value

    def text(self, name: str) -> str:
        """Return a required string."""
        return self._read(name, str, "a string")

    def maybe_text(self, name: str) -> str | None:
        """Return a string, or None if it is missing."""
        return self.text(name) if self.has(name) else None

    def uuid(self, name: str) -> str:
        """Return a required UUID, in lower case."""
        text = self.text(name).lower()
        if not is_uuid(text):
            raise field_error(name, f"must be a UUID, not {describe_value(text)}")
        return text

    def maybe_uuid(self, name: str) -> str | None:
        """Return a UUID, or None if it is missing."""
        return self.uuid(name) if self.has(name) else None

    def number(self, name: str) -> float:
        """Return a required number from 0 to 1."""
        value = self._read(name, (int, float), "a number")
        if not 0 <= value <= 1:
            raise field_error(name, f"must be from 0 to 1, not {describe_value(value)}")
        return float(value)

    def count(self, name: str) -> int:
        """Return a required integer of 0 or more."""
        expected = f"an integer from 0 to {MAX_CONTENT_CHARS:,}"
        value = self._read(name, int, expected)
        if not 0 <= value <= MAX_CONTENT_CHARS:
            raise field_error(name, f"must be {expected}, not {describe_value(value)}")
        return value

    def flag(self, name: str) -> bool:
        """Return a required boolean."""
        return self._read(name, bool, "true or false")

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
        try:
            moment = parse_iso(cast("str", value))
        except (AttributeError, TypeError, ValueError) as error:
            raise field_error(name, f"must be an ISO 8601 time, not {describe_value(value)}") from error
        if not is_storable_moment(moment):
            raise field_error(name, f"{describe_value(value)} is out of range; times must be in the years 1 to 9999")
        return moment

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings, empty if it is missing."""
        items = cast("Sequence[object]", self._read(name, (list, tuple), "a list of strings")) if self.has(name) else ()
        if not all(isinstance(item, str) for item in items):
            raise field_error(name, "must be a list of strings")
        return tuple(cast("Sequence[str]", items))

    def maybe_object(self, name: str) -> dict[str, object]:
        """Return an object with string keys, empty if it is missing."""
        value = cast("dict[object, object]", self._read(name, dict, "an object")) if self.has(name) else {}
        if not all(isinstance(key, str) for key in value):
            raise field_error(name, "must have only strings as keys")
        return cast("dict[str, object]", value)

    def maybe_author(self, name: str) -> Author | None:
        """Return an author, or None if it is missing."""
        if not self.has(name):
            return None
        row = FieldReader(self.maybe_object(name))
        kind = row.text("kind")
        if kind not in _AUTHOR_KINDS:
            raise field_error(name, f"kind must be one of {', '.join(_AUTHOR_KINDS)}, not {describe_value(kind)}")
        key_id, author_name, agent_id, session_id = (row.maybe_text(field) for field in ("key_id", "name", "agent_id", "session_id"))
        for text in (key_id, author_name, agent_id, session_id):
            _validate_name(name, text or "-", max_chars=_MAX_AUTHOR_CHARS)
        return Author(kind=cast("ActorKind", kind), key_id=key_id, name=author_name or "", agent_id=agent_id, session_id=session_id)

    def scope(self, name: str) -> MemoryScope:
        """Return a required scope."""
        value = self._values.get(name)
        if not isinstance(value, str) or value not in _SCOPES:
            raise field_error(name, f"must be one of {', '.join(_SCOPES)}, not {describe_value(value)}")
        return _SCOPES[value]


_READERS: Mapping[object, Callable[[FieldReader, str], object]] = {
    str: FieldReader.text,
    str | None: FieldReader.maybe_text,
    float: FieldReader.number,
    datetime: FieldReader.moment,
    datetime | None: FieldReader.maybe_moment,
    tuple[str, ...]: FieldReader.texts,
    Metadata: FieldReader.maybe_object,
    MemoryScope: FieldReader.scope,
    Author | None: FieldReader.maybe_author,
}
_FIELD_TYPES = get_type_hints(Memory)
_NOT_NAMES = {"id", "type", "supersedes_id", "superseded_by"}
_NAMES = tuple(name for name in EXPORTED_FIELDS if _FIELD_TYPES[name] in (str, str | None) and name not in _NOT_NAMES)
_EXPORTED_READERS: Mapping[str, Callable[[FieldReader, str], Any]] = {
    **{name: _READERS[_FIELD_TYPES[name]] for name in EXPORTED_FIELDS},
    "id": FieldReader.uuid,
    "supersedes_id": FieldReader.maybe_uuid,
    "superseded_by": FieldReader.maybe_uuid,
}


def to_fields(record: TransferRecord) -> Mapping[str, object]:
    """Return the exported fields of a memory except its content, as values of JSON and YAML."""
    values = {name: getattr(record.memory, name) for name in EXPORTED_FIELDS}
    return {name: _to_json_value(value) for name, value in {**values, "recalled_at": record.recalled_at}.items()}


def from_fields(row: FieldReader, content: str) -> ImportedMemory:
    """
    Return the memory of the fields that `to_fields` returned.

    Raises:
        ValidationFailed: A field is missing or invalid.
    """
    values = {name: read(row, name) for name, read in _EXPORTED_READERS.items()}
    memory = Memory(workspace_id=NO_WORKSPACE_ID, content=content, **values)
    validate_memory(memory)
    return ImportedMemory(memory=memory, recalled_at=row.maybe_moment("recalled_at"), is_exact=True)


def _to_json_value(value: object) -> object:
    if isinstance(value, datetime):
        return format_iso(value)
    if isinstance(value, tuple):
        return list(cast("tuple[object, ...]", value))
    if isinstance(value, Author):
        return asdict(value)
    return value.value if isinstance(value, MemoryScope) else value


def new_memory(*, content: str, confidence: float, at: datetime, **fields: Any) -> Memory:  # noqa: ANN401 - the fields of Memory
    """Return a memory of another tool with defaults: without an id, in scope project, last changed at *at*."""
    empty = dict.fromkeys(("org", "project", "agent_id", "session_id"))
    times = dict.fromkeys(("content_at", "created_at", "updated_at"), at)
    defaults: dict[str, Any] = {
        "id": "",
        "workspace_id": NO_WORKSPACE_ID,
        "memory_scope": MemoryScope.PROJECT,
        "tags": (),
        **empty,
        **times,
    }
    return Memory(content=content, confidence=confidence, base_confidence=confidence, **{**defaults, **fields})


def validate_memory(memory: Memory) -> None:
    """
    Check that *memory* is one that `remember` could have stored.

    Raises:
        ValidationFailed: A field is invalid.
    """
    if not memory.content.strip():
        raise field_error("content", "must not be blank")
    if len(memory.content) > MAX_CONTENT_CHARS:
        raise field_error("content", f"must have at most {MAX_CONTENT_CHARS:,} characters, not {len(memory.content):,}")
    if TYPE_PATTERN.fullmatch(memory.type) is None:
        raise field_error("type", f"{describe_value(memory.type)} is not a valid type; {TYPE_RULE}")
    if len(memory.tags) > MAX_TAGS:
        raise field_error("tags", f"must have at most {MAX_TAGS} items, not {len(memory.tags)}")
    for tag in memory.tags:
        _validate_name("tags", tag, max_chars=MAX_TAG_CHARS)
    for name in _NAMES:
        value = getattr(memory, name)
        if value is not None:
            _validate_name(name, value, max_chars=MAX_PROJECT_CHARS if name == "project" else MAX_NAME_CHARS)
    _validate_storable(memory.content)
    try:
        validate_metadata(memory.metadata)
    except ValueError as error:
        raise field_error("metadata", str(error)) from error
    require_owner(memory)


def is_storable_moment(moment: datetime) -> bool:
    """Return whether a time is far enough from the ends of the calendar to be converted between zones."""
    return _FIRST_MICROS <= to_micros(moment) <= _LAST_MICROS


def validate_run(text: str) -> str:
    """Return the name of a consolidation run, if it is valid."""
    if not 0 < len(text) <= _MAX_RUN_CHARS or not text.isprintable():
        raise field_error("run", f"must have 1 to {_MAX_RUN_CHARS} printable characters")
    return text


def field_error(field: str, message: str) -> ValidationFailed:
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


def describe_value(value: object) -> str:
    """Return a value for an error, shortened."""
    text = repr(value) if isinstance(value, str | int | float | bool) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_CHARS else text[:_MAX_SHOWN_CHARS] + "…"


def iter_lines(stream: BinaryIO, progress: ReadProgress, *, start: int = 0) -> Iterator[tuple[int, bytes | None]]:
    """Yield the non-empty lines with their numbers, which begin after *start*. A line that is too long is yielded as None."""
    number = start
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        line = line.removeprefix(BOM) if number == 1 else line
        progress.done = number
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        elif line.strip():
            yield number, line


def truncate(text: str, max_chars: int) -> str:
    """Return at most *max_chars* characters of *text*."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def copy_id(workspace_id: int, original_id: str) -> str:
    """
    Return the id of a copy of the memory *original_id* in a workspace.

    The id is deterministic, so lineages need no mapping table and repeated imports store nothing twice. It keeps the first bits of the
    original id: if these are a time, copies sort like the originals.
    """
    digest = _digest("copy", str(workspace_id), original_id)
    return _build_uuid(UUID(original_id).int >> 80, _UUID_VERSION_TIME, digest >> 52, digest)


def derive_id(workspace_id: int, memory: Memory, identity: tuple[str, ...]) -> str:
    """Return the id of a memory that has none (RFC 9562, version 8), from its text, its space and its place in the source."""
    parts = (memory.org, memory.project, memory.agent_id, memory.session_id, memory.memory_scope.value, *identity)
    digest = _digest("named", str(workspace_id), *(part or "" for part in parts))
    return _build_uuid(digest >> 80, _UUID_VERSION_HASH, digest >> 64, digest)


def _build_uuid(head: int, version: int, middle: int, tail: int) -> str:
    return str(UUID(int=head << 80 | version << 76 | (middle & 0xFFF) << 64 | _UUID_VARIANT << 62 | tail & _HASHED_BITS))


def _digest(*parts: str) -> int:
    return int.from_bytes(blake2b(orjson.dumps(parts), digest_size=16).digest(), "big")
