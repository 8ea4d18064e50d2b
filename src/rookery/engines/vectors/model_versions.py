"""Vectors of several models in `vectors.db`: which model answers queries, and the deletion of retired ones (D-54)."""

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
# Embedding runs in the order of ids, so missing ones are at the end.
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
    """Return the model that answers queries in the workspace; None if it never had vectors."""
    row = connection.execute(_GET_ACTIVE, (workspace_id,)).fetchone()
    return None if row is None else ModelVersion(model=row[0], dimension=row[1])


def activate_first(connection: sqlite3.Connection, workspaces: Iterable[int], new_version: ModelVersion) -> None:
    """Activate *new_version* in those of *workspaces* without an active model."""
    connection.executemany(_ACTIVATE_FIRST, [(workspace_id, new_version.model, new_version.dimension) for workspace_id in workspaces])


def list_outdated(connection: sqlite3.Connection, new_version: ModelVersion) -> list[OutdatedWorkspace]:
    """Return the workspaces in which another model is active, with the progress of *new_version*."""
    outdated = list[OutdatedWorkspace]()
    for workspace_id, model, dimension in connection.execute(_LIST_OUTDATED, (new_version.model, new_version.dimension)).fetchall():
        active_version = ModelVersion(model=model, dimension=dimension)
        (total,) = connection.execute(_COUNT_ENTRIES, (workspace_id, model, dimension)).fetchone()
        (pending,) = connection.execute(_COUNT_MISSING, _pair_parameters(workspace_id, active_version, new_version)).fetchone()
        outdated.append(OutdatedWorkspace(workspace_id=workspace_id, active_version=active_version, total=total, pending=pending))
    return outdated


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingActivation:
    """A workspace that can switch, with its active model and the other models whose vectors it has from earlier switches."""

    workspace_id: int
    active_version: ModelVersion
    retired_versions: tuple[ModelVersion, ...]


def list_complete(connection: sqlite3.Connection, new_version: ModelVersion, *, ignored_ids: Collection[str]) -> list[PendingActivation]:
    """Return the workspaces with another active model in which each memory, except *ignored_ids*, has a vector of *new_version*."""
    complete = list[PendingActivation]()
    for workspace_id, model, dimension in connection.execute(_LIST_OUTDATED, (new_version.model, new_version.dimension)).fetchall():
        active_version = ModelVersion(model=model, dimension=dimension)
        if connection.execute(_IS_RETIRED, (workspace_id, new_version.model, new_version.dimension)).fetchone() is not None:
            continue  # these vectors of *new_version* are retired and still being deleted
        missing = connection.execute(
            _LIST_MISSING, {**_pair_parameters(workspace_id, active_version, new_version), "limit": len(ignored_ids) + 1}
        ).fetchall()
        if all(memory_id in ignored_ids for (memory_id,) in missing):
            others = connection.execute(_OTHER_VERSIONS, (workspace_id, new_version.model, new_version.dimension)).fetchall()
            retired_versions = tuple(ModelVersion(model=other, dimension=width) for other, width in others)
            complete.append(PendingActivation(workspace_id=workspace_id, active_version=active_version, retired_versions=retired_versions))
    return complete


def activate(connection: sqlite3.Connection, activation: PendingActivation, new_version: ModelVersion) -> bool:
    """Activate *new_version* in the writer's transaction and retire all others. Return False if another process has switched already."""
    parameters = (
        new_version.model,
        new_version.dimension,
        activation.workspace_id,
        activation.active_version.model,
        activation.active_version.dimension,
    )
    if connection.execute(_ACTIVATE, parameters).rowcount == 0:
        return False
    connection.executemany(_RETIRE, [(activation.workspace_id, other.model, other.dimension) for other in activation.retired_versions])
    return True


def delete_retired(connection: sqlite3.Connection, *, after: int, limit: int) -> int | None:
    """
    Delete at most *limit* vectors of a retired model, in the writer's transaction.

    Args:
        after: Result of the last call; 0 at first.

    Returns:
        The change up to which vectors are deleted; 0 when all of this model are; None when no model is retired.
    """
    row = connection.execute(_NEXT_RETIRED).fetchone()
    if row is None:
        return None
    workspace_id, model, dimension, last_change = row
    changes = connection.execute(_RETIRED_CHANGES, (workspace_id, after, last_change, model, dimension, limit)).fetchall()
    connection.executemany(_DELETE_CHUNKS, changes)
    connection.executemany(_DELETE_ENTRY, changes)
    if len(changes) == limit:
        return int(changes[-1][0])
    connection.execute(_DELETE_RETIRED, (workspace_id, model, dimension))
    return 0


def _pair_parameters(workspace_id: int, active_version: ModelVersion, new_version: ModelVersion) -> dict[str, str | int]:
    return {
        "workspace_id": workspace_id,
        "model": active_version.model,
        "dimension": active_version.dimension,
        "new_model": new_version.model,
        "new_dimension": new_version.dimension,
    }
