"""Files of `vectors.db` that earlier versions wrote: their vectors stay, and the models that they record are read once."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from rookery.engines import vectors
from rookery.engines.vectors.vector_file import FORMAT_VERSION
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.ports import ModelVersion, VectorSet, VectorSetHistory
from tests.engines.conftest import EAST, CloseAtEnd, damage, find_ids, make_embedded

OLD = ModelVersion(model="old/1", dimension=4)

_TABLES = """
CREATE TABLE entry (
    change INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id INTEGER NOT NULL, memory_id TEXT NOT NULL, model TEXT, dimension INTEGER,
    org TEXT, project TEXT, agent_id TEXT, session_id TEXT, memory_scope TEXT, type TEXT, source TEXT, tags TEXT, confidence REAL,
    created_at INTEGER, updated_at INTEGER, expires_at INTEGER {constraint}
);
CREATE INDEX entry_by_change ON entry (workspace_id, change, model, dimension);
CREATE INDEX entry_dropped ON entry (change) WHERE model IS NULL;
CREATE TABLE chunk (entry INTEGER NOT NULL, ordinal INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (entry, ordinal));
CREATE TABLE floor (change INTEGER NOT NULL);
INSERT INTO floor VALUES (0);
"""
_FORMAT_1 = _TABLES.format(constraint=", UNIQUE (workspace_id, memory_id)")
_FORMAT_2 = (
    _TABLES.format(constraint="")
    + """
CREATE UNIQUE INDEX entry_of_memory ON entry (workspace_id, memory_id, model, dimension);
CREATE TABLE serving (workspace_id INTEGER PRIMARY KEY, model TEXT NOT NULL, dimension INTEGER NOT NULL);
CREATE TABLE retired (
    workspace_id INTEGER NOT NULL, model TEXT NOT NULL, dimension INTEGER NOT NULL, change INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, model, dimension)
) WITHOUT ROWID;
"""
)


def _write_file(folder: Path, script: str, entries: list[tuple[int, str, str]], *, format_version: int) -> None:
    """Write a file with a vector for each (workspace, memory, model) of *entries*."""
    with contextlib.closing(sqlite3.connect(folder / "vectors.db")) as connection:
        connection.executescript(script)
        for workspace_id, memory_id, model in entries:
            cursor = connection.execute(
                "INSERT INTO entry (workspace_id, memory_id, model, dimension, memory_scope, type, source, tags, confidence, created_at,"
                " updated_at) VALUES (?, ?, ?, 4, 'project', 'fact', 'manual', '[]', 0.8, 0, 0)",
                (workspace_id, memory_id, model),
            )
            connection.execute("INSERT INTO chunk VALUES (?, 0, ?)", (cursor.lastrowid, EAST))
        connection.execute(f"PRAGMA user_version = {format_version}")
        connection.commit()


def _open_history(folder: Path) -> VectorSetHistory:
    history = vectors.open_history("embedded:", data_dir=folder)
    assert history is not None
    return history


async def test_a_file_of_the_first_format_is_upgraded(close_at_end: CloseAtEnd, tmp_path: Path) -> None:
    """Change numbers, vectors and tombstones stay, and the model with most vectors is active; no re-index is needed."""
    entries = [(1, "a", "old/1"), (1, "b", "older/1"), (1, "c", "old/1"), (1, "gone", "old/1")]
    deletion = "DELETE FROM entry WHERE memory_id = 'gone'; INSERT INTO entry (workspace_id, memory_id) VALUES (1, 'gone');"
    _write_file(tmp_path, _FORMAT_1, entries, format_version=1)
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.executescript(deletion)
    history = _open_history(tmp_path)

    assert await history.read() == [
        VectorSet(workspace_id=1, version=OLD, is_active=True),
        VectorSet(workspace_id=1, version=ModelVersion(model="older/1", dimension=4)),
    ]
    await history.clear()
    old = close_at_end(vectors.open("embedded:", data_dir=tmp_path, model="old/1", dimension=4))
    assert await find_ids(old) == ["a", "c"]
    await old.put([make_embedded("d")])
    assert await find_ids(old) == ["a", "c", "d"]
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        assert connection.execute("SELECT change, memory_id FROM entry ORDER BY change").fetchall()[-2:] == [(5, "gone"), (6, "d")]
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)


async def test_the_sets_of_the_second_format_are_read_until_they_are_cleared(close_at_end: CloseAtEnd, tmp_path: Path) -> None:
    """A model that was retired and has later vectors is in use again, so that these are not deleted."""
    entries = [(1, "a", "old/1"), (1, "a", "other/1"), (1, "a", "new/1"), (1, "b", "other/1"), (2, "c", "new/1")]
    rows = """
    INSERT INTO serving VALUES (1, 'new/1', 4), (2, 'new/1', 4), (3, 'old/1', 4);
    INSERT INTO retired VALUES (1, 'old/1', 4, 3), (1, 'other/1', 4, 3), (2, 'other/1', 4, 3);
    """
    _write_file(tmp_path, _FORMAT_2 + rows, entries, format_version=2)
    new, other = ModelVersion(model="new/1", dimension=4), ModelVersion(model="other/1", dimension=4)
    index = close_at_end(vectors.open("embedded:", data_dir=tmp_path, model="new/1", dimension=4))
    assert await find_ids(index) == ["a"]
    history = _open_history(tmp_path)

    for _ in range(2):
        assert await history.read() == [
            VectorSet(workspace_id=1, version=new, is_active=True),
            VectorSet(workspace_id=1, version=OLD, is_retired=True),
            VectorSet(workspace_id=1, version=other),
            VectorSet(workspace_id=2, version=new, is_active=True),
            VectorSet(workspace_id=3, version=OLD, is_active=True),
        ]
    await history.clear()
    await history.clear()
    assert await history.read() == []
    assert await find_ids(index) == ["a"]


async def test_a_new_folder_has_no_recorded_sets(tmp_path: Path) -> None:
    """Reading creates no file."""
    history = _open_history(tmp_path)

    assert await history.read() == []
    await history.clear()
    assert list(tmp_path.iterdir()) == []
    assert vectors.open_history("elsewhere://host", data_dir=tmp_path) is None


async def test_a_damaged_file_has_no_history(tmp_path: Path) -> None:
    """The error has the same remedy as those of other calls."""
    damage(tmp_path / "vectors.db", at=0)

    with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
        await _open_history(tmp_path).read()


async def test_a_file_of_a_later_format_is_not_changed(close_at_end: CloseAtEnd, tmp_path: Path) -> None:
    """An older program must not use the file of a newer one."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    index = close_at_end(vectors.open("embedded:", data_dir=tmp_path, model="old/1", dimension=4))

    with pytest.raises(EngineUnavailable, match="its format is"):
        await index.count(1)
