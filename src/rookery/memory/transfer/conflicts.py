"""What becomes of each thing that is moved in, beside what the store has already: a rule, and no write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b

from rookery.kernel.clock import format_iso
from rookery.kernel.db import Tx
from rookery.memory.batch_runs import RunAction, RunItem
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store import records, transfer
from rookery.memory.store.rows import fingerprint
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.items import ImportedMemory, ImportItem, RejectedItem

_AUTHOR_FIELDS = ("org", "project", "agent_id", "session_id", "memory_scope", "type", "content")
"""What makes a memory of another tool the same one; the rest was filled in, and may have changed here since."""

_ALL_FIELDS = (
    *_AUTHOR_FIELDS,
    *("tags", "metadata", "confidence", "base_confidence", "source", "supersedes_id", "superseded_by"),
    *("created_at", "updated_at", "content_at", "expires_at", "archived_at"),
)
"""But not when a recall last returned it, which is no change of it."""

_LINEAGE_FIELDS = ("supersedes_id", "superseded_by")
_MAX_CHAIN_STEPS = 1_000
"""A bound on walking a lineage, so that no file can hold a run."""


@dataclass(frozen=True, slots=True)
class ImportDecision:
    """What is done with one thing, and the name under which it is counted."""

    item: RunItem
    count_name: str


@dataclass(slots=True)
class ImportBatch:
    """
    What a batch puts into the store.

    Attributes:
        tombstones: Tombstones to store; *ended_tombstones*: those of memories that are here, and go.
        ids_by_fingerprint: By fingerprint the id of what is stored.
    """

    memories: dict[str, TransferRecord] = field(default_factory=dict[str, TransferRecord])
    tombstones: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    ended_tombstones: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    merges: dict[str, Merge] = field(default_factory=dict[str, Merge])
    ids_by_fingerprint: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class DryRunState:
    """What a dry run would have stored by now, which the store cannot tell it; a hundred bytes or two of each."""

    digests: dict[str, bytes] = field(default_factory=dict[str, bytes])
    ended_ids: set[str] = field(default_factory=set[str])
    ids_by_fingerprint: dict[str, str] = field(default_factory=dict[str, str])
    lineage: dict[str, tuple[str | None, str | None]] = field(default_factory=dict[str, tuple[str | None, str | None]])

    def add(self, batch: ImportBatch) -> None:
        """Remember what would be stored."""
        self.digests |= {each.id: _digest(each.memory) for each in batch.memories.values()}
        self.ended_ids |= {*batch.tombstones, *batch.ended_tombstones}
        self.ids_by_fingerprint |= batch.ids_by_fingerprint
        things = [*(each.memory for each in batch.memories.values()), *batch.tombstones.values()]
        self.lineage |= {each.id: (each.supersedes_id, each.superseded_by) for each in things if each.supersedes_id or each.superseded_by}


class ConflictResolver:
    """
    Judges the parcels of one batch, each knowing what became of those before it.

    Args:
        dry_run_state: Of a dry run, what its earlier batches would have stored; None: this is none.
        room: So many memories may be stored; the first one too many makes it full, and is not in the basket.
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
        dry_run_state: DryRunState | None = None,
    ) -> None:
        things = [parcel.content for parcel in items]
        memories = [each.memory.id for each in things if isinstance(each, ImportedMemory)]
        merged = [each.memory_id for each in things if isinstance(each, Merge)]
        ids = sorted({*memories, *merged, *(each.id for each in things if isinstance(each, Tombstone))})
        self._tx = tx
        self._workspace_id = workspace_id
        self._at = at
        self._dedupe = dedupe
        self._is_dry_run = dry_run_state is not None
        self._dry_run_state = dry_run_state or DryRunState()
        self._existing: Mapping[str, TransferRecord] = transfer.get_transfer_records(tx, ids)
        self._existing_tombstones: Mapping[str, Tombstone] = transfer.get_tombstones(tx, ids)
        self._existing_merges: Mapping[str, Merge] = transfer.get_merges(tx, merged)
        self._room = room
        self.is_full = False
        self.batch = ImportBatch()

    def decide(self, item: ImportItem) -> ImportDecision | None:
        """Judge a parcel, and put it into the basket if it is to be stored; None: it is part of another that has its verdict."""
        match item.content:
            case ImportedMemory() as arrived:
                action, counted, why = self._decide_memory(arrived)
                name = arrived.memory.id
            case Tombstone() as grave:
                action, counted, why = self._decide_tombstone(grave)
                name = grave.id
            case Merge() as merge:
                self._add_merge(merge)
                return None
            case RejectedItem() as refused:
                action, counted, why = "refuse", "refused", refused.reason
                name = refused.name or "-"
        return ImportDecision(RunItem(id=name, action=action, why=f"{item.location}: {why}"), counted)

    def _decide_memory(self, imported: ImportedMemory) -> tuple[RunAction, str, str]:
        memory = imported.memory
        if memory.expires_at is not None and memory.expires_at <= self._at:
            return "skip", "expired", f"it expired at {format_iso(memory.expires_at)}"
        known = self._decide_known(imported)
        if known is not None:
            return known
        if self._has_cycle(memory):
            return _LINEAGE_CYCLE
        twin = self._find_duplicate(memory) if self._dedupe and memory.archived_at is None else None
        if twin is not None:
            return "skip", "duplicates", f"{twin} says the same"
        if len(self.batch.memories) >= self._room:
            self.is_full = True
            return "refuse", "refused", "there is no room for it"
        self.batch.memories[memory.id] = TransferRecord(memory=memory, recalled_at=imported.recalled_at)
        return "import", "imported", _describe(memory)

    def _decide_known(self, imported: ImportedMemory) -> tuple[RunAction, str, str] | None:
        """Judge a memory whose id is known already; None: it is not."""
        memory = imported.memory
        grave = self._existing_tombstones.get(memory.id)
        if grave is not None and grave.workspace_id != self._workspace_id:
            return _ID_TAKEN
        if grave is not None and not (imported.is_exact and memory.updated_at <= grave.ended_at):
            return "conflict", "conflicts", f"it was deleted or replaced here at {format_iso(grave.ended_at)}"
        if grave is not None or memory.id in self.batch.tombstones or memory.id in self._dry_run_state.ended_ids:
            return "skip", "unchanged", "it ended since"
        there = self.batch.memories.get(memory.id) or self._existing.get(memory.id)
        if there is not None:
            if there.memory.workspace_id != self._workspace_id:
                return _ID_TAKEN
            differing = _changed_fields(there.memory, memory, _ALL_FIELDS if imported.is_exact else _AUTHOR_FIELDS)
            if differing:
                return "conflict", "conflicts", f"it is here with another {', '.join(differing)}"
            return "skip", "unchanged", "it is here already"
        seen = self._dry_run_state.digests.get(memory.id)
        if seen is None:
            return None
        if seen == _digest(memory):
            return "skip", "unchanged", "it came before"
        return "conflict", "conflicts", "it came before, and was another"

    def _find_duplicate(self, memory: Memory) -> str | None:
        """Return a memory with the same content in the same space."""
        mark = fingerprint(memory)
        if not self._is_dry_run:
            records.lock_fingerprint(self._tx, mark)
        twin = self.batch.ids_by_fingerprint.get(mark) or self._dry_run_state.ids_by_fingerprint.get(mark)
        if twin is None:
            twin = next(iter(records.find_duplicates(self._tx, self._workspace_id, mark, at=self._at)), None)
        if twin is None:
            self.batch.ids_by_fingerprint[mark] = memory.id
        return twin

    def _decide_tombstone(self, tombstone: Tombstone) -> tuple[RunAction, str, str]:
        there = self.batch.tombstones.get(tombstone.id) or self._existing_tombstones.get(tombstone.id)
        here = self._existing.get(tombstone.id)
        if {each.workspace_id for each in (there, here and here.memory) if each is not None} - {self._workspace_id}:
            return _ID_TAKEN
        if there is not None or tombstone.id in self._dry_run_state.ended_ids:
            is_same = there is None or there == tombstone
            return ("skip", "unchanged", "it is here already") if is_same else ("conflict", "conflicts", "it ended here in another way")
        if here is not None:
            if here.memory.updated_at > tombstone.ended_at:
                return "conflict", "conflicts", f"it ended at {format_iso(tombstone.ended_at)}, and was changed here after that"
            self.batch.ended_tombstones[tombstone.id] = tombstone
            return "end", "ended", "it was deleted or replaced there"
        if self._has_cycle(tombstone):
            return _LINEAGE_CYCLE
        self.batch.memories.pop(tombstone.id, None)
        self.batch.tombstones[tombstone.id] = tombstone
        return "import", "tombstones", "what stayed of a memory"

    def _has_cycle(self, thing: Memory | Tombstone) -> bool:
        """Tell whether *thing* would replace itself, by way of others: then its lineage has no end."""
        for name in _LINEAGE_FIELDS:
            seen, following = {thing.id}, getattr(thing, name)
            while following is not None and len(seen) < _MAX_CHAIN_STEPS:
                if following in seen:
                    return True
                seen.add(following)
                beyond = self._get_lineage(following)
                following = None if beyond is None else beyond[_LINEAGE_FIELDS.index(name)]
        return False

    def _get_lineage(self, memory_id: str) -> tuple[str | None, str | None] | None:
        """Return what a memory that came, or is here, replaced, and what replaced it."""
        came = self.batch.memories.get(memory_id)
        thing = came.memory if came is not None else self.batch.tombstones.get(memory_id)
        if thing is None and memory_id in self._dry_run_state.lineage:
            return self._dry_run_state.lineage[memory_id]
        if thing is None:
            here = transfer.get_transfer_records(self._tx, [memory_id]).get(memory_id)
            thing = here.memory if here is not None else transfer.get_tombstones(self._tx, [memory_id]).get(memory_id)
        return None if thing is None or thing.workspace_id != self._workspace_id else (thing.supersedes_id, thing.superseded_by)

    def _add_merge(self, merge: Merge) -> None:
        here = self.batch.memories.get(merge.memory_id) or self._existing.get(merge.memory_id)
        if here is not None and here.memory.workspace_id == self._workspace_id and merge.memory_id not in self._existing_merges:
            self.batch.merges[merge.memory_id] = merge


_LINEAGE_CYCLE: tuple[RunAction, str, str] = (
    "refuse",
    "refused",
    "its lineage runs in a circle: by supersedes_id or superseded_by it replaces itself",
)
_ID_TAKEN: tuple[RunAction, str, str] = ("conflict", "conflicts", "its id is taken; --new-ids stores a copy with another")


def _changed_fields(here: Memory, came: Memory, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(here, name) != getattr(came, name)]


def _digest(memory: Memory) -> bytes:
    plain = replace(memory, indexed_at=None, indexed_model=None, index_failed_at=None)
    return blake2b(repr([getattr(plain, name) for name in _ALL_FIELDS]).encode(), digest_size=12).digest()


def _describe(memory: Memory) -> str:
    space = "/".join(name for name in (memory.org, memory.project) if name)
    return f"{memory.type}{f' of {space}' if space else ''}, {len(memory.content):,} characters"
