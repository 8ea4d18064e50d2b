"""Decisions on imported items that conflict with stored ones. This module writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx
from rookery.kernel.sentences import format_count
from rookery.memory.batch_runs import RunAction, RunItem
from rookery.memory.merging import Merge
from rookery.memory.models import EXPORTED_FIELDS, Memory, Tombstone
from rookery.memory.store import records, transfer
from rookery.memory.store.codecs import fingerprint
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.items import ImportedMemory, ImportItem, RejectedItem, truncate

_AUTHOR_FIELDS = ("org", "project", "agent_id", "session_id", "memory_scope", "type", "content")
"""Fields that identify a memory from another tool. The other fields have defaults and may have changed in the store since."""

_ALL_FIELDS = (*_AUTHOR_FIELDS, *(name for name in EXPORTED_FIELDS if name not in ("id", "created_by", "updated_by", *_AUTHOR_FIELDS)))
"""Fields that identify an exported memory. Who wrote it and the time of its last recall are not among them."""

_LINEAGE_FIELDS = ("supersedes_id", "superseded_by")
_MAX_SHOWN_CHARS = 60
_MAX_CHAIN_STEPS = 1_000
"""Maximum steps along a lineage, so that no file can block an import."""


@dataclass(frozen=True, slots=True)
class ImportDecision:
    """The decision on one item, and the name under which it is counted."""

    item: RunItem
    count_name: str


@dataclass(slots=True)
class ImportBatch:
    """
    The rows that a batch writes.

    Attributes:
        changed_memories: The new values of stored memories, by id.
        tombstones: Tombstones to store. *ended_tombstones* are those of stored memories, which are deleted.
        ids_by_fingerprint: The ids of new memories by fingerprint.
    """

    memories: dict[str, TransferRecord] = field(default_factory=dict[str, TransferRecord])
    changed_memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    tombstones: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    ended_tombstones: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    merges: dict[str, Merge] = field(default_factory=dict[str, Merge])
    ids_by_fingerprint: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class DryRunState:
    """The items that a dry run would have stored so far, because the store does not have them. It takes 100 to 200 bytes per item."""

    digests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    ended_ids: set[str] = field(default_factory=set[str])
    ids_by_fingerprint: dict[str, str] = field(default_factory=dict[str, str])
    lineage: dict[str, tuple[str | None, str | None]] = field(default_factory=dict[str, tuple[str | None, str | None]])

    def add(self, batch: ImportBatch) -> None:
        """Record the items of *batch*."""
        self.digests |= {record.id: _digest(record.memory) for record in batch.memories.values()}
        self.ended_ids |= {*batch.tombstones, *batch.ended_tombstones}
        self.ids_by_fingerprint |= batch.ids_by_fingerprint
        contents = [*(record.memory for record in batch.memories.values()), *batch.tombstones.values()]
        self.lineage |= {
            content.id: (content.supersedes_id, content.superseded_by)
            for content in contents
            if content.supersedes_id or content.superseded_by
        }


class ConflictResolver:
    """
    A resolver that decides on the items of one batch, in order.

    Args:
        takes_newer: Replace stored memories that another program changed later.
        dry_run_state: The items that earlier batches of a dry run would have stored; None outside a dry run.
        room: Maximum number of memories to store. The first memory beyond it sets `is_full` and is not added to the batch.
    """

    def __init__(
        self,
        tx: Tx,
        items: Sequence[ImportItem],
        *,
        workspace_id: int,
        at: datetime,
        dedupe: bool,
        room: int,
        takes_newer: bool = False,
        dry_run_state: DryRunState | None = None,
    ) -> None:
        contents = [item.content for item in items]
        memories = [content.memory.id for content in contents if isinstance(content, ImportedMemory)]
        merged_ids = [content.memory_id for content in contents if isinstance(content, Merge)]
        ids = sorted({*memories, *merged_ids, *(content.id for content in contents if isinstance(content, Tombstone))})
        self._tx = tx
        self._workspace_id = workspace_id
        self._at = at
        self._dedupe = dedupe
        self._takes_newer = takes_newer
        self._is_dry_run = dry_run_state is not None
        self._dry_run_state = dry_run_state or DryRunState()
        self._existing = transfer.get_transfer_records(tx, ids)
        self._existing_tombstones = transfer.get_tombstones(tx, ids)
        self._existing_merges = transfer.get_merges(tx, merged_ids)
        self._room = room
        self.is_full = False
        self.batch = ImportBatch()

    def decide(self, item: ImportItem) -> ImportDecision | None:
        """Decide on *item*, and add it to the batch if it is to be stored. Return None for a merge, which has no decision of its own."""
        match item.content:
            case ImportedMemory() as imported_memory:
                action, count_name, reason = self._decide_memory(imported_memory)
                item_id = imported_memory.memory.id
            case Tombstone() as tombstone:
                action, count_name, reason = self._decide_tombstone(tombstone)
                item_id = tombstone.id
            case Merge() as merge:
                self._add_merge(merge)
                return None
            case RejectedItem() as rejected_item:
                action, count_name, reason = "refuse", "refused", rejected_item.reason
                item_id = rejected_item.name or "-"
        return ImportDecision(RunItem(id=item_id, action=action, why=f"{item.location}: {reason}"), count_name)

    def _decide_memory(self, imported_memory: ImportedMemory) -> tuple[RunAction, str, str]:
        memory = imported_memory.memory
        if memory.expires_at is not None and memory.expires_at <= self._at:
            return "skip", "expired", f"it expired at {format_iso(memory.expires_at)}"
        decision = self._decide_known(imported_memory)
        if decision is not None:
            return decision
        if self._has_cycle(memory):
            return _LINEAGE_CYCLE
        duplicate_id = self._find_duplicate(memory) if self._dedupe and memory.archived_at is None else None
        if duplicate_id is not None:
            return "skip", "duplicates", f"{duplicate_id} has the same content"
        if len(self.batch.memories) >= self._room:
            self.is_full = True
            return "refuse", "refused", "the workspace is full"
        self.batch.memories[memory.id] = TransferRecord(memory=memory, recalled_at=imported_memory.recalled_at)
        return "import", "imported", _describe(memory)

    def _decide_known(self, imported_memory: ImportedMemory) -> tuple[RunAction, str, str] | None:
        """Decide on a memory whose id is known. Return None if it is not."""
        memory = imported_memory.memory
        tombstone = self._existing_tombstones.get(memory.id)
        if tombstone is not None and tombstone.workspace_id != self._workspace_id:
            return _ID_TAKEN
        if tombstone is not None and not (imported_memory.is_exact and memory.updated_at <= tombstone.ended_at):
            return "conflict", "conflicts", f"it was deleted or replaced here at {format_iso(tombstone.ended_at)}"
        if tombstone is not None or memory.id in self.batch.tombstones or memory.id in self._dry_run_state.ended_ids:
            return "skip", "unchanged", "it was deleted or replaced since"
        existing = self.batch.memories.get(memory.id) or self._existing.get(memory.id)
        if existing is not None:
            if existing.memory.workspace_id != self._workspace_id:
                return _ID_TAKEN
            changed_fields = _changed_fields(existing.memory, memory, _ALL_FIELDS if imported_memory.is_exact else _AUTHOR_FIELDS)
            if changed_fields:
                return self._decide_changed(existing.memory, imported_memory, changed_fields)
            return "skip", "unchanged", "it is already stored"
        digest = self._dry_run_state.digests.get(memory.id)
        if digest is None:
            return None
        if digest == _digest(memory):
            return "skip", "unchanged", "it occurred earlier in the source"
        return "conflict", "conflicts", "it occurred earlier in the source with other values"

    def _decide_changed(
        self, existing: Memory, imported_memory: ImportedMemory, changed_fields: Sequence[str]
    ) -> tuple[RunAction, str, str]:
        """Decide on a memory whose stored values differ."""
        memory = self.batch.changed_memories.get(existing.id, existing)
        is_newer = imported_memory.memory.updated_at > memory.updated_at
        reason = f"it is already stored with another {', '.join(changed_fields)}"
        if not self._takes_newer or memory.id in self.batch.memories:
            advice = "; the one in the source is newer, and --on-conflict newer takes it" if is_newer else ""
            return "conflict", "conflicts", reason + advice
        if not is_newer:
            return "skip", "unchanged", "the stored one was changed later"
        self.batch.changed_memories[memory.id] = _take_newer(memory, imported_memory)
        return "change", "changed", f"the source has a newer {', '.join(changed_fields)}"

    def _find_duplicate(self, memory: Memory) -> str | None:
        """Return the id of a memory with the same content in the same space."""
        memory_fingerprint = fingerprint(memory)
        if not self._is_dry_run:
            records.lock_fingerprint(self._tx, memory_fingerprint)
        duplicate_id = self.batch.ids_by_fingerprint.get(memory_fingerprint) or self._dry_run_state.ids_by_fingerprint.get(
            memory_fingerprint
        )
        if duplicate_id is None:
            duplicate_id = next(iter(records.find_duplicates(self._tx, self._workspace_id, memory_fingerprint, at=self._at)), None)
        if duplicate_id is None:
            self.batch.ids_by_fingerprint[memory_fingerprint] = memory.id
        return duplicate_id

    def _decide_tombstone(self, tombstone: Tombstone) -> tuple[RunAction, str, str]:
        existing = self.batch.tombstones.get(tombstone.id) or self._existing_tombstones.get(tombstone.id)
        record = self._existing.get(tombstone.id)
        if {item.workspace_id for item in (existing, record and record.memory) if item is not None} - {self._workspace_id}:
            return _ID_TAKEN
        if existing is not None or tombstone.id in self._dry_run_state.ended_ids:
            is_same = existing is None or existing == tombstone
            return (
                ("skip", "unchanged", "it is already stored")
                if is_same
                else ("conflict", "conflicts", "it was deleted or replaced here in another way")
            )
        if record is not None:
            if record.memory.updated_at > tombstone.ended_at:
                return (
                    "conflict",
                    "conflicts",
                    f"it was deleted or replaced at {format_iso(tombstone.ended_at)} and changed here after that",
                )
            self.batch.ended_tombstones[tombstone.id] = tombstone
            return "end", "ended", "it was deleted or replaced in the source"
        if self._has_cycle(tombstone):
            return _LINEAGE_CYCLE
        self.batch.memories.pop(tombstone.id, None)
        self.batch.tombstones[tombstone.id] = tombstone
        return "import", "tombstones", "the tombstone of a memory"

    def _has_cycle(self, content: Memory | Tombstone) -> bool:
        """Return whether *content* would, directly or through others, supersede itself."""
        for name in _LINEAGE_FIELDS:
            seen_ids, next_id = {content.id}, getattr(content, name)
            while next_id is not None and len(seen_ids) < _MAX_CHAIN_STEPS:
                if next_id in seen_ids:
                    return True
                seen_ids.add(next_id)
                next_lineage = self._get_lineage(next_id)
                next_id = None if next_lineage is None else next_lineage[_LINEAGE_FIELDS.index(name)]
        return False

    def _get_lineage(self, memory_id: str) -> tuple[str | None, str | None] | None:
        """Return the ids that a stored or imported memory superseded, and that superseded it."""
        imported = self.batch.memories.get(memory_id)
        content = imported.memory if imported is not None else self.batch.tombstones.get(memory_id)
        if content is None and memory_id in self._dry_run_state.lineage:
            return self._dry_run_state.lineage[memory_id]
        if content is None:
            record = transfer.get_transfer_records(self._tx, [memory_id]).get(memory_id)
            content = record.memory if record is not None else transfer.get_tombstones(self._tx, [memory_id]).get(memory_id)
        return None if content is None or content.workspace_id != self._workspace_id else (content.supersedes_id, content.superseded_by)

    def _add_merge(self, merge: Merge) -> None:
        record = self.batch.memories.get(merge.memory_id) or self._existing.get(merge.memory_id)
        if record is not None and record.memory.workspace_id == self._workspace_id and merge.memory_id not in self._existing_merges:
            self.batch.merges[merge.memory_id] = merge


_LINEAGE_CYCLE: tuple[RunAction, str, str] = (
    "refuse",
    "refused",
    "its lineage is a cycle: through supersedes_id or superseded_by it replaces itself",
)
_ID_TAKEN: tuple[RunAction, str, str] = ("conflict", "conflicts", "its id is already used; add --new-ids to store a copy with a new id")


def _take_newer(existing: Memory, imported_memory: ImportedMemory) -> Memory:
    """Return the stored memory with the values of a newer one. Feedback and archiving stay; its indexes are outdated."""
    memory = imported_memory.memory
    if imported_memory.is_exact:
        values: dict[str, Any] = {name: getattr(memory, name) for name in _ALL_FIELDS if name not in _LINEAGE_FIELDS}
    else:
        names = (*_AUTHOR_FIELDS, "tags", "metadata", "source", "expires_at", "updated_at")
        values = {name: getattr(memory, name) for name in names}
        values["content_at"] = existing.content_at if memory.content == existing.content else memory.updated_at
        values["supersedes_id"] = memory.supersedes_id or existing.supersedes_id
    values |= dict.fromkeys(("indexed_at", "indexed_model", "index_failed_at")) | {"archived_at": existing.archived_at}
    return replace(existing, **values)


def _changed_fields(existing: Memory, imported: Memory, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(existing, name) != getattr(imported, name)]


def _digest(memory: Memory) -> bytes:
    return blake2b(repr([getattr(memory, name) for name in _ALL_FIELDS]).encode(), digest_size=12).digest()


def _describe(memory: Memory) -> str:
    space = "/".join(name for name in (memory.org, memory.project) if name)
    size = format_count(len(memory.content), "character")
    return f"{memory.type}{f' of {space}' if space else ''}, {size}: {_first_words(memory.content)}"


def _first_words(content: str) -> str:
    """Return the beginning of a text on one line, so that a reader recognises it."""
    words = " ".join(content[: 4 * _MAX_SHOWN_CHARS].split())
    words = "".join(char if char.isprintable() else "�" for char in words)
    return truncate(words, _MAX_SHOWN_CHARS)
