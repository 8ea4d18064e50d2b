"""Access to `vectors.db`: a row per memory and model with its filter columns, a row per chunk with its vector, and a change counter."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from rookery.engines.vectors.file_format import create_tables
from rookery.engines.vectors.search import Point
from rookery.kernel.clock import to_micros
from rookery.kernel.sqlite import SqliteFile, connect
from rookery.memory.models import EmbeddedDocument
from rookery.memory.ports import ModelVersion

_WATCH_BUSY_TIMEOUT_S = 0.05
_SET_SMALL_CACHE = "PRAGMA cache_size = -256"
"""KiB. Rows are read once, into the segment; SQLite's default of 2 MB per connection would cache rows that are not read again."""

_LIVE_BATCH_ROWS = 8192
"""Numbers per query; one or two milliseconds in which the GIL is held."""

_DELETE_BATCH_ROWS = 256
"""Entries deleted per transaction; blocks other writers for a few milliseconds."""

_FIND_ALL = "SELECT change FROM entry WHERE workspace_id = ? AND memory_id = ?"
_FIND_OWN = _FIND_ALL + " AND model = ? AND dimension = ?"
_DELETE_CHUNKS = "DELETE FROM chunk WHERE entry = ?"
_DELETE_ENTRY = "DELETE FROM entry WHERE change = ?"
_INSERT_ENTRY = """
INSERT INTO entry (workspace_id, memory_id, model, dimension, org, project, agent_id, session_id, memory_scope, type, source, tags,
                   confidence, created_at, updated_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_INSERT_CHUNK = "INSERT INTO chunk (entry, ordinal, vector) VALUES (?, ?, ?)"
_INSERT_TOMBSTONE = "INSERT INTO entry (workspace_id, memory_id) VALUES (?, ?)"
_CLEAR_TOMBSTONES = "DELETE FROM entry WHERE model IS NULL AND change <= ?"
_RAISE_FLOOR = "UPDATE floor SET change = max(change, ?)"
_BOUNDS = "SELECT change, (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'entry') FROM floor"
_CHANGES = """
SELECT e.change, e.memory_id, e.org, e.project, e.agent_id, e.session_id, e.memory_scope, e.type, e.source, e.tags, e.confidence,
       e.created_at, e.expires_at, c.vector
FROM (
    SELECT * FROM entry
    WHERE workspace_id = :workspace_id AND change > :after AND (model IS NULL OR (model = :model AND dimension = :dimension))
    ORDER BY change LIMIT :limit
) AS e
LEFT JOIN chunk AS c ON c.entry = e.change
ORDER BY e.change, c.ordinal
"""
_LARGEST_WORKSPACES = """
SELECT e.workspace_id, count(*) AS vectors FROM entry AS e JOIN chunk AS c ON c.entry = e.change
WHERE e.model = ? AND e.dimension = ? GROUP BY e.workspace_id ORDER BY vectors DESC, e.workspace_id LIMIT ?
"""
_STORED = """
SELECT c.vector FROM entry AS e JOIN chunk AS c ON c.entry = e.change
WHERE e.workspace_id = ? AND e.memory_id = ? AND e.model = ? AND e.dimension = ? ORDER BY c.ordinal
"""
_LIVE = """
SELECT change FROM entry WHERE workspace_id = ? AND change > ? AND change <= ? AND model = ? AND dimension = ? ORDER BY change LIMIT ?
"""
_ENTRY = """
SELECT e.memory_id, c.vector FROM entry AS e JOIN chunk AS c ON c.entry = e.change
WHERE e.change = ? AND e.workspace_id = ? AND e.model = ? AND e.dimension = ? ORDER BY c.ordinal
"""
_HAS_ANY = "SELECT EXISTS (SELECT 1 FROM entry WHERE workspace_id = ? AND model IS NOT NULL)"
_HAS_OVER = "SELECT EXISTS (SELECT 1 FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ? LIMIT 1 OFFSET ?)"
_COUNT = "SELECT count(*) FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeBounds:
    """*floor*: change up to which tombstones are deleted. *last*: the newest change of any workspace."""

    floor: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorChanges:
    """
    Changes of a workspace's memories, in the order of the counter.

    Attributes:
        last: Number of the last change; without changes, the number that was passed in.
        is_complete: No later changes are left.
        deleted_ids: Memories that were deleted.
    """

    last: int
    is_complete: bool
    deleted_ids: tuple[str, ...]
    points: tuple[Point, ...]


class VectorFile(SqliteFile):
    """An open `vectors.db`. Methods block, except `get_version`, and raise `sqlite3.Error`."""

    def __init__(self, path: Path, version: ModelVersion, *, max_tombstones: int = 0) -> None:
        """Open the file. Create it and its tables if they are missing."""
        super().__init__(path, name="vectors", create=create_tables, reader_settings=(_SET_SMALL_CACHE,))
        self._max_tombstones = max_tombstones
        self._model, self._dimension = version.model, version.dimension
        self._watch = connect(path, read_only=True, busy_timeout_s=_WATCH_BUSY_TIMEOUT_S)

    def close(self) -> None:
        super().close()
        self._watch.close()

    def get_version(self) -> int:
        """
        Return a number that changes with every commit of any process.

        Takes about 5 µs. For one thread only.
        """
        (version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return int(version)

    def get_bounds(self) -> ChangeBounds:
        """Return the range of known changes."""
        with self.reader() as connection:
            floor, last = connection.execute(_BOUNDS).fetchone()
        return ChangeBounds(floor=floor, last=last)

    def get_changes(self, workspace_id: int, *, after: int, limit: int) -> VectorChanges:
        """Return at most *limit* changes of the workspace after the change *after*."""
        parameters = {
            "workspace_id": workspace_id,
            "after": after,
            "limit": limit,
            "model": self._model,
            "dimension": self._dimension,
        }
        with self.reader() as connection:
            rows = connection.execute(_CHANGES, parameters).fetchall()
        deleted_ids: list[str] = []
        points: list[Point] = []
        last, count = after, 0
        for change, group in itertools.groupby(rows, key=lambda row: row[0]):
            chunks = list(group)
            _, memory_id, *space, tags, confidence, created_at, expires_at, vector = chunks[0]
            last, count = int(change), count + 1
            if vector is None:
                deleted_ids.append(memory_id)
                continue
            org, project, agent_id, session_id, scope, type_, source = space
            points.append(
                Point(
                    change=last,
                    memory_id=memory_id,
                    space=(org, project, agent_id, session_id, scope, type_, source),
                    tags=_parse_tags(tags),
                    confidence=confidence,
                    created_at=created_at,
                    expires_at=expires_at,
                    vectors=tuple(self._validate_vector(chunk[-1]) for chunk in chunks),
                )
            )
        return VectorChanges(last=last, is_complete=count < limit, deleted_ids=tuple(deleted_ids), points=tuple(points))

    def list_live(self, workspace_id: int, *, last_change: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the live entries up to *last_change*, in order; 0.4 µs each."""
        parts = [np.empty(0, dtype=np.int64)]
        after = 0
        with self.reader() as connection:
            while True:
                parameters = (workspace_id, after, last_change, self._model, self._dimension, _LIVE_BATCH_ROWS)
                rows = connection.execute(_LIVE, parameters).fetchall()
                parts.append(np.fromiter((change for (change,) in rows), dtype=np.int64, count=len(rows)))
                if len(rows) < _LIVE_BATCH_ROWS:
                    return np.concatenate(parts)
                after = rows[-1][0]

    def get_entry(self, workspace_id: int, change: int) -> tuple[str, tuple[bytes, ...]] | None:
        """Return the memory id and vectors of a live entry of this model; None if there is no such entry."""
        with self.reader() as connection:
            rows = connection.execute(_ENTRY, (change, workspace_id, self._model, self._dimension)).fetchall()
        return (rows[0][0], tuple(self._validate_vector(vector) for _, vector in rows)) if rows else None

    def count(self, workspace_id: int) -> int:
        """Return the number of memories of the workspace with vectors of this model."""
        with self.reader() as connection:
            return int(connection.execute(_COUNT, (workspace_id, self._model, self._dimension)).fetchone()[0])

    def has_more_than(self, workspace_id: int, count: int) -> bool:
        """Return whether more than *count* memories have vectors of this model; a millisecond or two for 30,000."""
        with self.reader() as connection:
            return bool(connection.execute(_HAS_OVER, (workspace_id, self._model, self._dimension, count)).fetchone()[0])

    def has_any(self, workspace_id: int) -> bool:
        """Return whether the workspace has vectors of any model."""
        with self.reader() as connection:
            return bool(connection.execute(_HAS_ANY, (workspace_id,)).fetchone()[0])

    def get_vectors(self, workspace_id: int, ids: Collection[str]) -> dict[str, tuple[bytes, ...]]:
        """Return the vectors of *ids* of this model, in the order of their chunks. Ids without vectors are omitted."""
        vectors = dict[str, tuple[bytes, ...]]()
        with self.reader() as connection:
            for memory_id in ids:
                rows = connection.execute(_STORED, (workspace_id, memory_id, self._model, self._dimension)).fetchall()
                if rows:
                    vectors[memory_id] = tuple(self._validate_vector(vector) for (vector,) in rows)
        return vectors

    def list_largest(self, *, limit: int) -> list[tuple[int, int]]:
        """Return (workspace, number of vectors) of the workspaces with the most vectors of this model."""
        with self.reader() as connection:
            return connection.execute(_LARGEST_WORKSPACES, (self._model, self._dimension, limit)).fetchall()

    def put(self, connection: sqlite3.Connection, items: Sequence[EmbeddedDocument]) -> None:
        """Write *items* in the writer's transaction."""
        for item in items:
            document = item.document
            _delete_entries(connection, _FIND_OWN, (document.workspace_id, document.memory_id, self._model, self._dimension))
            cursor = connection.execute(
                _INSERT_ENTRY,
                (
                    document.workspace_id,
                    document.memory_id,
                    self._model,
                    self._dimension,
                    document.org,
                    document.project,
                    document.agent_id,
                    document.session_id,
                    document.memory_scope.value,
                    document.type,
                    document.source,
                    orjson.dumps(document.facets).decode(),
                    document.confidence,
                    to_micros(document.created_at),
                    to_micros(document.updated_at),
                    None if document.expires_at is None else to_micros(document.expires_at),
                ),
            )
            change = cursor.lastrowid
            connection.executemany(_INSERT_CHUNK, [(change, ordinal, vector) for ordinal, vector in enumerate(item.vectors)])

    def delete(self, connection: sqlite3.Connection, workspace_id: int, ids: Collection[str]) -> None:
        """Delete *ids* in the writer's transaction, and leave tombstones for other processes."""
        last: int | None = None
        for memory_id in ids:
            if _delete_entries(connection, _FIND_ALL, (workspace_id, memory_id)):
                last = connection.execute(_INSERT_TOMBSTONE, (workspace_id, memory_id)).lastrowid
        if last is not None:
            floor = last - self._max_tombstones
            if connection.execute(_CLEAR_TOMBSTONES, (floor,)).rowcount > 0:
                connection.execute(_RAISE_FLOOR, (floor,))

    def delete_version(
        self, connection: sqlite3.Connection, workspace_id: int, version: ModelVersion, *, after: int, last_change: int
    ) -> int | None:
        """
        Delete some vectors of *version* between two changes, in the writer's transaction.

        Returns:
            The change up to which they are deleted; None if all are.
        """
        parameters = (workspace_id, after, last_change, version.model, version.dimension, _DELETE_BATCH_ROWS)
        rows = connection.execute(_LIVE, parameters).fetchall()
        connection.executemany(_DELETE_CHUNKS, rows)
        connection.executemany(_DELETE_ENTRY, rows)
        return int(rows[-1][0]) if len(rows) == _DELETE_BATCH_ROWS else None

    def _validate_vector(self, vector: bytes) -> bytes:
        if len(vector) != self._dimension * 4:
            raise sqlite3.DatabaseError(f"a vector has {len(vector)} bytes instead of {self._dimension * 4}")
        return vector


def _delete_entries(connection: sqlite3.Connection, find: str, parameters: tuple[int | str, ...]) -> bool:
    """Delete the rows that *find* selects. Return whether there were any."""
    rows = connection.execute(find, parameters).fetchall()
    for row in rows:
        connection.execute(_DELETE_CHUNKS, row)
        connection.execute(_DELETE_ENTRY, row)
    return bool(rows)


def _parse_tags(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(orjson.loads(text))
