"""
`vectors.db`: a row per memory and model with its filter columns, a row per chunk with its vector, and a change counter.

Each write of a memory takes the next number of the counter and replaces the previous row. A process that remembers the last number it read
finds later changes with one index range. A deleted memory leaves a tombstone row with its id. Old tombstones are deleted, and `floor` has
the number up to which. Each model reads and replaces its own rows only; a deletion removes the rows of all models.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections import deque
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from rookery.engines.vectors import model_versions
from rookery.engines.vectors.model_versions import PendingActivation, activate_first
from rookery.engines.vectors.search import Point
from rookery.kernel.clock import to_micros
from rookery.kernel.sqlite import SqliteWriter, connect
from rookery.memory.models import EmbeddedDocument
from rookery.memory.ports import ModelVersion, OutdatedWorkspace

SCHEMA_VERSION = 2
"""Version of the tables below, stored in `PRAGMA user_version`."""

_ENTRY_TABLE = """
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
"""
_OTHER_TABLES = """
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
CREATE TABLE IF NOT EXISTS serving (
    workspace_id INTEGER PRIMARY KEY,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS retired (
    workspace_id INTEGER NOT NULL,
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    change INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, model, dimension)
) WITHOUT ROWID;
"""
"""`serving`: the active model of each workspace. `retired`: models whose vectors up to a change are deleted (D-54)."""

# Format 1 had a constraint that allowed vectors of one model per memory. SQLite can remove a constraint only together with its table.
# Changes and chunks keep their numbers. The active model is not stored: it is the one with the most vectors.
_MIGRATE_FROM_1 = f"""
DROP INDEX IF EXISTS entry_by_change;
DROP INDEX IF EXISTS entry_dropped;
ALTER TABLE entry RENAME TO entry_1;
{_ENTRY_TABLE}
INSERT INTO entry SELECT * FROM entry_1 ORDER BY change;
UPDATE sqlite_sequence SET seq = (SELECT max(seq) FROM sqlite_sequence) WHERE name = 'entry';
DROP TABLE entry_1;
{_OTHER_TABLES}
INSERT OR IGNORE INTO serving (workspace_id, model, dimension)
SELECT workspace_id, model, dimension FROM entry WHERE model IS NOT NULL
GROUP BY workspace_id, model, dimension ORDER BY workspace_id, count(*) DESC, model;
"""  # noqa: S608 - contains only constants

_WATCH_BUSY_TIMEOUT_S = 0.05
_SET_SMALL_CACHE = "PRAGMA cache_size = -256"
"""KiB. Rows are read once, into the segment; SQLite's default of 2 MB per connection would cache rows that are not read again."""

_MAX_IDLE_READERS = 8

_LIVE_BATCH_ROWS = 8192
"""Numbers per query; one or two milliseconds in which the GIL is held."""

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


class VectorFile:
    """An open `vectors.db`. Methods raise `sqlite3.Error`."""

    def __init__(self, path: Path, *, model: str, dimension: int, max_tombstones: int = 0) -> None:
        self._path = path
        self._max_tombstones = max_tombstones
        self._model = model
        self._dimension = dimension
        self._idle: deque[sqlite3.Connection] = deque()
        self._watch: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._model_version = ModelVersion(model=model, dimension=dimension)
        self._is_closed = False
        self.writer = SqliteWriter(self._connect, name="vectors")

    def open(self) -> None:
        """Create the file and its tables if they are missing, and start to watch it. Blocks."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        with contextlib.closing(self._connect()) as connection:
            create_schema(connection)
        self._watch = connect(self._path, read_only=True, busy_timeout_s=_WATCH_BUSY_TIMEOUT_S)
        self._identity = _file_identity(self._path)

    def close(self) -> None:
        """Finish pending writes and close. Blocks."""
        self._is_closed = True
        self.writer.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        while self._idle:
            self._idle.pop().close()

    @property
    def is_in_place(self) -> bool:
        """True if the path still refers to the open file. Users may delete it to start with an empty index."""
        return _file_identity(self._path) == self._identity

    def get_version(self) -> int:
        """
        Return a number that changes with every commit of any process.

        Takes about 5 µs. For one thread only.
        """
        if self._watch is None:
            raise sqlite3.ProgrammingError("vectors.db is closed")
        (version,) = self._watch.execute("PRAGMA data_version").fetchone()
        return int(version)

    def get_bounds(self) -> ChangeBounds:
        """Return the range of known changes."""
        with self._reader() as connection:
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
        with self._reader() as connection:
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
        with self._reader() as connection:
            while True:
                parameters = (workspace_id, after, last_change, self._model, self._dimension, _LIVE_BATCH_ROWS)
                rows = connection.execute(_LIVE, parameters).fetchall()
                parts.append(np.fromiter((change for (change,) in rows), dtype=np.int64, count=len(rows)))
                if len(rows) < _LIVE_BATCH_ROWS:
                    return np.concatenate(parts)
                after = rows[-1][0]

    def get_entry(self, workspace_id: int, change: int) -> tuple[str, tuple[bytes, ...]] | None:
        """Return the memory id and vectors of a live entry of this model; None if there is no such entry."""
        with self._reader() as connection:
            rows = connection.execute(_ENTRY, (change, workspace_id, self._model, self._dimension)).fetchall()
        return (rows[0][0], tuple(self._validate_vector(vector) for _, vector in rows)) if rows else None

    def count(self, workspace_id: int) -> int:
        """Return the number of memories of the workspace with vectors of this model."""
        with self._reader() as connection:
            return int(connection.execute(_COUNT, (workspace_id, self._model, self._dimension)).fetchone()[0])

    def has_more_than(self, workspace_id: int, count: int) -> bool:
        """Return whether more than *count* memories have vectors of this model; a millisecond or two for 30,000."""
        with self._reader() as connection:
            return bool(connection.execute(_HAS_OVER, (workspace_id, self._model, self._dimension, count)).fetchone()[0])

    def has_any(self, workspace_id: int) -> bool:
        """Return whether the workspace has vectors of any model."""
        with self._reader() as connection:
            return bool(connection.execute(_HAS_ANY, (workspace_id,)).fetchone()[0])

    def get_vectors(self, workspace_id: int, ids: Collection[str]) -> dict[str, tuple[bytes, ...]]:
        """Return the vectors of *ids* of this model, in the order of their chunks. Ids without vectors are omitted."""
        vectors = dict[str, tuple[bytes, ...]]()
        with self._reader() as connection:
            for memory_id in ids:
                rows = connection.execute(_STORED, (workspace_id, memory_id, self._model, self._dimension)).fetchall()
                if rows:
                    vectors[memory_id] = tuple(self._validate_vector(vector) for (vector,) in rows)
        return vectors

    def list_largest(self, *, limit: int) -> list[tuple[int, int]]:
        """Return (workspace, number of vectors) of the workspaces with the most vectors of this model."""
        with self._reader() as connection:
            return connection.execute(_LARGEST_WORKSPACES, (self._model, self._dimension, limit)).fetchall()

    def get_active_version(self, workspace_id: int) -> ModelVersion | None:
        """Return the model that answers queries in the workspace. Takes about 10 µs; for the thread of `get_version` only."""
        if self._watch is None:
            raise sqlite3.ProgrammingError("vectors.db is closed")
        return model_versions.get_active_version(self._watch, workspace_id)

    def list_outdated(self) -> list[OutdatedWorkspace]:
        """Return the workspaces in which another model is active."""
        with self._reader() as connection:
            return model_versions.list_outdated(connection, self._model_version)

    def list_complete(self, ignored_ids: Collection[str]) -> list[PendingActivation]:
        """Return those of them in which this model is complete."""
        with self._reader() as connection:
            return model_versions.list_complete(connection, self._model_version, ignored_ids=ignored_ids)

    def activate(self, connection: sqlite3.Connection, activation: PendingActivation) -> bool:
        """Activate this model, in the writer's transaction."""
        return model_versions.activate(connection, activation, self._model_version)

    def put(self, connection: sqlite3.Connection, items: Sequence[EmbeddedDocument]) -> None:
        """Write *items* in the writer's transaction."""
        activate_first(connection, {item.document.workspace_id for item in items}, self._model_version)
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

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    @contextlib.contextmanager
    def _reader(self) -> Generator[sqlite3.Connection]:
        """Yield a connection for one thread."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self._path, read_only=True)
            connection.execute(_SET_SMALL_CACHE)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self._is_closed or len(self._idle) >= _MAX_IDLE_READERS:
            connection.close()
        else:
            self._idle.append(connection)

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


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - called before each query; Path.stat is three times as slow
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def create_schema(connection: sqlite3.Connection) -> None:
    """
    Create missing tables. Blocks while another process does.

    Raises:
        sqlite3.Error: The database failed, or its format is newer than `SCHEMA_VERSION`.
    """
    if _schema_version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _schema_version(connection)
        if version not in {0, 1, SCHEMA_VERSION}:
            raise sqlite3.DatabaseError(f"its format is {version}, ours is {SCHEMA_VERSION}")  # noqa: TRY301 - rolled back below
        if version != SCHEMA_VERSION:
            for statement in (_MIGRATE_FROM_1 if version else _ENTRY_TABLE + _OTHER_TABLES).split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
