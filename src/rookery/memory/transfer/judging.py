"""What becomes of each thing that is moved in, beside what the store has already: a rule, and no write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b

from rookery.kernel.clock import iso
from rookery.kernel.db import Tx
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.runs import Action, Item
from rookery.memory.store import records, transfer
from rookery.memory.store.rows import fingerprint
from rookery.memory.store.transfer import Kept
from rookery.memory.transfer.parcels import Arrived, Parcel, Refused

_SAID = ("org", "project", "agent_id", "session_id", "memory_scope", "type", "content")
"""What makes a memory of another tool the same one; the rest was filled in, and may have changed here since."""

_ALL = (
    *_SAID,
    *("tags", "metadata", "confidence", "base_confidence", "source", "supersedes_id", "superseded_by"),
    *("created_at", "updated_at", "content_at", "expires_at", "archived_at"),
)
"""But not when a recall last returned it, which is no change of it."""

_LINEAGE = ("supersedes_id", "superseded_by")
_LONGEST_CHAIN = 1_000
"""A bound on walking a lineage, so that no file can hold a run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is done with one thing, and the name under which it is counted."""

    item: Item
    counted: str


@dataclass(slots=True)
class Basket:
    """
    What a batch puts into the store.

    Attributes:
        graves: Tombstones to store; *ended*: those of memories that are here, and go.
        marks: By fingerprint the id of what is stored.
    """

    kept: dict[str, Kept] = field(default_factory=dict[str, Kept])
    graves: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    ended: dict[str, Tombstone] = field(default_factory=dict[str, Tombstone])
    merges: dict[str, Merge] = field(default_factory=dict[str, Merge])
    marks: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Before:
    """What a dry run would have stored by now, which the store cannot tell it; a hundred bytes or two of each."""

    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    ended: set[str] = field(default_factory=set[str])
    marks: dict[str, str] = field(default_factory=dict[str, str])
    lineage: dict[str, tuple[str | None, str | None]] = field(default_factory=dict[str, tuple[str | None, str | None]])

    def take(self, basket: Basket) -> None:
        """Remember what would be stored."""
        self.kept |= {each.id: _digest(each.memory) for each in basket.kept.values()}
        self.ended |= {*basket.graves, *basket.ended}
        self.marks |= basket.marks
        things = [*(each.memory for each in basket.kept.values()), *basket.graves.values()]
        self.lineage |= {each.id: (each.supersedes_id, each.superseded_by) for each in things if each.supersedes_id or each.superseded_by}


class Judge:
    """
    Judges the parcels of one batch, each knowing what became of those before it.

    Args:
        before: Of a dry run, what its earlier batches would have stored; None: this is none.
        room: So many memories may be stored; the first one too many makes it full, and is not in the basket.
    """

    def __init__(
        self,
        tx: Tx,
        parcels: Sequence[Parcel],
        *,
        workspace_id: int,
        at: datetime,
        dedupe: bool,
        room: int,
        before: Before | None = None,
    ) -> None:
        things = [parcel.holds for parcel in parcels]
        memories = [each.memory.id for each in things if isinstance(each, Arrived)]
        merged = [each.memory_id for each in things if isinstance(each, Merge)]
        ids = sorted({*memories, *merged, *(each.id for each in things if isinstance(each, Tombstone))})
        self._tx = tx
        self._workspace_id = workspace_id
        self._at = at
        self._dedupe = dedupe
        self._is_dry = before is not None
        self._before = before or Before()
        self._here: Mapping[str, Kept] = transfer.kept(tx, ids)
        self._buried: Mapping[str, Tombstone] = transfer.buried(tx, ids)
        self._merged: Mapping[str, Merge] = transfer.merged(tx, merged)
        self._room = room
        self.is_full = False
        self.basket = Basket()

    def verdict(self, parcel: Parcel) -> Verdict | None:
        """Judge a parcel, and put it into the basket if it is to be stored; None: it is part of another that has its verdict."""
        match parcel.holds:
            case Arrived() as arrived:
                action, counted, why = self._memory(arrived)
                name = arrived.memory.id
            case Tombstone() as grave:
                action, counted, why = self._tombstone(grave)
                name = grave.id
            case Merge() as merge:
                self._merge(merge)
                return None
            case Refused() as refused:
                action, counted, why = "refuse", "refused", refused.why
                name = refused.name or "-"
        return Verdict(Item(id=name, action=action, why=f"{parcel.where}: {why}"), counted)

    def _memory(self, arrived: Arrived) -> tuple[Action, str, str]:
        memory = arrived.memory
        if memory.expires_at is not None and memory.expires_at <= self._at:
            return "skip", "expired", f"it expired at {iso(memory.expires_at)}"
        known = self._known(arrived)
        if known is not None:
            return known
        if self._circles(memory):
            return _IN_A_CIRCLE
        twin = self._twin(memory) if self._dedupe and memory.archived_at is None else None
        if twin is not None:
            return "skip", "duplicates", f"{twin} says the same"
        if len(self.basket.kept) >= self._room:
            self.is_full = True
            return "refuse", "refused", "there is no room for it"
        self.basket.kept[memory.id] = Kept(memory=memory, recalled_at=arrived.recalled_at)
        return "import", "imported", _shown(memory)

    def _known(self, arrived: Arrived) -> tuple[Action, str, str] | None:
        """Judge a memory whose id is known already; None: it is not."""
        memory = arrived.memory
        grave = self._buried.get(memory.id)
        if grave is not None and grave.workspace_id != self._workspace_id:
            return _TAKEN
        if grave is not None and not (arrived.is_exact and memory.updated_at <= grave.ended_at):
            return "conflict", "conflicts", f"it was deleted or replaced here at {iso(grave.ended_at)}"
        if grave is not None or memory.id in self.basket.graves or memory.id in self._before.ended:
            return "skip", "unchanged", "it ended since"
        there = self.basket.kept.get(memory.id) or self._here.get(memory.id)
        if there is not None:
            if there.memory.workspace_id != self._workspace_id:
                return _TAKEN
            differing = _differing(there.memory, memory, _ALL if arrived.is_exact else _SAID)
            if differing:
                return "conflict", "conflicts", f"it is here with another {', '.join(differing)}"
            return "skip", "unchanged", "it is here already"
        seen = self._before.kept.get(memory.id)
        if seen is None:
            return None
        if seen == _digest(memory):
            return "skip", "unchanged", "it came before"
        return "conflict", "conflicts", "it came before, and was another"

    def _twin(self, memory: Memory) -> str | None:
        """Return a memory with the same content in the same space."""
        mark = fingerprint(memory)
        if not self._is_dry:
            records.alone(self._tx, mark)
        twin = self.basket.marks.get(mark) or self._before.marks.get(mark)
        if twin is None:
            twin = next(iter(records.duplicates(self._tx, self._workspace_id, mark, at=self._at)), None)
        if twin is None:
            self.basket.marks[mark] = memory.id
        return twin

    def _tombstone(self, grave: Tombstone) -> tuple[Action, str, str]:
        there = self.basket.graves.get(grave.id) or self._buried.get(grave.id)
        here = self._here.get(grave.id)
        if {each.workspace_id for each in (there, here and here.memory) if each is not None} - {self._workspace_id}:
            return _TAKEN
        if there is not None or grave.id in self._before.ended:
            is_same = there is None or there == grave
            return ("skip", "unchanged", "it is here already") if is_same else ("conflict", "conflicts", "it ended here in another way")
        if here is not None:
            if here.memory.updated_at > grave.ended_at:
                return "conflict", "conflicts", f"it ended at {iso(grave.ended_at)}, and was changed here after that"
            self.basket.ended[grave.id] = grave
            return "end", "ended", "it was deleted or replaced there"
        if self._circles(grave):
            return _IN_A_CIRCLE
        self.basket.kept.pop(grave.id, None)
        self.basket.graves[grave.id] = grave
        return "import", "tombstones", "what stayed of a memory"

    def _circles(self, thing: Memory | Tombstone) -> bool:
        """Tell whether *thing* would replace itself, by way of others: then its lineage has no end."""
        for name in _LINEAGE:
            seen, following = {thing.id}, getattr(thing, name)
            while following is not None and len(seen) < _LONGEST_CHAIN:
                if following in seen:
                    return True
                seen.add(following)
                beyond = self._lineage(following)
                following = None if beyond is None else beyond[_LINEAGE.index(name)]
        return False

    def _lineage(self, memory_id: str) -> tuple[str | None, str | None] | None:
        """Return what a memory that came, or is here, replaced, and what replaced it."""
        came = self.basket.kept.get(memory_id)
        thing = came.memory if came is not None else self.basket.graves.get(memory_id)
        if thing is None and memory_id in self._before.lineage:
            return self._before.lineage[memory_id]
        if thing is None:
            here = transfer.kept(self._tx, [memory_id]).get(memory_id)
            thing = here.memory if here is not None else transfer.buried(self._tx, [memory_id]).get(memory_id)
        return None if thing is None or thing.workspace_id != self._workspace_id else (thing.supersedes_id, thing.superseded_by)

    def _merge(self, merge: Merge) -> None:
        here = self.basket.kept.get(merge.memory_id) or self._here.get(merge.memory_id)
        if here is not None and here.memory.workspace_id == self._workspace_id and merge.memory_id not in self._merged:
            self.basket.merges[merge.memory_id] = merge


_IN_A_CIRCLE: tuple[Action, str, str] = (
    "refuse",
    "refused",
    "its lineage runs in a circle: by supersedes_id or superseded_by it replaces itself",
)
_TAKEN: tuple[Action, str, str] = ("conflict", "conflicts", "its id is taken; --new-ids stores a copy with another")


def _differing(here: Memory, came: Memory, names: Sequence[str]) -> list[str]:
    return [name for name in names if getattr(here, name) != getattr(came, name)]


def _digest(memory: Memory) -> bytes:
    plain = replace(memory, indexed_at=None, indexed_model=None, index_failed_at=None)
    return blake2b(repr([getattr(plain, name) for name in _ALL]).encode(), digest_size=12).digest()


def _shown(memory: Memory) -> str:
    space = "/".join(name for name in (memory.org, memory.project) if name)
    return f"{memory.type}{f' of {space}' if space else ''}, {len(memory.content):,} characters"
