"""Vectors of several models side by side, in every engine of `VectorIndex` (D-54)."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.engines import vectors
from rookery.engines.vectors import VectorEngine, vector_file
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.ports import ModelVersion, OutdatedWorkspace
from rookery.memory.vector_filter import build_vector_filter
from tests.engines.conftest import make_embedded, make_filter, vector

EAST, NORTH = vector(1), vector(0, 1)
OLD, NEW = ModelVersion(model="old/1", dimension=4), ModelVersion(model="new/1", dimension=2)
NEW_EAST = vector(1, width=2)


class OpenIndex(Protocol):
    """Opens an index of a model version in a separate instance, which is closed at the end of the test."""

    def __call__(self, model_version: ModelVersion) -> VectorEngine: ...


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each engine in turn."""
    return str(request.param)


@pytest.fixture
async def open_index(url: str, tmp_path: Path) -> AsyncIterator[OpenIndex]:
    """Yield a function that opens another instance of the same index."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(model_version: ModelVersion) -> VectorEngine:
            index = vectors.open(url, data_dir=tmp_path, model=model_version.model, dimension=model_version.dimension)
            stack.push_async_callback(index.close)
            return index

        yield open_it


async def find_all_ids(index: VectorEngine, workspace_id: int = 1) -> list[str]:
    """Return the ids of all vectors of the instance's model."""
    where = build_vector_filter(make_filter(workspace_id))
    try:
        hits = await index.search(EAST, where=where, limit=100)
    except ValueError:
        hits = await index.search(NEW_EAST, where=where, limit=100)
    return sorted(hit.memory_id for hit in hits)


async def test_two_models_are_stored_and_the_first_one_is_active(open_index: OpenIndex) -> None:
    """Their vectors are never mixed, and a rebuild does not change the active ones (D-54)."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded("a"), make_embedded("b")])
    ids_before = await find_all_ids(old)
    await new.put([make_embedded("a", NEW_EAST)])

    assert (ids_before, await find_all_ids(old), await find_all_ids(new)) == (["a", "b"], ["a", "b"], ["a"])
    assert await old.get_active_version(1) == await new.get_active_version(1) == OLD
    assert await old.list_outdated() == []
    assert await new.list_outdated() == [OutdatedWorkspace(workspace_id=1, active_version=OLD, total=2, pending=1)]
    assert [await index.count(1) for index in (old, new)] == [2, 1]


async def test_the_first_vectors_of_a_workspace_are_active(open_index: OpenIndex) -> None:
    """A workspace created after the change of the model has no migration."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded("a")])
    without_vectors = await new.get_active_version(2)
    await new.put([make_embedded("b", NEW_EAST, workspace_id=2)])

    assert (without_vectors, await new.get_active_version(2), await new.get_active_version(1)) == (None, NEW, OLD)


async def test_the_new_model_is_activated_when_complete_for_all_processes(open_index: OpenIndex) -> None:
    """Every process uses the new model at its next search (D-54)."""
    old, new, other_process = open_index(OLD), open_index(NEW), open_index(NEW)
    await old.put([make_embedded("a"), make_embedded("b"), make_embedded("c", workspace_id=2)])
    await new.put([make_embedded("a", NEW_EAST)])
    activated_early = await new.activate()
    await new.put([make_embedded("b", NEW_EAST)])
    assert await other_process.get_active_version(1) == OLD

    assert (activated_early, await new.activate(), await new.activate()) == (0, 1, 0)
    assert [await index.get_active_version(1) for index in (old, new, other_process)] == [NEW] * 3
    assert await other_process.get_active_version(2) == OLD


async def test_memories_that_cannot_be_embedded_are_not_waited_for(open_index: OpenIndex) -> None:
    """One bad text must not stop the activation forever."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded("a"), make_embedded("b"), make_embedded("c")])
    await new.put([make_embedded("a", NEW_EAST)])

    assert [await new.activate(ignored_ids=ignored_ids) for ignored_ids in ({"b"}, {"b", "d"}, {"b", "c"})] == [0, 0, 1]


async def test_only_old_vectors_are_deleted_after_the_activation(open_index: OpenIndex) -> None:
    """Otherwise each change of the model would leave its vectors on the disk."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded(f"m{number:04}") for number in range(600)] + [make_embedded("elsewhere", workspace_id=2)])
    await new.put([make_embedded(f"m{number:04}", NEW_EAST) for number in range(600)])
    await new.delete_retired()
    count_before = await old.count(1)
    await new.activate()
    await new.delete_retired()

    assert (count_before, await old.count(1), await new.count(1), await old.count(2)) == (600, 0, 600, 1)
    assert len(await find_all_ids(open_index(NEW))) == 100
    assert await find_all_ids(open_index(OLD)) == []


async def test_a_deleted_memory_is_removed_from_all_models(open_index: OpenIndex) -> None:
    """It stays removed from the other model if one model stores it again (spec 3.4)."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded("a"), make_embedded("b")])
    await new.put([make_embedded("a", NEW_EAST), make_embedded("b", NEW_EAST)])
    ids_before = await find_all_ids(old), await find_all_ids(new)
    await new.drop(1, ["a"])

    assert (ids_before, await find_all_ids(old), await find_all_ids(new)) == ((["a", "b"], ["a", "b"]), ["b"], ["b"])
    await old.put([make_embedded("a")])
    assert (await find_all_ids(old), await find_all_ids(new)) == (["a", "b"], ["b"])


async def test_a_change_back_to_the_first_model_is_complete_only_with_new_vectors(open_index: OpenIndex) -> None:
    """Retired vectors do not count, and new vectors are not deleted with them."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([make_embedded("a"), make_embedded("b")])
    await new.put([make_embedded("a", NEW_EAST), make_embedded("b", NEW_EAST)])
    await new.activate()
    activated_early = await old.activate()
    await old.put([make_embedded("a")])
    await old.delete_retired()

    assert (activated_early, await old.count(1), await old.activate()) == (0, 1, 0)
    await old.put([make_embedded("b")])
    assert (await old.activate(), await new.get_active_version(1), await find_all_ids(open_index(OLD))) == (1, OLD, ["a", "b"])


async def test_vectors_of_an_abandoned_change_are_deleted_with_the_next_activation(open_index: OpenIndex) -> None:
    """After old, other, old, and then new, no vectors of the other model stay."""
    old, other, new = open_index(OLD), open_index(ModelVersion(model="other/1", dimension=4)), open_index(NEW)
    await old.put([make_embedded("a")])
    await other.put([make_embedded("a"), make_embedded("b")])
    await new.put([make_embedded("a", NEW_EAST)])
    await new.activate()
    await new.delete_retired()

    assert [await index.count(1) for index in (old, other, new)] == [0, 0, 1]


_FORMAT_1 = """
CREATE TABLE entry (
    change INTEGER PRIMARY KEY AUTOINCREMENT, workspace_id INTEGER NOT NULL, memory_id TEXT NOT NULL, model TEXT, dimension INTEGER,
    org TEXT, project TEXT, agent_id TEXT, session_id TEXT, memory_scope TEXT, type TEXT, source TEXT, tags TEXT, confidence REAL,
    created_at INTEGER, updated_at INTEGER, expires_at INTEGER, UNIQUE (workspace_id, memory_id)
);
CREATE INDEX entry_by_change ON entry (workspace_id, change, model, dimension);
CREATE INDEX entry_dropped ON entry (change) WHERE model IS NULL;
CREATE TABLE chunk (entry INTEGER NOT NULL, ordinal INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (entry, ordinal));
CREATE TABLE floor (change INTEGER NOT NULL);
INSERT INTO floor VALUES (0);
INSERT INTO entry (workspace_id, memory_id, model, dimension, memory_scope, type, source, tags, confidence, created_at, updated_at)
VALUES (1, 'a', 'old/1', 4, 'project', 'fact', 'manual', '[]', 0.8, 0, 0),
       (1, 'b', 'older/1', 4, 'project', 'fact', 'manual', '[]', 0.8, 0, 0),
       (1, 'c', 'old/1', 4, 'project', 'fact', 'manual', '["x"]', 0.8, 0, 0),
       (1, 'gone', 'old/1', 4, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
DELETE FROM entry WHERE memory_id = 'gone';
INSERT INTO entry (workspace_id, memory_id) VALUES (1, 'gone');
PRAGMA user_version = 1;
"""


async def test_a_file_of_the_first_format_is_upgraded(open_index: OpenIndex, tmp_path: Path) -> None:
    """Change numbers, vectors and tombstones stay, and the model with most vectors is active; no re-index is needed."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.executescript(_FORMAT_1)
        for change in (1, 2, 3):
            connection.execute("INSERT INTO chunk VALUES (?, 0, ?)", (change, EAST))
        connection.commit()
    old = open_index(OLD)

    assert (await find_all_ids(old), await old.get_active_version(1)) == (["a", "c"], OLD)
    await old.put([make_embedded("d")])
    assert await find_all_ids(old) == ["a", "c", "d"]
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        assert connection.execute("SELECT change, memory_id FROM entry ORDER BY change").fetchall()[-2:] == [(5, "gone"), (6, "d")]
        assert connection.execute("PRAGMA user_version").fetchone() == (vector_file.SCHEMA_VERSION,)


async def test_a_file_of_a_later_format_is_not_changed(open_index: OpenIndex, tmp_path: Path) -> None:
    """An older program must not use the file of a newer one."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.execute(f"PRAGMA user_version = {vector_file.SCHEMA_VERSION + 1}")
    with pytest.raises(EngineUnavailable, match="its format is"):
        await open_index(OLD).count(1)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["old", "new"]), st.sampled_from("abcd")),
        st.tuples(st.just("drop"), st.sampled_from("abcd")),
        st.tuples(st.sampled_from(["switch", "clear"]), st.just("")),
    ),
    max_size=30,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
async def test_the_active_model_is_always_complete(steps: list[tuple[str, str]], url: str, tmp_path: Path) -> None:
    """This holds for any order of writes, deletions, activations and cleanups (D-54)."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    old, new = (vectors.open(url, data_dir=folder, model=version.model, dimension=version.dimension) for version in (OLD, NEW))
    active, ids_by_model = None, {"old": set[str](), "new": set[str]()}
    try:
        for step, memory in steps:
            if step in ids_by_model:
                await {"old": old, "new": new}[step].put([make_embedded(memory, EAST if step == "old" else NEW_EAST)])
                ids_by_model[step].add(memory)
                active = active or step
            elif step == "drop":
                await new.drop(1, [memory])
                ids_by_model["old"].discard(memory)
                ids_by_model["new"].discard(memory)
            elif step == "clear":
                await new.delete_retired()
            else:
                is_due = active == "old" and ids_by_model["old"] <= ids_by_model["new"]
                assert await new.activate() == int(is_due)
                if is_due:
                    active = "new"
            active_version = await new.get_active_version(1)
            assert (None if active_version is None else active_version.model) == {None: None, "old": "old/1", "new": "new/1"}[active]
            assert set(await find_all_ids(new)) == ids_by_model["new"]
            if active == "old":
                assert set(await find_all_ids(old)) == ids_by_model["old"]
    finally:
        await old.close()
        await new.close()
