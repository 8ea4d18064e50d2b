"""Queries on single memories: their records, their lineage and merges, and those of a session. Statements are constants, compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import BigInteger, Table, bindparam, delete, func, insert, or_, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value, upsert
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, MemoryScope, Tombstone
from rookery.memory.store.tables import (
    IS_IN_WORKSPACE,
    IS_SESSION_SCOPE,
    MEMORIES,
    MERGES,
    TOMBSTONES,
    TRAINING_EXAMPLES,
    memories,
    memory_labels,
    memory_tags,
    merges,
)

MAX_DUPLICATES = 10

_MAX_CHAIN_STEPS = 10_000
"""Maximum steps along a lineage, so that damaged data cannot block the writer."""

_ADD = insert(memories)
_DUPLICATES = (
    select(memories.c.id)
    .where(
        IS_IN_WORKSPACE,
        memories.c.fingerprint == bindparam("fingerprint"),
        memories.c.archived_at.is_(None),
        or_(memories.c.expires_at.is_(None), memories.c.expires_at > bindparam("at")),
    )
    .order_by(memories.c.created_at, memories.c.id)
    .limit(MAX_DUPLICATES)
)
_FINGERPRINTS = (
    select(memories.c.fingerprint).where(IS_IN_WORKSPACE, memories.c.fingerprint.in_(bindparam("fingerprints", expanding=True))).distinct()
)
_LOCK_FINGERPRINT = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_PRESENT = select(memories.c.id).where(IS_IN_WORKSPACE, memories.c.id.in_(bindparam("ids", expanding=True)))
_UNINDEXED = select(memories.c.id).where(
    IS_IN_WORKSPACE,
    memories.c.id.in_(bindparam("ids", expanding=True)),
    or_(memories.c.indexed_at.is_(None), memories.c.indexed_at < memories.c.updated_at),
)

_MAX_STEPS = 1_000
"""Maximum steps in each direction, as a guard against cycles."""

_IS_LIVE = (IS_IN_WORKSPACE, IS_SESSION_SCOPE, memories.c.session_id == bindparam("session"), memories.c.archived_at.is_(None))
_LOCK_LIVE = select(*MEMORIES.columns).where(*_IS_LIVE).order_by(memories.c.id).limit(bindparam("most")).with_for_update()

# A memory can be merged again after a restore by other means than `restore`; the newer merge counts.
_ADD_MERGE = upsert(merges, index_elements=["memory_id"], set_=lambda new: {c.name: new[c.name] for c in merges.c if c.name != "memory_id"})
_UNFINISHED = (
    select(merges.c.primary_id)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.is_done == 0, merges.c.primary_id > bindparam("after"))
    .distinct()
    .order_by(merges.c.primary_id)
    .limit(bindparam("most"))
)


class _Names:
    """The table of tags or labels, by which memories are found. *field* is that of `Memory`."""

    def __init__(self, table: Table, column: str, field: str) -> None:
        self._column, self._field = column, field
        self._insert = insert(table)
        self._delete = delete(table).where(*(table.c[name] == bindparam(f"of_{name}") for name in ("workspace_id", column, "memory_id")))

    def add(self, tx: Tx, *added: Memory) -> None:
        if rows := self._list_rows(added):
            tx.execute_many(self._insert, rows)

    def remove(self, tx: Tx, memory: Memory) -> None:
        if rows := self._list_rows([memory]):
            tx.execute_many(self._delete, [{f"of_{name}": value for name, value in row.items()} for row in rows])

    def replace(self, tx: Tx, old: Memory, new: Memory) -> None:
        if getattr(old, self._field) != getattr(new, self._field):
            self.remove(tx, old)
            self.add(tx, new)

    def _list_rows(self, items: Sequence[Memory]) -> list[dict[str, Value]]:
        return [
            {"workspace_id": memory.workspace_id, self._column: name, "memory_id": memory.id}
            for memory in items
            for name in sorted(set(getattr(memory, self._field)))
        ]


_NAMES = (_Names(memory_tags, "tag", "tags"), _Names(memory_labels, "label", "labels"))


class NewMemory(NamedTuple):
    """A memory and its row, which is made before the transaction that adds it."""

    memory: Memory
    row: Mapping[str, Value]

    @property
    def fingerprint(self) -> str:
        """The digest that equal memories share (`codecs.fingerprint`)."""
        return cast("str", self.row["fingerprint"])


def prepare(memory: Memory) -> NewMemory:
    """Return *memory* for `add_prepared`."""
    return NewMemory(memory, MEMORIES.to_row(memory))


def lock_fingerprint(tx: Tx, fingerprint: str) -> None:
    """Lock *fingerprint* until this transaction ends, so that duplicates are detected. On SQLite, the single writer suffices."""
    if tx.dialect == "postgresql":
        number = int.from_bytes(bytes.fromhex(fingerprint)[:8], "big", signed=True)
        tx.fetch_one(_LOCK_FINGERPRINT, {"number": number})


def add(tx: Tx, *new: Memory) -> None:
    """Store memories with their tags and labels. Their ids must be new."""
    add_prepared(tx, [prepare(memory) for memory in new])


def add_prepared(tx: Tx, new: Sequence[NewMemory]) -> None:
    """Store prepared memories with their tags and labels. Their ids must be new."""
    tx.execute_many(_ADD, [row for _, row in new])
    add_names(tx, *(memory for memory, _ in new))


def add_names(tx: Tx, *new: Memory) -> None:
    """Store the tags and labels of memories."""
    for names in _NAMES:
        names.add(tx, *new)


def list_fingerprints(tx: Tx, workspace_id: int, fingerprints: Sequence[str]) -> list[str]:
    """Return those of *fingerprints* that memories of the workspace have, archived and expired ones too."""
    if not fingerprints:
        return []
    return [row.text("fingerprint") for row in tx.fetch_all(_FINGERPRINTS, {"workspace": workspace_id, "fingerprints": fingerprints})]


def find_duplicates(tx: Tx, workspace_id: int, fingerprint: str, *, at: datetime) -> list[str]:
    """Return the ids of the workspace's live memories with *fingerprint*, oldest first, at most `MAX_DUPLICATES`."""
    rows = tx.fetch_all(_DUPLICATES, {"workspace": workspace_id, "fingerprint": fingerprint, "at": to_micros(at)})
    return [row.text("id") for row in rows]


def get_memories(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[Memory]:
    """Return those of *ids* that the workspace has, archived and expired ones too."""
    return MEMORIES.find_all(tx, workspace_id, id=ids) if ids else []


def update_memory(tx: Tx, old: Memory, new: Memory) -> None:
    """Replace *old*, whose row this transaction has locked, by *new*, including tags and labels."""
    MEMORIES.update(tx, new)
    for names in _NAMES:
        names.replace(tx, old, new)


def delete_memory(tx: Tx, memory: Memory, *, at: datetime, superseded_by: str | None = None) -> bool:
    """
    Delete *memory* and its training examples. A memory in a lineage leaves a tombstone.

    Return False, without any change, if it was already deleted.
    """
    if MEMORIES.delete(tx, memory.workspace_id, id=memory.id) == 0:
        return False
    for names in _NAMES:
        names.remove(tx, memory)
    TRAINING_EXAMPLES.delete(tx, memory.workspace_id, memory_id=memory.id)
    superseded_by = superseded_by or memory.superseded_by
    if superseded_by is not None or memory.supersedes_id is not None:
        tombstone = Tombstone(
            id=memory.id,
            workspace_id=memory.workspace_id,
            supersedes_id=memory.supersedes_id,
            superseded_by=superseded_by,
            created_at=memory.created_at,
            ended_at=at,
        )
        TOMBSTONES.insert(tx, tombstone)
    return True


def find_head(tx: Tx, start: Tombstone) -> str | None:
    """Return the id of the memory that finally replaced the one of *start*. None if that was deleted."""
    for _ in range(_MAX_CHAIN_STEPS):
        if start.superseded_by is None:
            return None
        following = TOMBSTONES.find(tx, start.workspace_id, id=start.superseded_by)
        if following is None:
            return start.superseded_by if MEMORIES.has(tx, start.workspace_id, id=start.superseded_by) else None
        start = following
    return None


def has_agent(tx: Tx, workspace_id: int, agent_id: str) -> bool:
    """Return whether an agent has memories of its own in the workspace."""
    return MEMORIES.has(tx, workspace_id, agent_id=agent_id, memory_scope=MemoryScope.AGENT.value)


def list_unindexed(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[str]:
    """Return those of *ids*, at least one, that exist and whose current version is not indexed."""
    return [row.text("id") for row in tx.fetch_all(_UNINDEXED, {"workspace": workspace_id, "ids": ids})]


def list_present(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[str]:
    """Return those of *ids*, at least one, that the workspace has, archived and expired ones too."""
    return [row.text("id") for row in tx.fetch_all(_PRESENT, {"workspace": workspace_id, "ids": ids})]


def get_lineage(tx: Tx, workspace_id: int, memory_id: str) -> list[Memory | Tombstone]:
    """Return the lineage of the memory, oldest first: the memories that it replaced or absorbed, itself, and those that replaced it."""
    current = _get_version(tx, workspace_id, memory_id)
    if current is None:
        return []
    chain: list[Memory | Tombstone] = [current]
    while len(chain) < _MAX_STEPS and (before := chain[0].supersedes_id) is not None:
        previous = _get_version(tx, workspace_id, before)  # an imported version keeps its text, archived
        if previous is None or any(memory.id == previous.id for memory in chain):
            break
        chain.insert(0, previous)
    known_ids = {memory.id for memory in chain}
    while len(known_ids) < _MAX_STEPS and (after := chain[-1].superseded_by) is not None and after not in known_ids:
        following = _get_version(tx, workspace_id, after)
        if following is None:
            break
        known_ids.add(after)
        chain.append(following)
    return _insert_merged(tx, workspace_id, chain)


def _insert_merged(tx: Tx, workspace_id: int, chain: list[Memory | Tombstone]) -> list[Memory | Tombstone]:
    """Return *chain* with the merged memories, each before the one that it was merged into."""
    known_ids = {memory.id for memory in chain}
    position = len(chain) - 1
    while position >= 0 and len(chain) < _MAX_STEPS:
        sources = [merge.memory_id for merge in MERGES.find_all(tx, workspace_id, primary_id=chain[position].id) if merge.is_done]
        merged_versions = [
            version
            for memory_id in sources
            if memory_id not in known_ids and (version := _get_version(tx, workspace_id, memory_id)) is not None
        ]
        known_ids |= {memory.id for memory in merged_versions}
        chain[position:position] = merged_versions
        # The inserted memories are processed next, from the end, because others may have been merged into them.
        position += len(merged_versions) - 1
    return chain


def _get_version(tx: Tx, workspace_id: int, memory_id: str) -> Memory | Tombstone | None:
    return MEMORIES.find(tx, workspace_id, id=memory_id) or TOMBSTONES.find(tx, workspace_id, id=memory_id)


def lock_live(tx: Tx, workspace_id: int, session_id: str, *, limit: int) -> list[Memory]:
    """Return and lock at most *limit* memories of a session that are not archived."""
    return MEMORIES.fetch_all(tx, _LOCK_LIVE, {"workspace": workspace_id, "session": session_id, "most": limit})


def lock_by_ids(tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[Memory]:
    """Return and lock those of *ids* that belong to the session and are not archived."""
    conditions = {"session_id": session_id, "memory_scope": MemoryScope.SESSION.value, "archived_at": None}
    return MEMORIES.find_all(tx, workspace_id, id=ids, lock=True, **conditions) if ids else []


def add_merges(tx: Tx, planned_merges: Sequence[Merge]) -> None:
    """Store merges whose memories are yet to be archived."""
    tx.execute_many(_ADD_MERGE, [MERGES.to_row(merge) for merge in planned_merges])


def list_unfinished_merges(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[str]:
    """Return the primaries, by id, of merges that are not completed."""
    return [row.text("primary_id") for row in tx.fetch_all(_UNFINISHED, {"workspace": workspace_id, "after": after, "most": limit})]
