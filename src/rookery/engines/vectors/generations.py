"""Vectors of two models side by side in `vectors.db`: which of them answer, and how the others go (D-54)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rookery.memory.ports import Behind, Generation

_SERVING = "SELECT model, dimension FROM serving WHERE workspace_id = ?"
_SERVE_FIRST = "INSERT OR IGNORE INTO serving (workspace_id, model, dimension) VALUES (?, ?, ?)"
_SERVE = "UPDATE serving SET model = ?, dimension = ? WHERE workspace_id = ? AND model = ? AND dimension = ?"
_OTHERS = "SELECT workspace_id, model, dimension FROM serving WHERE (model, dimension) <> (?, ?) ORDER BY workspace_id"
_THEIRS = "SELECT count(*) FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ?"
_LACKING = """
FROM entry AS o WHERE o.workspace_id = :workspace_id AND o.model = :model AND o.dimension = :dimension AND NOT EXISTS (
    SELECT 1 FROM entry AS n
    WHERE n.workspace_id = o.workspace_id AND n.memory_id = o.memory_id AND n.model = :new_model AND n.dimension = :new_dimension
)
"""
# Rebuilding goes in the order of ids, so what is left stands at the end.
_LEFT = f"SELECT o.memory_id {_LACKING} ORDER BY o.memory_id DESC LIMIT :limit"
_COUNT_LEFT = f"SELECT count(*) {_LACKING}"
_RETIRE = """
INSERT INTO retired (workspace_id, model, dimension, change)
SELECT ?, ?, ?, coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry'
ON CONFLICT DO UPDATE SET change = excluded.change
"""
_RETIRED = "SELECT workspace_id, model, dimension, change FROM retired ORDER BY workspace_id, model LIMIT 1"
_OF_OTHERS = "SELECT DISTINCT model, dimension FROM entry WHERE workspace_id = ? AND (model, dimension) <> (?, ?) ORDER BY model, dimension"
_IS_RETIRED = "SELECT 1 FROM retired WHERE workspace_id = ? AND model = ? AND dimension = ?"
_OLD = """
SELECT change FROM entry WHERE workspace_id = ? AND change > ? AND change <= ? AND model = ? AND dimension = ? ORDER BY change LIMIT ?
"""
_DELETE_CHUNKS = "DELETE FROM chunk WHERE entry = ?"
_DELETE_ENTRY = "DELETE FROM entry WHERE change = ?"
_IS_GONE = "DELETE FROM retired WHERE workspace_id = ? AND model = ? AND dimension = ?"


def serving(connection: sqlite3.Connection, workspace_id: int) -> Generation | None:
    """Return whose vectors answer in the workspace; None: it never had any."""
    row = connection.execute(_SERVING, (workspace_id,)).fetchone()
    return None if row is None else Generation(model=row[0], dimension=row[1])


def serve_first(connection: sqlite3.Connection, workspaces: Iterable[int], ours: Generation) -> None:
    """Let *ours* answer in those of *workspaces* in which nobody's does."""
    connection.executemany(_SERVE_FIRST, [(each, ours.model, ours.dimension) for each in workspaces])


def behind(connection: sqlite3.Connection, ours: Generation) -> list[Behind]:
    """Return the workspaces in which another model's vectors answer, and how far *ours* are beside them."""
    found = list[Behind]()
    for workspace_id, model, dimension in connection.execute(_OTHERS, (ours.model, ours.dimension)).fetchall():
        theirs = Generation(model=model, dimension=dimension)
        (total,) = connection.execute(_THEIRS, (workspace_id, model, dimension)).fetchone()
        (left,) = connection.execute(_COUNT_LEFT, _pair(workspace_id, theirs, ours)).fetchone()
        found.append(Behind(workspace_id=workspace_id, serving=theirs, total=total, left=left))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A workspace that may switch: from whose vectors, and whose else lie there, as an earlier change left them when it was given up."""

    workspace_id: int
    serving: Generation
    others: tuple[Generation, ...]


def complete(connection: sqlite3.Connection, ours: Generation, *, without: Collection[str]) -> list[Due]:
    """Return the workspaces in which another model's vectors answer, and of each memory of theirs, but for *without*, there are *ours*."""
    found = list[Due]()
    for workspace_id, model, dimension in connection.execute(_OTHERS, (ours.model, ours.dimension)).fetchall():
        theirs = Generation(model=model, dimension=dimension)
        if connection.execute(_IS_RETIRED, (workspace_id, ours.model, ours.dimension)).fetchone() is not None:
            continue  # what there is of ours is what we left behind earlier, and is still being cleared away
        left = connection.execute(_LEFT, {**_pair(workspace_id, theirs, ours), "limit": len(without) + 1}).fetchall()
        if all(memory_id in without for (memory_id,) in left):
            others = connection.execute(_OF_OTHERS, (workspace_id, ours.model, ours.dimension)).fetchall()
            named = tuple(Generation(model=other, dimension=width) for other, width in others)
            found.append(Due(workspace_id=workspace_id, serving=theirs, others=named))
    return found


def switch(connection: sqlite3.Connection, due: Due, ours: Generation) -> bool:
    """Let *ours* answer, within the writer's transaction, and retire all others; false: somebody switched already."""
    to = (ours.model, ours.dimension, due.workspace_id, due.serving.model, due.serving.dimension)
    if connection.execute(_SERVE, to).rowcount == 0:
        return False
    connection.executemany(_RETIRE, [(due.workspace_id, other.model, other.dimension) for other in due.others])
    return True


def clear(connection: sqlite3.Connection, *, after: int, limit: int) -> int | None:
    """
    Take away at most *limit* vectors of a retired model, within the writer's transaction.

    Args:
        after: What the last call returned; 0 before the first.

    Returns:
        Up to which change there are none any more; 0: this model's are gone; None: no model is retired.
    """
    row = connection.execute(_RETIRED).fetchone()
    if row is None:
        return None
    workspace_id, model, dimension, upto = row
    changes = connection.execute(_OLD, (workspace_id, after, upto, model, dimension, limit)).fetchall()
    connection.executemany(_DELETE_CHUNKS, changes)
    connection.executemany(_DELETE_ENTRY, changes)
    if len(changes) == limit:
        return int(changes[-1][0])
    connection.execute(_IS_GONE, (workspace_id, model, dimension))
    return 0


def _pair(workspace_id: int, theirs: Generation, ours: Generation) -> dict[str, str | int]:
    return {
        "workspace_id": workspace_id,
        "model": theirs.model,
        "dimension": theirs.dimension,
        "new_model": ours.model,
        "new_dimension": ours.dimension,
    }
