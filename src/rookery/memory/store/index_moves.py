"""The memories that an index should hold, with what their entries in it depend on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, or_, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Row, Tx, fetch_count
from rookery.memory.store.tables import memories

_C = memories.c
_IS_LIVE = (_C.archived_at.is_(None), or_(_C.expires_at.is_(None), _C.expires_at > bindparam("at")))
_COLUMNS = select(_C.id, _C.workspace_id, _C.updated_at, _C.indexed_at, _C.indexed_model, _C.confidence)
_SCAN = _COLUMNS.where(*_IS_LIVE, _C.id > bindparam("after")).order_by(_C.id).limit(bindparam("most"))
_GET = _COLUMNS.where(*_IS_LIVE, _C.id.in_(bindparam("ids", expanding=True)))
_COUNT = select(func.count()).select_from(memories).where(*_IS_LIVE)
_WORKSPACES = select(_C.workspace_id).distinct().order_by(_C.workspace_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """
    The state of a live memory for an index.

    Attributes:
        text_version: Changes whenever its document changes.
        vector_version: Changes also whenever it is embedded.
        is_indexed: The vectors of its current version are in the index of the server.
    """

    id: str
    workspace_id: int
    text_version: str
    vector_version: str
    is_indexed: bool


def scan(tx: Tx, *, after: str, limit: int, at: datetime, model: str) -> list[IndexState]:
    """Return the next live memories by id, of all workspaces."""
    rows = tx.fetch_all(_SCAN, {"after": after, "most": limit, "at": to_micros(at)})
    return [_read_state(row, model) for row in rows]


def get_states(tx: Tx, ids: Collection[str], *, at: datetime, model: str) -> dict[str, IndexState]:
    """Return the states of those of *ids* that are live, of any workspace."""
    rows = tx.fetch_all(_GET, {"ids": list(ids), "at": to_micros(at)})
    return {row.text("id"): _read_state(row, model) for row in rows}


def count(tx: Tx, *, at: datetime) -> int:
    """Return the number of live memories of all workspaces."""
    return fetch_count(tx, _COUNT, {"at": to_micros(at)})


def list_workspaces(tx: Tx) -> list[int]:
    """Return the workspaces that have memories."""
    return [row.integer("workspace_id") for row in tx.fetch_all(_WORKSPACES)]


def _read_state(row: Row, model: str) -> IndexState:
    updated_at, indexed_at, indexed_model = row.integer("updated_at"), row.maybe_integer("indexed_at"), row.maybe_text("indexed_model")
    text_version = f"{updated_at} {row.number('confidence')!r}"
    return IndexState(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        text_version=text_version,
        vector_version=f"{text_version} {indexed_at} {model}",
        is_indexed=indexed_at is not None and indexed_at >= updated_at and indexed_model in {model, None},
    )
