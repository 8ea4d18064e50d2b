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
from rookery.engines.vectors import VectorEngine, schema
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.ports import ModelVersion, OutdatedWorkspace
from tests.engines.conftest import everywhere, vector, vectored

EAST, NORTH = vector(1), vector(0, 1)
OLD, NEW = ModelVersion(model="old/1", dimension=4), ModelVersion(model="new/1", dimension=2)
NEW_EAST = vector(1, width=2)


class Open(Protocol):
    """Opens an index of a generation, as another process would; closed when the test ends."""

    def __call__(self, generation: ModelVersion) -> VectorEngine: ...


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each engine in turn."""
    return str(request.param)


@pytest.fixture
async def open_index(url: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Open the same index as often as asked."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(generation: ModelVersion) -> VectorEngine:
            index = vectors.open(url, data_dir=tmp_path, model=generation.model, dimension=generation.dimension)
            stack.push_async_callback(index.close)
            return index

        yield open_it


async def found(index: VectorEngine, workspace_id: int = 1) -> list[str]:
    """Return all that a query finds."""
    query = EAST if getattr(index, "_dimension", 4) == 4 else NEW_EAST
    return sorted(near.memory_id for near in await index.search(query, access_filter=everywhere(workspace_id), limit=100))


async def test_two_models_lie_beside_each_other_and_the_first_answers(open_index: Open) -> None:
    """D-54: never mixed; a rebuild takes nothing from what answers."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored("a"), vectored("b")])
    before = await found(old)
    await new.put([vectored("a", NEW_EAST)])

    assert (before, await found(old), await found(new)) == (["a", "b"], ["a", "b"], ["a"])
    assert await old.get_active_version(1) == await new.get_active_version(1) == OLD
    assert await old.list_outdated() == []
    assert await new.list_outdated() == [OutdatedWorkspace(workspace_id=1, active_version=OLD, total=2, pending=1)]
    assert [await each.count(1) for each in (old, new)] == [2, 1]


async def test_in_a_workspace_that_never_had_vectors_the_first_ones_answer(open_index: Open) -> None:
    """A workspace made after the change has nothing to wait for."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored("a")])
    nobody = await new.get_active_version(2)
    await new.put([vectored("b", NEW_EAST, workspace_id=2)])

    assert (nobody, await new.get_active_version(2), await new.get_active_version(1)) == (None, NEW, OLD)


async def test_it_switches_when_nothing_is_left_and_everywhere_at_once(open_index: Open) -> None:
    """D-54: switched when complete; every process sees it at its next question."""
    old, new, elsewhere = open_index(OLD), open_index(NEW), open_index(NEW)
    await old.put([vectored("a"), vectored("b"), vectored("c", workspace_id=2)])
    await new.put([vectored("a", NEW_EAST)])
    early = await new.activate()
    await new.put([vectored("b", NEW_EAST)])
    assert await elsewhere.get_active_version(1) == OLD

    assert (early, await new.activate(), await new.activate()) == (0, 1, 0)
    assert [await each.get_active_version(1) for each in (old, new, elsewhere)] == [NEW] * 3
    assert await elsewhere.get_active_version(2) == OLD


async def test_memories_that_cannot_be_embedded_are_not_waited_for(open_index: Open) -> None:
    """One bad text must not keep a workspace on its old model for ever."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored("a"), vectored("b"), vectored("c")])
    await new.put([vectored("a", NEW_EAST)])

    assert [await new.activate(ignored_ids=without) for without in ({"b"}, {"b", "d"}, {"b", "c"})] == [0, 0, 1]


async def test_old_vectors_are_cleared_away_after_the_switch_and_no_others(open_index: Open) -> None:
    """Else each change of the model would leave its weight on the disk for good."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored(f"m{number:04}") for number in range(600)] + [vectored("elsewhere", workspace_id=2)])
    await new.put([vectored(f"m{number:04}", NEW_EAST) for number in range(600)])
    await new.delete_retired()
    kept = await old.count(1)
    await new.activate()
    await new.delete_retired()

    assert (kept, await old.count(1), await new.count(1), await old.count(2)) == (600, 0, 600, 1)
    assert len(await found(open_index(NEW))) == 100
    assert await found(open_index(OLD)) == []


async def test_what_is_forgotten_is_forgotten_by_all(open_index: Open) -> None:
    """Spec 3.4: deleted means removed from all stores, also while two models lie there, and also when it comes back in one."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored("a"), vectored("b")])
    await new.put([vectored("a", NEW_EAST), vectored("b", NEW_EAST)])
    both = await found(old), await found(new)
    await new.delete(1, ["a"])

    assert (both, await found(old), await found(new)) == ((["a", "b"], ["a", "b"]), ["b"], ["b"])
    await old.put([vectored("a")])
    assert (await found(old), await found(new)) == (["a", "b"], ["b"])


async def test_a_change_back_is_a_change_like_any_other(open_index: Open) -> None:
    """Vectors that were retired do not make a model complete again, and new ones of it are not cleared away with them."""
    old, new = open_index(OLD), open_index(NEW)
    await old.put([vectored("a"), vectored("b")])
    await new.put([vectored("a", NEW_EAST), vectored("b", NEW_EAST)])
    await new.activate()
    flapped = await old.activate()
    await old.put([vectored("a")])
    await old.delete_retired()

    assert (flapped, await old.count(1), await old.activate()) == (0, 1, 0)
    await old.put([vectored("b")])
    assert (await old.activate(), await new.get_active_version(1), await found(open_index(OLD))) == (1, OLD, ["a", "b"])


async def test_what_a_change_that_was_given_up_has_left_goes_with_the_next_switch(open_index: Open) -> None:
    """Old to other, back, and then to new: nothing of the other one stays on the disk for good."""
    old, other, new = open_index(OLD), open_index(ModelVersion(model="other/1", dimension=4)), open_index(NEW)
    await old.put([vectored("a")])
    await other.put([vectored("a"), vectored("b")])
    await new.put([vectored("a", NEW_EAST)])
    await new.activate()
    await new.delete_retired()

    assert [await each.count(1) for each in (old, other, new)] == [0, 0, 1]


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


async def test_a_file_of_the_first_format_is_taken_over(open_index: Open, tmp_path: Path) -> None:
    """An upgrade asks for no re-index: numbers of changes, vectors and tombstones are kept, and the model that has most answers."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.executescript(_FORMAT_1)
        for change in (1, 2, 3):
            connection.execute("INSERT INTO chunk VALUES (?, 0, ?)", (change, EAST))
        connection.commit()
    old = open_index(OLD)

    assert (await found(old), await old.get_active_version(1)) == (["a", "c"], OLD)
    await old.put([vectored("d")])
    assert await found(old) == ["a", "c", "d"]
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        assert connection.execute("SELECT change, memory_id FROM entry ORDER BY change").fetchall()[-2:] == [(5, "gone"), (6, "d")]
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)


async def test_a_file_of_a_later_format_is_left_alone(open_index: Open, tmp_path: Path) -> None:
    """An older program beside a newer one's file."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
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
async def test_no_question_is_ever_answered_by_half_an_index(steps: list[tuple[str, str]], url: str, tmp_path: Path) -> None:
    """D-54: whatever is put, dropped, switched and cleared, who serves has all that was there, and was not dropped."""
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    old, new = (vectors.open(url, data_dir=folder, model=each.model, dimension=each.dimension) for each in (OLD, NEW))
    serves, has = None, {"old": set[str](), "new": set[str]()}
    try:
        for step, memory in steps:
            if step in has:
                await {"old": old, "new": new}[step].put([vectored(memory, EAST if step == "old" else NEW_EAST)])
                has[step].add(memory)
                serves = serves or step
            elif step == "drop":
                await new.delete(1, [memory])
                has["old"].discard(memory)
                has["new"].discard(memory)
            elif step == "clear":
                await new.delete_retired()
            else:
                is_due = serves == "old" and has["old"] <= has["new"]
                assert await new.activate() == int(is_due)
                if is_due:
                    serves = "new"
            serving = await new.get_active_version(1)
            assert (None if serving is None else serving.model) == {None: None, "old": "old/1", "new": "new/1"}[serves]
            assert set(await found(new)) == has["new"]
            if serves == "old":
                assert set(await found(old)) == has["old"]
    finally:
        await old.close()
        await new.close()
