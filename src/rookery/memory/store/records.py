"""Memories one by one: stored, read by id, changed, buried. Statements are constants, compiled once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, bindparam, delete, func, insert, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value
from rookery.memory.metadata import labels
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store.rows import to_memory, to_row, to_tombstone
from rookery.memory.store.tables import THEIRS, memories, memory_labels, memory_tags, tombstones, training_rows

MAX_DUPLICATES = 10

_LONGEST_CHAIN = 10_000
"""A bound on walking a lineage, so that no damage to the store can hold the writer."""

_KEPT = [column for column in memories.c if column.name not in ("fingerprint", "recalled_at")]
_THIS = (memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))

_ADD = insert(memories)
_ADD_TAG = insert(memory_tags)
_ADD_LABEL = insert(memory_labels)
_BY_ID = select(*_KEPT).where(*_THIS)
_LOCKED = _BY_ID.with_for_update()
_BY_IDS = select(*_KEPT).where(THEIRS, memories.c.id.in_(bindparam("ids", expanding=True)))
_SAME = (
    select(memories.c.id)
    .where(
        THEIRS,
        memories.c.fingerprint == bindparam("fingerprint"),
        memories.c.archived_at.is_(None),
        or_(memories.c.expires_at.is_(None), memories.c.expires_at > bindparam("at")),
    )
    .order_by(memories.c.created_at, memories.c.id)
    .limit(MAX_DUPLICATES)
)
_CHANGED = (
    "org", "project", "type", "tags", "confidence", "base_confidence", "source", "content", "metadata", "fingerprint",
    "expires_at", "archived_at", "index_failed_at", "indexed_at", "indexed_model",
    "supersedes_id", "superseded_by", "content_at", "updated_at",
)  # fmt: skip
_CHANGE = update(memories).where(*_THIS).values({name: bindparam(f"new_{name}") for name in _CHANGED})
_DELETE = delete(memories).where(*_THIS)
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
_UNTRAIN = delete(training_rows).where(
    training_rows.c.workspace_id == bindparam("workspace"), training_rows.c.memory_id == bindparam("memory")
)
_BURY = insert(tombstones)
_TOMBSTONE = select(tombstones).where(tombstones.c.workspace_id == bindparam("workspace"), tombstones.c.id == bindparam("memory"))
_ALONE = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_COUNT = select(func.count().label("found")).select_from(memories).where(memories.c.workspace_id == bindparam("workspace"))
_OF_AGENT = (
    select(memories.c.id)
    .where(memories.c.workspace_id == bindparam("workspace"), memories.c.agent_id == bindparam("agent"), memories.c.memory_scope == "agent")
    .limit(1)
)
_NOT_CURRENT = select(memories.c.id).where(
    THEIRS,
    memories.c.id.in_(bindparam("ids", expanding=True)),
    or_(memories.c.indexed_at.is_(None), memories.c.indexed_at < memories.c.updated_at),
)


def alone(tx: Tx, fingerprint: str) -> None:
    """Let no other transaction that asks the same store anything until this one ends; on SQLite only one writes anyway."""
    if tx.dialect == "postgresql":
        number = int.from_bytes(bytes.fromhex(fingerprint)[:8], "big", signed=True)
        tx.one(_ALONE, {"number": number})


def add(tx: Tx, *new: Memory) -> None:
    """Store memories and their tags; their ids must be new."""
    tx.many(_ADD, [to_row(memory) for memory in new])
    _add_tags(tx, *new)
    add_labels(tx, *new)


def duplicates(tx: Tx, workspace_id: int, fingerprint: str, *, at: datetime) -> list[str]:
    """Return the ids of the workspace's live memories with *fingerprint*, oldest first, at most `MAX_DUPLICATES`."""
    found = tx.all(_SAME, {"workspace": workspace_id, "fingerprint": fingerprint, "at": to_micros(at)})
    return [row.text("id") for row in found]


def by_id(tx: Tx, workspace_id: int, memory_id: str) -> Memory | None:
    """Return a memory of the workspace, archived and expired ones too."""
    row = tx.one(_BY_ID, {"workspace": workspace_id, "memory": memory_id})
    return None if row is None else to_memory(row)


def locked(tx: Tx, workspace_id: int, memory_id: str) -> Memory | None:
    """Do as `by_id`, and let nobody change or delete it until this transaction ends."""
    row = tx.one(_LOCKED, {"workspace": workspace_id, "memory": memory_id})
    return None if row is None else to_memory(row)


def by_ids(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[Memory]:
    """Return those of *ids* that the workspace has, archived and expired ones too, in no order."""
    if not ids:
        return []
    return [to_memory(row) for row in tx.all(_BY_IDS, {"workspace": workspace_id, "ids": ids})]


def change(tx: Tx, was: Memory, now: Memory) -> None:
    """Write *now* over *was*, tags too; *was* is what `locked` returned in this transaction."""
    row = to_row(now)
    values: dict[str, Value] = {f"new_{name}": row[name] for name in _CHANGED}
    tx.run(_CHANGE, {**values, "workspace": was.workspace_id, "memory": was.id})
    if was.tags != now.tags:
        _drop_tags(tx, was)
        _add_tags(tx, now)
    if was.metadata != now.metadata:
        _drop_labels(tx, was)
        add_labels(tx, now)


def bury(tx: Tx, memory: Memory, *, at: datetime, superseded_by: str | None = None) -> bool:
    """
    Delete *memory*; one that is part of a lineage leaves a tombstone (D-41), and its training rows go with it (D-57).

    Returns False if somebody else deleted it first: then nothing was done.
    """
    if tx.run(_DELETE, {"workspace": memory.workspace_id, "memory": memory.id}) == 0:
        return False
    _drop_tags(tx, memory)
    _drop_labels(tx, memory)
    tx.run(_UNTRAIN, {"workspace": memory.workspace_id, "memory": memory.id})
    superseded_by = superseded_by or memory.superseded_by
    if superseded_by is not None or memory.supersedes_id is not None:
        row: dict[str, Value] = {
            "id": memory.id,
            "workspace_id": memory.workspace_id,
            "supersedes_id": memory.supersedes_id,
            "superseded_by": superseded_by,
            "created_at": to_micros(memory.created_at),
            "ended_at": to_micros(at),
        }
        tx.run(_BURY, row)
    return True


def tombstone(tx: Tx, workspace_id: int, memory_id: str) -> Tombstone | None:
    """Return what stayed of a memory that was superseded, or deleted as part of a lineage."""
    row = tx.one(_TOMBSTONE, {"workspace": workspace_id, "memory": memory_id})
    return None if row is None else to_tombstone(row)


def head(tx: Tx, grave: Tombstone) -> str | None:
    """Return the id of the memory that stands today for the one under *grave*; None: that one was deleted."""
    for _ in range(_LONGEST_CHAIN):
        if grave.superseded_by is None:
            return None
        following = tombstone(tx, grave.workspace_id, grave.superseded_by)
        if following is None:
            alive = tx.one(_BY_ID, {"workspace": grave.workspace_id, "memory": grave.superseded_by})
            return None if alive is None else grave.superseded_by
        grave = following
    return None


def count(tx: Tx, workspace_id: int) -> int:
    """Return how many memories the workspace has, archived ones too."""
    row = tx.one(_COUNT, {"workspace": workspace_id})
    return 0 if row is None else row.integer("found")


def knows_agent(tx: Tx, workspace_id: int, agent_id: str) -> bool:
    """Tell whether an agent has memories of its own in the workspace."""
    return tx.one(_OF_AGENT, {"workspace": workspace_id, "agent": agent_id}) is not None


def not_current(tx: Tx, workspace_id: int, ids: Sequence[str]) -> list[str]:
    """Return those of *ids*, at least one, that are there and not indexed as they are now."""
    return [row.text("id") for row in tx.all(_NOT_CURRENT, {"workspace": workspace_id, "ids": ids})]


def _add_tags(tx: Tx, *added: Memory) -> None:
    tx.many(_ADD_TAG, [{"workspace_id": each.workspace_id, "tag": tag, "memory_id": each.id} for each in added for tag in each.tags])


def _drop_tags(tx: Tx, memory: Memory) -> None:
    tx.many(_DELETE_TAG, [{"workspace": memory.workspace_id, "name": tag, "memory": memory.id} for tag in memory.tags])


def add_labels(tx: Tx, *added: Memory) -> None:
    """Store by which pairs of their metadata memories are found; most have none."""
    rows = [{"workspace_id": each.workspace_id, "label": name, "memory_id": each.id} for each in added for name in _labels(each)]
    if rows:
        tx.many(_ADD_LABEL, rows)


def _drop_labels(tx: Tx, memory: Memory) -> None:
    rows = [{"workspace": memory.workspace_id, "name": name, "memory": memory.id} for name in _labels(memory)]
    if rows:
        tx.many(_DELETE_LABEL, rows)


def _labels(memory: Memory) -> list[str]:
    return sorted(labels(memory.metadata)) if memory.metadata else []
