"""Vectors of two models side by side in `vectors.db`: which of them answer, and how the others go (D-54)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rookery.memory.ports import ModelVersion, OutdatedWorkspace

_GET_ACTIVE = "SELECT model, dimension FROM serving WHERE workspace_id = ?"
_ACTIVATE_FIRST = "INSERT OR IGNORE INTO serving (workspace_id, model, dimension) VALUES (?, ?, ?)"
_ACTIVATE = "UPDATE serving SET model = ?, dimension = ? WHERE workspace_id = ? AND model = ? AND dimension = ?"
_LIST_OUTDATED = "SELECT workspace_id, model, dimension FROM serving WHERE (model, dimension) <> (?, ?) ORDER BY workspace_id"
_COUNT_ENTRIES = "SELECT count(*) FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ?"
_MISSING = """
FROM entry AS o WHERE o.workspace_id = :workspace_id AND o.model = :model AND o.dimension = :dimension AND NOT EXISTS (
    SELECT 1 FROM entry AS n
    WHERE n.workspace_id = o.workspace_id AND n.memory_id = o.memory_id AND n.model = :new_model AND n.dimension = :new_dimension
)
"""
# Rebuilding goes in the order of ids, so what is left stands at the end.
_LIST_MISSING = f"SELECT o.memory_id {_MISSING} ORDER BY o.memory_id DESC LIMIT :limit"
_COUNT_MISSING = f"SELECT count(*) {_MISSING}"
_RETIRE = """
INSERT INTO retired (workspace_id, model, dimension, change)
SELECT ?, ?, ?, coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'
ON CONFLICT DO UPDATE SET change = excluded.change
"""
_NEXT_RETIRED = "SELECT workspace_id, model, dimension, change FROM retired ORDER BY workspace_id, model LIMIT 1"
_OTHER_VERSIONS = (
    "SELECT DISTINCT model, dimension FROM entry WHERE workspace_id = ? AND (model, dimension) <> (?, ?) ORDER BY model, dimension"
)
_IS_RETIRED = "SELECT 1 FROM retired WHERE workspace_id = ? AND model = ? AND dimension = ?"
_RETIRED_CHANGES = """
SELECT change FROM entry WHERE workspace_id = ? AND change > ? AND change <= ? AND model = ? AND dimension = ? ORDER BY change LIMIT ?
"""
_DELETE_CHUNKS = "DELETE FROM chunk WHERE entry = ?"
_DELETE_ENTRY = "DELETE FROM entry WHERE change = ?"
_DELETE_RETIRED = "DELETE FROM retired WHERE workspace_id = ? AND model = ? AND dimension = ?"


def get_active_version(connection: sqlite3.Connection, workspace_id: int) -> ModelVersion | None:
    """Return whose vectors answer in the workspace; None: it never had any."""
    row = connection.execute(_GET_ACTIVE, (workspace_id,)).fetchone()
    return None if row is None else ModelVersion(model=row[0], dimension=row[1])


def activate_first(connection: sqlite3.Connection, workspaces: Iterable[int], ours: ModelVersion) -> None:
    """Let *ours* answer in those of *workspaces* in which nobody's does."""
    connection.executemany(_ACTIVATE_FIRST, [(each, ours.model, ours.dimension) for each in workspaces])


def list_outdated(connection: sqlite3.Connection, ours: ModelVersion) -> list[OutdatedWorkspace]:
    """Return the workspaces in which another model's vectors answer, and how far *ours* are beside them."""
    found = list[OutdatedWorkspace]()
    for workspace_id, model, dimension in connection.execute(_LIST_OUTDATED, (ours.model, ours.dimension)).fetchall():
        theirs = ModelVersion(model=model, dimension=dimension)
        (total,) = connection.execute(_COUNT_ENTRIES, (workspace_id, model, dimension)).fetchone()
        (left,) = connection.execute(_COUNT_MISSING, _pair_parameters(workspace_id, theirs, ours)).fetchone()
        found.append(OutdatedWorkspace(workspace_id=workspace_id, active_version=theirs, total=total, pending=left))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActivation:
    """A workspace that may switch: from whose vectors, and whose else lie there, as an earlier change left them when it was given up."""

    workspace_id: int
    active_version: ModelVersion
    retired_versions: tuple[ModelVersion, ...]


def list_complete(connection: sqlite3.Connection, ours: ModelVersion, *, ignored_ids: Collection[str]) -> list[PendingActivation]:
    """Return the workspaces that still serve another model's vectors although each memory, except *ignored_ids*, has a vector of *ours*."""
    found = list[PendingActivation]()
    for workspace_id, model, dimension in connection.execute(_LIST_OUTDATED, (ours.model, ours.dimension)).fetchall():
        theirs = ModelVersion(model=model, dimension=dimension)
        if connection.execute(_IS_RETIRED, (workspace_id, ours.model, ours.dimension)).fetchone() is not None:
            continue  # what there is of ours is what we left behind earlier, and is still being cleared away
        left = connection.execute(_LIST_MISSING, {**_pair_parameters(workspace_id, theirs, ours), "limit": len(ignored_ids) + 1}).fetchall()
        if all(memory_id in ignored_ids for (memory_id,) in left):
            others = connection.execute(_OTHER_VERSIONS, (workspace_id, ours.model, ours.dimension)).fetchall()
            named = tuple(ModelVersion(model=other, dimension=width) for other, width in others)
            found.append(PendingActivation(workspace_id=workspace_id, active_version=theirs, retired_versions=named))
    return found


def activate(connection: sqlite3.Connection, activation: PendingActivation, ours: ModelVersion) -> bool:
    """Let *ours* answer, within the writer's transaction, and retire all others; false: somebody switched already."""
    to = (ours.model, ours.dimension, activation.workspace_id, activation.active_version.model, activation.active_version.dimension)
    if connection.execute(_ACTIVATE, to).rowcount == 0:
        return False
    connection.executemany(_RETIRE, [(activation.workspace_id, other.model, other.dimension) for other in activation.retired_versions])
    return True


def delete_retired(connection: sqlite3.Connection, *, after: int, limit: int) -> int | None:
    """
    Take away at most *limit* vectors of a retired model, within the writer's transaction.

    Args:
        after: What the last call returned; 0 before the first.

    Returns:
        Up to which change there are none any more; 0: this model's are gone; None: no model is retired.
    """
    row = connection.execute(_NEXT_RETIRED).fetchone()
    if row is None:
        return None
    workspace_id, model, dimension, upto = row
    changes = connection.execute(_RETIRED_CHANGES, (workspace_id, after, upto, model, dimension, limit)).fetchall()
    connection.executemany(_DELETE_CHUNKS, changes)
    connection.executemany(_DELETE_ENTRY, changes)
    if len(changes) == limit:
        return int(changes[-1][0])
    connection.execute(_DELETE_RETIRED, (workspace_id, model, dimension))
    return 0


def _pair_parameters(workspace_id: int, theirs: ModelVersion, ours: ModelVersion) -> dict[str, str | int]:
    return {
        "workspace_id": workspace_id,
        "model": theirs.model,
        "dimension": theirs.dimension,
        "new_model": ours.model,
        "new_dimension": ours.dimension,
    }
