"""Queries of the maintenance commands, in batches in the order of ids or fingerprints, and the checkpoints of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, or_, select, true

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Mapper, Tx, fetch_count, upsert
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.metadata import Metadata
from rookery.memory.models import Memory
from rookery.memory.store.codecs import METADATA
from rookery.memory.store.tables import MEMORIES, RUNS, memories, runs

ErasureKind = Literal["traces of what was deleted", "traces of what was cleaned"]
"""The kind of pending erasure. Cleaned texts are erased only after the indexes were updated with the clean texts."""

DELETED_TEXT: ErasureKind = "traces of what was deleted"
CLEANED_TEXT: ErasureKind = "traces of what was cleaned"

_GET = select(runs).where(runs.c.name == bindparam("of_name"))
_DELETE = delete(runs).where(runs.c.name == bindparam("of_name"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySelection:
    """
    The memories of a workspace that a command processes. *ids*, *org*, *project*, *agent_id* and *session_id* must match exactly.

    Attributes:
        at: Excludes archived memories and those that expire at or before this time; None includes them.
        is_orgless: Only memories with a project and without an org.
        permanent_model: Only memories that never expire and whose current version is indexed by this model.
    """

    workspace_id: int
    at: datetime | None = None
    ids: tuple[str, ...] | None = None
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    is_orgless: bool = False
    permanent_model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRow:
    """The fields of a memory that pruning depends on."""

    id: str
    type: str
    confidence: float
    content_at: datetime
    created_at: datetime
    recalled_at: datetime | None
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateRow(PruneRow):
    """The fields of a memory that decide which of several with the same content may go."""

    metadata: Metadata
    tags: tuple[str, ...]


PRUNE_ROWS = Mapper(PruneRow, memories)
DUPLICATE_ROWS = Mapper(DuplicateRow, memories, codecs={"metadata": METADATA})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryIdRow:
    id: str


def list_ids(tx: Tx, selection: MemorySelection, *, after: str, limit: int) -> list[MemoryIdRow]:
    """Return the ids of the next memories, in their order."""
    statement = select(memories.c.id).where(_condition(selection), memories.c.id > after).order_by(memories.c.id).limit(limit)
    return [MemoryIdRow(id=row.text("id")) for row in tx.fetch_all(statement)]


def list_spaces(tx: Tx, selection: MemorySelection, *, after: str, limit: int) -> list[tuple[str, tuple[str | None, ...]]]:
    """Return the next memories by id, with the fields of `merging.space_key`."""
    c = memories.c
    columns = (c.org, c.project, c.memory_scope, c.agent_id, c.session_id, c.type)
    statement = select(c.id, *columns).where(_condition(selection), c.id > after).order_by(c.id).limit(limit)
    return [(row.text("id"), tuple(row.maybe_text(column.name) for column in columns)) for row in tx.fetch_all(statement)]


def list_memories(tx: Tx, selection: MemorySelection, *, after: str, limit: int) -> list[Memory]:
    """Return the next memories by id."""
    statement = select(*MEMORIES.columns).where(_condition(selection), memories.c.id > after).order_by(memories.c.id).limit(limit)
    return MEMORIES.fetch_all(tx, statement)


def list_prune_rows(tx: Tx, selection: MemorySelection, *, after: str, limit: int) -> list[PruneRow]:
    """Return the next memories by id, without their content."""
    statement = select(*PRUNE_ROWS.columns).where(_condition(selection), memories.c.id > after).order_by(memories.c.id).limit(limit)
    return PRUNE_ROWS.fetch_all(tx, statement)


def count_memories(tx: Tx, selection: MemorySelection) -> int:
    """Return the number of selected memories."""
    return fetch_count(tx, select(func.count().label("found")).select_from(memories).where(_condition(selection)))


def list_repeated_fingerprints(tx: Tx, selection: MemorySelection, *, after: str, limit: int) -> list[str]:
    """Return the next fingerprints that more than one memory has."""
    c = memories.c
    statement = (
        select(c.fingerprint)
        .where(_condition(selection), c.fingerprint > after)
        .group_by(c.fingerprint)
        .having(func.count() > 1)
        .order_by(c.fingerprint)
        .limit(limit)
    )
    return [row.text("fingerprint") for row in tx.fetch_all(statement)]


def list_duplicates(tx: Tx, selection: MemorySelection, fingerprints: Sequence[str]) -> list[DuplicateRow]:
    """Return the memories of each fingerprint, the one to keep first: highest confidence, then oldest, then lowest id."""
    c = memories.c
    order = (c.fingerprint, c.confidence.desc(), c.created_at, c.id)
    statement = select(*DUPLICATE_ROWS.columns).where(_condition(selection), c.fingerprint.in_(fingerprints)).order_by(*order)
    return DUPLICATE_ROWS.fetch_all(tx, statement)


def find_single_org(tx: Tx, workspace_id: int, project: str) -> str | None:
    """Return the org of *project* in the workspace. None unless there is exactly one."""
    c = memories.c
    statement = select(c.org).where(c.workspace_id == workspace_id, c.project == project, c.org.is_not(None)).distinct().limit(2)
    rows = tx.fetch_all(statement)
    return rows[0].text("org") if len(rows) == 1 else None


def _condition(selection: MemorySelection) -> ColumnElement[bool]:
    c = memories.c
    # Prevents use of the workspace index: a batch is read by ids, without sorting the workspace (see tables.IS_IN_WORKSPACE).
    conditions: list[ColumnElement[bool]] = [c.workspace_id + 0 == selection.workspace_id]
    if selection.at is not None:
        conditions += [c.archived_at.is_(None), or_(c.expires_at.is_(None), c.expires_at > to_micros(selection.at))]
    if selection.permanent_model is not None:
        conditions += [c.expires_at.is_(None), c.indexed_at >= c.updated_at, c.indexed_model == selection.permanent_model]
    if selection.is_orgless:
        conditions += [c.org.is_(None), c.project.is_not(None)]
    conditions += [
        true() if selection.org is None else c.org == selection.org,
        true() if selection.project is None else c.project == selection.project,
        true() if selection.agent_id is None else c.agent_id == selection.agent_id,
        true() if selection.session_id is None else c.session_id == selection.session_id,
        true() if selection.ids is None else c.id.in_(selection.ids),
    ]
    return and_(*conditions)


_SAVE = upsert(runs, index_elements=["name"], set_=lambda new: {"cursor": new["cursor"], "done": new["done"], "at": new["at"]})


def save_checkpoint(tx: Tx, checkpoint: RunCheckpoint) -> None:
    """Insert or replace the checkpoint of a run."""
    tx.execute(_SAVE, RUNS.to_row(checkpoint))


def get_checkpoint(tx: Tx, name: str) -> RunCheckpoint | None:
    """Return the checkpoint of the run. None if it completed or never started."""
    return RUNS.fetch_one(tx, _GET, {"of_name": name})


def add_pending_erasure(tx: Tx, kind: ErasureKind, *, at: datetime) -> None:
    """Record that files have to be erased, in the transaction that deletes or replaces data."""
    save_checkpoint(tx, RunCheckpoint(name=kind, workspace_id=None, cursor="", done=0, at=at))


def delete_checkpoint(tx: Tx, name: str) -> None:
    """Delete the checkpoint of a completed run."""
    tx.execute(_DELETE, {"of_name": name})
