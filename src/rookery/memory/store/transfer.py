"""Queries of export and import: memories with internal fields, tombstones and merges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, bindparam, func, or_, select, true

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Mapper, Tx, fetch_count
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store.records import add_names
from rookery.memory.store.tables import MEMORIES, MERGES, TOMBSTONES, memories, merges, tombstones

_GET_TOMBSTONES = select(tombstones).where(tombstones.c.id.in_(bindparam("ids", expanding=True)))
_GET_MERGES = select(merges).where(merges.c.memory_id.in_(bindparam("ids", expanding=True)))
_LIST_TOMBSTONES = (
    select(tombstones)
    .where(tombstones.c.workspace_id == bindparam("workspace"), tombstones.c.id > bindparam("after"))
    .order_by(tombstones.c.id)
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRecord:
    """A memory, and the time of its last recall."""

    memory: Memory
    recalled_at: datetime | None = None

    @property
    def id(self) -> str:
        """The id of the memory."""
        return self.memory.id


_RECORDS = Mapper(TransferRecord, memories, nested={"memory": MEMORIES})
# By id without a workspace: ids are unique in the whole store, and an existing id cannot be stored again.
_GET_MEMORIES = select(*_RECORDS.columns).where(memories.c.id.in_(bindparam("ids", expanding=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportSelection:
    """The memories of a workspace to export; *org* and the other fields must match exactly."""

    workspace_id: int
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    includes_archived: bool = False

    @property
    def is_whole_workspace(self) -> bool:
        """True if no memories, except archived ones, are left out."""
        return self.org is None and self.project is None and self.agent_id is None and self.type is None


def count_memories(tx: Tx, selection: ExportSelection, *, at: datetime) -> int:
    """Return the number of selected memories that do not expire at or before *at*."""
    return fetch_count(tx, select(func.count().label("found")).select_from(memories).where(_condition(selection, at)))


def list_batch(tx: Tx, selection: ExportSelection, *, at: datetime, after: str, limit: int) -> list[TransferRecord]:
    """Return the next selected memories by id, without those that expire at or before *at*."""
    statement = select(*_RECORDS.columns).where(_condition(selection, at), memories.c.id > after).order_by(memories.c.id).limit(limit)
    return _RECORDS.fetch_all(tx, statement)


def list_tombstones(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[Tombstone]:
    """Return the next tombstones of the workspace by id."""
    return TOMBSTONES.fetch_all(tx, _LIST_TOMBSTONES, {"workspace": workspace_id, "after": after, "most": limit})


def get_transfer_records(tx: Tx, ids: Sequence[str]) -> dict[str, TransferRecord]:
    """Return the memories with these ids, of any workspace."""
    return {record.id: record for record in _RECORDS.fetch_all(tx, _GET_MEMORIES, {"ids": ids})} if ids else {}


def get_tombstones(tx: Tx, ids: Sequence[str]) -> dict[str, Tombstone]:
    """Return the tombstones with these ids, of any workspace."""
    return {tombstone.id: tombstone for tombstone in TOMBSTONES.fetch_all(tx, _GET_TOMBSTONES, {"ids": ids})} if ids else {}


def get_merges(tx: Tx, ids: Sequence[str]) -> dict[str, Merge]:
    """Return the merges of the memories with these ids, of any workspace."""
    return {merge.memory_id: merge for merge in MERGES.fetch_all(tx, _GET_MERGES, {"ids": ids})} if ids else {}


def add(tx: Tx, transfer_records: Sequence[TransferRecord]) -> None:
    """Store memories whose ids are new, with their tags and labels."""
    _RECORDS.insert(tx, *transfer_records)
    add_names(tx, *(record.memory for record in transfer_records))


def _condition(selection: ExportSelection, at: datetime) -> ColumnElement[bool]:
    c = memories.c
    fields = ((c.org, selection.org), (c.project, selection.project), (c.agent_id, selection.agent_id), (c.type, selection.type))
    return and_(
        # Prevents use of the workspace index: a batch is read by ids (see tables.IS_IN_WORKSPACE).
        c.workspace_id + 0 == selection.workspace_id,
        or_(c.expires_at.is_(None), c.expires_at > to_micros(at)),
        true() if selection.includes_archived else c.archived_at.is_(None),
        *(column == value for column, value in fields if value is not None),
    )
