"""Queries on single memories: their records, their lineage, and those of a session. Statements are constants, compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import BigInteger, bindparam, delete, func, insert, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value, fetch_count
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store import merges
from rookery.memory.store.tables import (
    IS_IN_WORKSPACE,
    IS_SESSION_SCOPE,
    MEMORIES,
    TOMBSTONES,
    memories,
    memory_labels,
    memory_tags,
    memory_to_row,
    tombstones,
    training_rows,
)

MAX_DUPLICATES = 10

_MAX_CHAIN_STEPS = 10_000
"""Maximum steps along a lineage, so that damaged data cannot block the writer."""

_IS_MEMORY = (memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))

_ADD = insert(memories)
_ADD_TAG = insert(memory_tags)
_ADD_LABEL = insert(memory_labels)
_BY_ID = select(*MEMORIES.columns).where(*_IS_MEMORY)
_LOCK = _BY_ID.with_for_update()
_BY_IDS = select(*MEMORIES.columns).where(IS_IN_WORKSPACE, memories.c.id.in_(bindparam("ids", expanding=True)))
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
_FIXED_COLUMNS = {"id", "workspace_id", "agent_id", "session_id", "memory_scope", "created_at", "created_by", "recalled_at"}
_UPDATED_COLUMNS = [column.name for column in memories.c if column.name not in _FIXED_COLUMNS]
_UPDATE = update(memories).where(*_IS_MEMORY)
_DELETE = delete(memories).where(*_IS_MEMORY)
_DELETE_TAG = delete(memory_tags).where(
    memory_tags.c.workspace_id == bindparam("workspace"),
    memory_tags.c.tag == bindparam("name"),
    memory_tags.c.memory_id == bindparam("memory"),
)
_DELETE_LABEL = delete(memory_labels).where(
    memory_labels.c.workspace_id == bindparam("workspace"),
    memory_labels.c.label == bindparam("name"),
    memory_labels.c.memory_id == bindparam("memory"),
)
_DELETE_TRAINING = delete(training_rows).where(
    training_rows.c.workspace_id == bindparam("workspace"), training_rows.c.memory_id == bindparam("memory")
)
_TOMBSTONE = select(tombstones).where(tombstones.c.workspace_id == bindparam("workspace"), tombstones.c.id == bindparam("memory"))
_LOCK_FINGERPRINT = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_COUNT = select(func.count().label("found")).select_from(memories).where(memories.c.workspace_id == bindparam("workspace"))
_HAS_AGENT = (
    select(memories.c.id)
    .where(memories.c.workspace_id == bindparam("workspace"), memories.c.agent_id == bindparam("agent"), memories.c.memory_scope == "agent")
    .limit(1)
)
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
_LOCK_BY_ID = (
    select(*MEMORIES.columns)
    .where(*_IS_LIVE, memories.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(memories.c.id)
    .with_for_update()
)
_MOVED_COLUMNS = ("org", "project", "memory_scope", "fingerprint", "updated_at", "updated_by")
_MOVE = (
    update(memories)
    .where(memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))
    .values({name: bindparam(f"new_{name}") for name in _MOVED_COLUMNS})
)


class NewMemory(NamedTuple):
    """A memory and its row, which is made before the transaction that adds it."""

    memory: Memory
    row: Mapping[str, Value]

    @property
    def fingerprint(self) -> str:
        """The digest that equal memories share (`rows.fingerprint`)."""
        return cast("str", self.row["fingerprint"])


def prepare(memory: Memory) -> NewMemory:
    """Return *memory* for `add_prepared`."""
    return NewMemory(memory, memory_to_row(memory))


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
    memories_to_add = [memory for memory, _ in new]
    _add_tags(tx, *memories_to_add)
    add_labels(tx, *memories_to_add)


def list_fingerprints(tx: Tx, workspace_id: int, fingerprints: Sequence[str]) -> list[str]:
    """Return those of *fingerprints* that memories of the workspace have, archived and expired ones too."""
    if not fingerprints:
        return []
    return [row.text("fingerprint") for row in tx.fetch_all(_FINGERPRINTS, {"workspace": workspace_id, "fingerprints": fingerprints})]


def find_duplicates(tx: Tx, workspace_id: int, fingerprint: str, *, at: datetime) -> list[str]:
    """Return the ids of the workspace's live memories with *fingerprint*, oldest first, at most `MAX_DUPLICATES`."""
    rows = tx.fetch_all(_DUPLICATES, {"workspace": workspace_id, "fingerprint": fingerprint, "at": to_micros(at)})
    return [row.text("id") for row in rows]


def get_memory(tx: Tx, workspace_id: int, memory_id: str) -> Memory | None:
    """Return a memory of the workspace, archived and expired ones too."""
    return MEMORIES.fetch_one(tx, _BY_ID, {"workspace": workspace_id, "memory": memory_id})


def lock_memory(tx: Tx, workspace_id: int, memory_id: str) -> Memory | None:
    """Return the same as `get_memory`, and lock the row until this transaction ends."""
    return MEMORIES.fetch_one(tx, _LOCK, {"workspace": workspace_id, "memory": memory_id})


def get_memories(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[Memory]:
    """Return those of *ids* that the workspace has, archived and expired ones too, in no order."""
    if not ids:
        return []
    return MEMORIES.fetch_all(tx, _BY_IDS, {"workspace": workspace_id, "ids": ids})


def update_memory(tx: Tx, old: Memory, new: Memory) -> None:
    """Replace *old*, which `lock_memory` returned in this transaction, by *new*, including tags and labels."""
    row = memory_to_row(new)
    tx.execute(_UPDATE, {**{name: row[name] for name in _UPDATED_COLUMNS}, "workspace": old.workspace_id, "memory": old.id})
    if old.tags != new.tags:
        _delete_tags(tx, old)
        _add_tags(tx, new)
    if old.labels != new.labels:
        _delete_labels(tx, old)
        add_labels(tx, new)


def delete_memory(tx: Tx, memory: Memory, *, at: datetime, superseded_by: str | None = None) -> bool:
    """
    Delete *memory* and its training examples. A memory in a lineage leaves a tombstone.

    Return False, without any change, if it was already deleted.
    """
    if tx.execute(_DELETE, {"workspace": memory.workspace_id, "memory": memory.id}) == 0:
        return False
    _delete_tags(tx, memory)
    _delete_labels(tx, memory)
    tx.execute(_DELETE_TRAINING, {"workspace": memory.workspace_id, "memory": memory.id})
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


def get_tombstone(tx: Tx, workspace_id: int, memory_id: str) -> Tombstone | None:
    """Return the tombstone of a memory that was superseded, or deleted as part of a lineage."""
    return TOMBSTONES.fetch_one(tx, _TOMBSTONE, {"workspace": workspace_id, "memory": memory_id})


def find_head(tx: Tx, start: Tombstone) -> str | None:
    """Return the id of the memory that finally replaced the one of *start*. None if that was deleted."""
    for _ in range(_MAX_CHAIN_STEPS):
        if start.superseded_by is None:
            return None
        following = get_tombstone(tx, start.workspace_id, start.superseded_by)
        if following is None:
            head = tx.fetch_one(_BY_ID, {"workspace": start.workspace_id, "memory": start.superseded_by})
            return None if head is None else start.superseded_by
        start = following
    return None


def count_memories(tx: Tx, workspace_id: int) -> int:
    """Return the number of memories of the workspace, archived ones too."""
    return fetch_count(tx, _COUNT, {"workspace": workspace_id})


def has_agent(tx: Tx, workspace_id: int, agent_id: str) -> bool:
    """Return whether an agent has memories of its own in the workspace."""
    return tx.fetch_one(_HAS_AGENT, {"workspace": workspace_id, "agent": agent_id}) is not None


def list_unindexed(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[str]:
    """Return those of *ids*, at least one, that exist and whose current version is not indexed."""
    return [row.text("id") for row in tx.fetch_all(_UNINDEXED, {"workspace": workspace_id, "ids": ids})]


def list_present(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[str]:
    """Return those of *ids*, at least one, that the workspace has, archived and expired ones too."""
    return [row.text("id") for row in tx.fetch_all(_PRESENT, {"workspace": workspace_id, "ids": ids})]


def _add_tags(tx: Tx, *new_memories: Memory) -> None:
    tx.execute_many(
        _ADD_TAG,
        [{"workspace_id": memory.workspace_id, "tag": tag, "memory_id": memory.id} for memory in new_memories for tag in memory.tags],
    )


def _delete_tags(tx: Tx, memory: Memory) -> None:
    tx.execute_many(_DELETE_TAG, [{"workspace": memory.workspace_id, "name": tag, "memory": memory.id} for tag in memory.tags])


def add_labels(tx: Tx, *new_memories: Memory) -> None:
    """Store the metadata labels of memories. Most memories have none."""
    rows = [
        {"workspace_id": memory.workspace_id, "label": name, "memory_id": memory.id}
        for memory in new_memories
        for name in sorted(memory.labels)
    ]
    if rows:
        tx.execute_many(_ADD_LABEL, rows)


def _delete_labels(tx: Tx, memory: Memory) -> None:
    rows = [{"workspace": memory.workspace_id, "name": name, "memory": memory.id} for name in sorted(memory.labels)]
    if rows:
        tx.execute_many(_DELETE_LABEL, rows)


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
        sources = [merge.memory_id for merge in merges.list_merged_into(tx, workspace_id, chain[position].id) if merge.is_done]
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
    return get_memory(tx, workspace_id, memory_id) or get_tombstone(tx, workspace_id, memory_id)


def lock_live(tx: Tx, workspace_id: int, session_id: str, *, limit: int) -> list[Memory]:
    """Return and lock at most *limit* memories of a session that are not archived."""
    return MEMORIES.fetch_all(tx, _LOCK_LIVE, {"workspace": workspace_id, "session": session_id, "most": limit})


def lock_by_ids(tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[Memory]:
    """Return and lock those of *ids* that belong to the session and are not archived."""
    if not ids:
        return []
    return MEMORIES.fetch_all(tx, _LOCK_BY_ID, {"workspace": workspace_id, "session": session_id, "ids": ids})


def update_space(tx: Tx, memory: Memory) -> None:
    """Write the space and update time of *memory*, which this transaction has locked."""
    row = memory_to_row(memory)
    tx.execute(_MOVE, {**{f"new_{name}": row[name] for name in _MOVED_COLUMNS}, "workspace": memory.workspace_id, "memory": memory.id})
