"""The items that import readers return, and the overrides of an import."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import Protocol
from uuid import UUID

import orjson

from rookery.memory.merging import Merge
from rookery.memory.models import Memory, MemoryScope, Tombstone

NO_WORKSPACE_ID = 0
"""The workspace of an item before the import sets it."""

_UUID_VERSION_TIME = 7
_UUID_VERSION_HASH = 8
_UUID_VARIANT = 2
_HASHED_BITS = (1 << 62) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMemory:
    """
    A memory that was read.

    Attributes:
        identity: The values that identify a memory without an id of Rookery in its source. The same text from the same place gets the
            same id, so that repeated imports store it once. None if the memory has an id.
        is_exact: True if all fields are those of a store. Otherwise only the author's fields count, and the others are defaults.
    """

    memory: Memory
    recalled_at: datetime | None = None
    identity: tuple[str, ...] | None = None
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


class ImportReader(Protocol):
    """A source of items that can be iterated once, and reads while it is iterated."""

    @property
    def done(self) -> int:
        """The number of lines, entries or files read."""
        ...

    @property
    def total(self) -> int:
        """The number of lines, entries or files; 0 if unknown."""
        ...

    def __iter__(self) -> Iterator[ImportItem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOverrides:
    """Values that replace those of all imported memories; None keeps the original."""

    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    memory_scope: MemoryScope | None = None
    tags: tuple[str, ...] = ()

    def apply_to(self, memory: Memory) -> Memory:
        """Return *memory* with the overrides. *tags* are added to its own."""
        return replace(
            memory,
            org=memory.org if self.org is None else self.org,
            project=memory.project if self.project is None else self.project,
            agent_id=memory.agent_id if self.agent_id is None else self.agent_id,
            type=memory.type if self.type is None else self.type,
            memory_scope=memory.memory_scope if self.memory_scope is None else self.memory_scope,
            tags=tuple(dict.fromkeys((*memory.tags, *self.tags))),
        )


def copy_id(workspace_id: int, original_id: str) -> str:
    """
    Return the id of a copy of the memory *original_id* in a workspace.

    The id is deterministic, so lineages need no mapping table and repeated imports store nothing twice. It keeps the first bits of the
    original id: if these are a time, copies sort like the originals.
    """
    digest = _digest("copy", str(workspace_id), original_id)
    number = (
        UUID(original_id).int >> 80 << 80
        | _UUID_VERSION_TIME << 76
        | (digest >> 52 & 0xFFF) << 64
        | _UUID_VARIANT << 62
        | digest & _HASHED_BITS
    )
    return str(UUID(int=number))


def derive_id(workspace_id: int, memory: Memory, identity: tuple[str, ...]) -> str:
    """Return the id of a memory that has none (RFC 9562, version 8), from its text, its space and its place in the source."""
    parts = (memory.org, memory.project, memory.agent_id, memory.session_id, memory.memory_scope.value, *identity)
    digest = _digest("named", str(workspace_id), *(part or "" for part in parts))
    number = digest >> 80 << 80 | _UUID_VERSION_HASH << 76 | (digest >> 64 & 0xFFF) << 64 | _UUID_VARIANT << 62 | digest & _HASHED_BITS
    return str(UUID(int=number))


def _digest(*parts: str) -> int:
    return int.from_bytes(blake2b(orjson.dumps(parts), digest_size=16).digest(), "big")
