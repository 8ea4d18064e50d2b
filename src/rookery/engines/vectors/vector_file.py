"""
The file `vectors.db`: a row per memory and model with its filter columns, a row per chunk with its vector, and a change counter.

Each write of a memory takes the next number of the counter and replaces the previous row. A process that remembers the last number it read
finds later changes with one index range. A deleted memory leaves a tombstone row with its id. Old tombstones are deleted, and `floor` has
the number up to which. Each model reads and replaces its own rows only; a deletion removes the rows of all models.
"""

from __future__ import annotations

import itertools
import sqlite3
from array import array
from collections.abc import Collection, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import orjson

from rookery.kernel.clock import to_micros
from rookery.kernel.sqlite import SqliteFile, connect
from rookery.memory.models import EmbeddedDocument, Vector
from rookery.memory.ports import ModelVersion

Space = tuple[str | None, ...]

FORMAT_VERSION = 3
"""Version of the tables below, stored in `PRAGMA user_version`."""
_NEW_FILE_VERSION = 0

_CREATE = """
CREATE TABLE IF NOT EXISTS entry (
    change INTEGER PRIMARY KEY AUTOINCREMENT,
    workspace_id INTEGER NOT NULL,
    memory_id TEXT NOT NULL,
    model TEXT,
    dimension INTEGER,
    org TEXT,
    project TEXT,
    agent_id TEXT,
    session_id TEXT,
    memory_scope TEXT,
    type TEXT,
    source TEXT,
    tags TEXT,
    confidence REAL,
    created_at INTEGER,
    updated_at INTEGER,
    expires_at INTEGER
);
CREATE UNIQUE INDEX IF NOT EXISTS entry_of_memory ON entry (workspace_id, memory_id, model, dimension);
CREATE INDEX IF NOT EXISTS entry_by_change ON entry (workspace_id, change, model, dimension);
CREATE INDEX IF NOT EXISTS entry_dropped ON entry (change) WHERE model IS NULL;
CREATE TABLE IF NOT EXISTS chunk (
    entry INTEGER NOT NULL,
    ordinal INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (entry, ordinal)
);
CREATE TABLE IF NOT EXISTS floor (change INTEGER NOT NULL);
INSERT INTO floor SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM floor);
"""

_WATCH_BUSY_TIMEOUT_S = 0.05
_SET_SMALL_CACHE = "PRAGMA cache_size = -256"
"""KiB. Rows are read once, into the segment; SQLite's default of 2 MB per connection would cache rows that are not read again."""

_CHANGES_PER_READ = 512
"""About a megabyte."""

_NO_LIMIT = -1
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
    WHERE workspace_id = ? AND change > ? AND (model IS NULL OR (model = ? AND dimension = ?)) ORDER BY change LIMIT ?
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
_HAS_ANY = "SELECT EXISTS (SELECT 1 FROM entry WHERE workspace_id = ? AND model IS NOT NULL)"
_HAS_OVER = "SELECT EXISTS (SELECT 1 FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ? LIMIT 1 OFFSET ?)"
_COUNT = "SELECT count(*) FROM entry WHERE workspace_id = ? AND model = ? AND dimension = ?"


def create_tables(connection: sqlite3.Connection) -> None:
    """
    Create the tables of a new file. Blocks while another process does.

    Raises:
        sqlite3.Error: The database failed, or its format is not `FORMAT_VERSION`.
    """
    if _get_version(connection) == FORMAT_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")  # if a statement fails, the caller closes the connection, which undoes the others
    version = _get_version(connection)
    if version != FORMAT_VERSION:
        if version != _NEW_FILE_VERSION:
            raise sqlite3.DatabaseError(f"its format is {version}, ours is {FORMAT_VERSION}")
        for statement in _CREATE.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
    connection.execute("COMMIT")


def _get_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


class ChangeBounds(NamedTuple):
    """*floor*: change up to which tombstones are deleted. *last*: the newest change of any workspace."""

    floor: int
    last: int


class Point(NamedTuple):
    """A memory's vectors and filter columns, with the number of its entry in `vectors.db`."""

    change: int
    memory_id: str
    space: Space
    tags: tuple[str, ...]
    confidence: float
    created_at: int
    expires_at: int | None
    vectors: tuple[Vector, ...]


class VectorChanges(NamedTuple):
    """
    Changes of a workspace's memories, in the order of the counter.

    Attributes:
        last: Number of the last change; without changes, the number that was passed in.
        is_complete: No later changes are left.
        changed_ids: Memories that were deleted or written, in UTF-8. Their earlier rows are out of date.
    """

    last: int
    is_complete: bool
    changed_ids: list[bytes]
    points: list[Point]


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
        """Return a number that changes with every commit of any process. Takes about 5 µs. For one thread only."""
        (version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return int(version)

    def get_bounds(self) -> ChangeBounds:
        """Return the range of known changes."""
        with self.reader() as connection:
            return ChangeBounds(*connection.execute(_BOUNDS).fetchone())

    def get_changes(self, workspace_id: int, *, after: int, limit: int = _CHANGES_PER_READ) -> VectorChanges:
        """Return at most *limit* changes of the workspace after the change *after*."""
        with self.reader() as connection:
            rows = connection.execute(_CHANGES, (workspace_id, after, self._model, self._dimension, limit)).fetchall()
        changed_ids, points, last = list[bytes](), list[Point](), after
        for last, group in itertools.groupby(rows, key=itemgetter(0)):
            chunks = list(group)
            _, memory_id, *space, tags, confidence, created_at, expires_at, vector = chunks[0]
            changed_ids.append(memory_id.encode())
            if vector is not None:
                facets = () if tags == "[]" else tuple(orjson.loads(tags))
                vectors = tuple(self._validate_vector(chunk[-1]) for chunk in chunks)
                points.append(Point(last, memory_id, tuple(space), facets, confidence, created_at, expires_at, vectors))
        return VectorChanges(last=last, is_complete=len(changed_ids) < limit, changed_ids=changed_ids, points=points)

    def list_live(self, workspace_id: int, *, last_change: int) -> array[int]:
        """Return the numbers of the live entries up to *last_change*, in order; 0.4 µs each."""
        with self.reader() as connection:
            rows = connection.execute(_LIVE, (workspace_id, 0, last_change, self._model, self._dimension, _NO_LIMIT))
            return array("q", (change for (change,) in rows))

    def count(self, workspace_id: int) -> int:
        """Return the number of memories of the workspace with vectors of this model."""
        with self.reader() as connection:
            return int(connection.execute(_COUNT, (workspace_id, self._model, self._dimension)).fetchone()[0])

    def has_more_than(self, workspace_id: int, count: int) -> bool:
        """Return whether more than *count* memories have vectors of this model; a millisecond or two for 30,000."""
        with self.reader() as connection:
            return bool(connection.execute(_HAS_OVER, (workspace_id, self._model, self._dimension, count)).fetchone()[0])

    def has_any(self, workspace_id: int) -> bool:
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
            key = (document.workspace_id, document.memory_id, self._model, self._dimension)
            owner = (document.org, document.project, document.agent_id, document.session_id, document.memory_scope.value)
            kind = (document.type, document.source, orjson.dumps(document.facets).decode(), document.confidence)
            expires_at = None if document.expires_at is None else to_micros(document.expires_at)
            times = (to_micros(document.created_at), to_micros(document.updated_at), expires_at)
            _delete_entries(connection, _FIND_OWN, key)
            change = connection.execute(_INSERT_ENTRY, (*key, *owner, *kind, *times)).lastrowid
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
        rows = _delete_entries(connection, _LIVE, parameters)
        return rows[-1][0] if len(rows) == _DELETE_BATCH_ROWS else None

    def _validate_vector(self, vector: bytes) -> bytes:
        if len(vector) != self._dimension * 4:
            raise sqlite3.DatabaseError(f"a vector has {len(vector)} bytes instead of {self._dimension * 4}")
        return vector


def _delete_entries(connection: sqlite3.Connection, find: str, parameters: tuple[int | str, ...]) -> list[tuple[int]]:
    """Delete the entries that *find* selects, with their vectors. Return their changes."""
    rows = connection.execute(find, parameters).fetchall()
    connection.executemany(_DELETE_CHUNKS, rows)
    connection.executemany(_DELETE_ENTRY, rows)
    return rows
