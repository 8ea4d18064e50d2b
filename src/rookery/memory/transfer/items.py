"""What a reader hands the import, whatever it read, and what it may be told to put in its place."""

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
"""The workspace of what was read: the import says into which it goes."""

_UUID_VERSION_TIME = 7
_UUID_VERSION_HASH = 8
_UUID_VARIANT = 2
_HASHED_BITS = (1 << 62) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMemory:
    """
    A memory that was read.

    Attributes:
        identity: What tells it from others where it came from, for one that has no id of ours: the same text of the same
            place gets the same id again, so that what is read twice is stored once. None: it has its id.
        is_exact: All of it is as a store had it; else only what an author says counts, and the rest was filled in.
    """

    memory: Memory
    recalled_at: datetime | None = None
    identity: tuple[str, ...] | None = None
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedItem:
    """Something that cannot be stored, and why; *name*: what it would have been, if that much is known."""

    reason: str
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportItem:
    """One thing that was read, and *location*: a line, an entry, a file."""

    location: str
    content: ImportedMemory | Tombstone | Merge | RejectedItem


class ImportReader(Protocol):
    """A source that is read as it is gone through, once."""

    @property
    def done(self) -> int:
        """How many of its lines, entries or files were read."""
        ...

    @property
    def total(self) -> int:
        """How many there are; 0: that is not known."""
        ...

    def __iter__(self) -> Iterator[ImportItem]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOverrides:
    """Where all that is read goes instead of where it says; None: as it says."""

    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    memory_scope: MemoryScope | None = None
    tags: tuple[str, ...] = ()

    def apply_to(self, memory: Memory) -> Memory:
        """Return *memory* there; *tags* are added to its own."""
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
    Return the id that the memory *original_id* has as a copy of its own in a workspace.

    Always the same one, so a lineage needs no table to be moved, and a second import stores nothing twice. It begins as
    the old one does: where that is a time, the copies sort as the originals did.
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
    """Return the id of a memory that came without one (RFC 9562, version 8): of its words, its space and where it came from."""
    parts = (memory.org, memory.project, memory.agent_id, memory.session_id, memory.memory_scope.value, *identity)
    digest = _digest("named", str(workspace_id), *(part or "" for part in parts))
    number = digest >> 80 << 80 | _UUID_VERSION_HASH << 76 | (digest >> 64 & 0xFFF) << 64 | _UUID_VARIANT << 62 | digest & _HASHED_BITS
    return str(UUID(int=number))


def _digest(*parts: str) -> int:
    return int.from_bytes(blake2b(orjson.dumps(parts), digest_size=16).digest(), "big")
