"""Vectors of several models side by side, above any engine of `VectorIndex`: which one serves, and what is deleted when."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.engines import vectors as vector_engines
from rookery.engines.vectors import VectorEngine
from rookery.kernel.db import Database
from rookery.memory.embedding_migration import IndexVersion, MigrationProgress
from rookery.memory.models import Memory
from rookery.memory.ports import ModelVersion, VectorSet
from rookery.memory.store import vector_sets as store
from rookery.memory.store.tables import purge_workspace
from tests.conftest import FakeClock
from tests.engines.numpy_index import Entries, NumpyVectorIndex
from tests.memory.makers import DIMENSION, MemoryRig, StemEmbedder, build_rig, make_caller

OLD, NEW, OTHER = (ModelVersion(model=model, dimension=DIMENSION) for model in ("old/1", "new/1", "other/1"))


class ErasableNumpyIndex(NumpyVectorIndex):
    """An engine that stores nothing in files."""

    async def erase(self) -> None:
        """Do nothing."""


class Process:
    """The memory domain of a process whose embedder has the model *version*."""

    def __init__(self, rig: MemoryRig, version: ModelVersion) -> None:
        self.rig = rig
        self.version = version
        self.migration = rig.services.migration

    async def index(self, *memories: Memory) -> None:
        """Index *memories* as they are now."""
        assert await self.rig.services.indexer.index([await self.rig.reload(memory) for memory in memories]) == {}

    async def remember(self, content: str = "heron", workspace_id: int = 1) -> Memory:
        """Store a memory without indexing it."""
        return await self.rig.remember(content, make_caller(workspace_id=workspace_id))

    async def delete(self, memory: Memory) -> None:
        """Delete a memory, as its job does."""
        await self.rig.services.records.delete(make_caller(workspace_id=memory.workspace_id), memory.id)
        await self.rig.services.indexer.delete(memory.workspace_id, [memory.id])

    async def get_active(self, workspace_id: int = 1) -> ModelVersion | None:
        """Return the version that serves the workspace."""
        return await self.migration.get_active_version(workspace_id)

    async def count(self, workspace_id: int = 1) -> int:
        """Return the number of memories with vectors of this process's model."""
        return await self.rig.vectors.count(workspace_id)


class Fleet:
    """Processes with different embedders that share a record store and an index."""

    def __init__(self, database: Database, folder: Path, clock: FakeClock, open_vectors: Callable[[ModelVersion], VectorEngine]) -> None:
        self._database = database
        self._folder = folder
        self._clock = clock
        self.open_vectors = open_vectors
        self.stack = AsyncExitStack()

    def start(self, version: ModelVersion, *, previous: Process | None = None) -> Process:
        """Start a process, which can use the embedder of *previous*."""

        def find_previous(wanted: ModelVersion) -> IndexVersion | None:
            if previous is None or wanted != previous.version:
                return None
            return IndexVersion(embedder=previous.rig.embedder, vectors=previous.rig.vectors, is_previous=True)

        embedder = StemEmbedder(model=version.model, dimension=version.dimension)
        vectors = self.open_vectors(version)
        rig = build_rig(self._database, self._folder, self._clock, embedder=embedder, find_previous=find_previous, vectors=vectors)
        self.stack.push_async_callback(rig.close)
        return Process(rig, version)


@pytest.fixture
def exit_stack() -> Iterator[ExitStack]:
    """Yield a stack that is left at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["embedded", "numpy", pytest.param("qdrant", marks=pytest.mark.external_service)])
async def fleet(
    request: pytest.FixtureRequest, database: Database, data_dir: Path, clock: FakeClock, exit_stack: ExitStack
) -> AsyncIterator[Fleet]:
    """Yield a fleet with each engine in turn. That of a page shows that the change of the model needs nothing from an engine."""
    entries: Entries = {}
    address = "embedded:"
    if request.param == "qdrant":
        stand_in = pytest.importorskip(
            "tests.qdrant_stand_in", reason="qdrant-edge-py has no wheel for this platform", exc_type=ImportError
        )
        address = exit_stack.enter_context(stand_in.run_qdrant_stand_in()).address()

    def open_vectors(version: ModelVersion) -> VectorEngine:
        if request.param == "numpy":
            return ErasableNumpyIndex(entries, model=version.model, dimension=version.dimension)
        return vector_engines.open(address, data_dir=data_dir, model=version.model, dimension=version.dimension)

    fleet = Fleet(database, data_dir, clock, open_vectors)
    async with fleet.stack:
        yield fleet


async def test_two_models_are_stored_and_the_first_one_is_active(fleet: Fleet) -> None:
    """Their vectors are never mixed, and a rebuild does not change the active ones."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    first, second = await old.remember("heron"), await old.remember("swallow")
    await old.index(first, second)
    await new.index(first)

    assert await old.get_active() == await new.get_active() == OLD
    assert await old.migration.list_progress() == []
    assert await new.migration.list_progress() == [
        MigrationProgress(workspace_id=1, active_version=OLD, total=2, pending=1, has_embedder=False)
    ]
    assert [await process.count() for process in (old, new)] == [2, 1]


async def test_the_first_vectors_of_a_workspace_are_active(fleet: Fleet) -> None:
    """A workspace created after the change of the model has no migration."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    await old.index(await old.remember())
    active_before = await new.get_active(2)
    await new.index(await new.remember(workspace_id=2))

    assert (active_before, await new.get_active(2), await new.get_active(1)) == (None, NEW, OLD)


async def test_the_new_model_is_activated_when_complete_for_all_processes(fleet: Fleet) -> None:
    """Every process uses the new model at its next search."""
    old, new, other_process = fleet.start(OLD), fleet.start(NEW), fleet.start(NEW)
    first, second = await old.remember("heron"), await old.remember("swallow")
    await old.index(first, second, await old.remember(workspace_id=2))
    await new.index(first)
    activated_early = await new.migration.activate_complete()
    await new.index(second)
    assert await other_process.get_active() == OLD

    assert (activated_early, await new.migration.activate_complete(), await new.migration.activate_complete()) == (0, 1, 0)
    assert [await process.get_active() for process in (old, new, other_process)] == [NEW] * 3
    assert await other_process.get_active(2) == OLD


async def test_memories_that_cannot_be_embedded_are_not_waited_for(fleet: Fleet) -> None:
    """One bad text must not stop the activation forever."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    a, b, c = [await old.remember(content) for content in ("heron", "swallow", "otter")]
    await old.index(a, b, c)
    await new.index(a)

    ignored = ({b.id}, {b.id, "unknown"}, {b.id, c.id})
    assert [await new.migration.activate_complete(ignored_ids=ids) for ids in ignored] == [0, 0, 1]


async def test_only_old_vectors_are_deleted_after_the_activation(fleet: Fleet) -> None:
    """Otherwise each change of the model would leave its vectors on the disk."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    memories = [await old.remember(f"heron {number}") for number in range(300)]
    await old.index(*memories, await old.remember(workspace_id=2))
    await new.index(*memories)
    await new.migration.activate_complete()
    count_at_the_switch = await old.count()
    await new.migration.activate_complete()

    assert (count_at_the_switch, await fleet.start(OLD).count(), await new.count(), await old.count(2)) == (300, 0, 300, 1)


async def test_a_deleted_memory_is_removed_from_all_models(fleet: Fleet) -> None:
    """During a change each memory has vectors of both models."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    first, second = await old.remember("heron"), await old.remember("swallow")
    await old.index(first, second)
    await new.index(first, second)
    await new.delete(first)

    for process in (old, new):
        assert set(await process.rig.vectors.fetch(1, [first.id, second.id])) == {second.id}


async def test_a_change_back_to_the_first_model_is_complete_only_with_new_vectors(fleet: Fleet) -> None:
    """Retired vectors do not count, and new vectors are not deleted with them."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    first, second = await old.remember("heron"), await old.remember("swallow")
    await old.index(first, second)
    await new.index(first, second)
    await new.migration.activate_complete()
    await old.index(first)
    activated_early = await old.migration.activate_complete()

    assert (activated_early, await old.count(), await new.migration.activate_complete(), await old.count()) == (0, 1, 0, 1)
    await old.index(second)
    assert (await old.migration.activate_complete(), await new.get_active(), await fleet.start(OLD).count()) == (1, OLD, 2)


async def test_vectors_of_an_abandoned_change_are_deleted_with_the_next_activation(fleet: Fleet) -> None:
    """After old, other, old, and then new, no vectors of the other model stay."""
    old, other, new = fleet.start(OLD), fleet.start(OTHER), fleet.start(NEW)
    memory = await old.remember()
    await old.index(memory)
    await other.index(memory)
    await new.index(memory)
    await new.migration.activate_complete()
    await new.migration.activate_complete()

    assert [await process.count() for process in (fleet.start(OLD), fleet.start(OTHER), new)] == [0, 0, 1]


async def test_vectors_written_to_a_previous_model_during_the_switch_are_deleted(fleet: Fleet, database: Database) -> None:
    """Another process may switch and delete the previous vectors while this one writes to both models."""
    old = fleet.start(OLD)
    new, other_process = fleet.start(NEW, previous=old), fleet.start(NEW)
    first = await old.remember("heron")
    await old.index(first)
    await new.index(first)
    put = old.rig.vectors.put

    async def switch_before(items: object) -> None:
        assert await other_process.migration.activate_complete() == 1
        await other_process.migration.activate_complete()
        await put(items)  # pyright: ignore[reportArgumentType] - passed on unchanged

    old.rig.vectors.put = switch_before
    await new.index(await new.remember("swallow"))
    count_after_the_write = await fleet.start(OLD).count()
    await other_process.migration.activate_complete()

    assert (count_after_the_write, await fleet.start(OLD).count(), await new.count()) == (1, 0, 2)
    assert await database.read(store.list_retired) == []


async def test_the_deletion_of_retired_vectors_continues_after_a_crash(fleet: Fleet, database: Database) -> None:
    """A set is forgotten only when its vectors are deleted, and any process deletes them."""
    old, new = fleet.start(OLD), fleet.start(NEW)
    memory = await old.remember()
    await old.index(memory)
    await new.index(memory)
    await new.migration.activate_complete()

    async def crash(workspace_id: int, version: ModelVersion) -> None:
        raise KeyboardInterrupt(f"{workspace_id} {version}")

    new.rig.vectors.drop_version = crash
    with pytest.raises(KeyboardInterrupt):
        await new.migration.activate_complete()
    assert await database.read(store.list_retired) == [VectorSet(workspace_id=1, version=OLD, is_retired=True)]

    await fleet.start(NEW).migration.activate_complete()
    assert (await database.read(store.list_retired), await fleet.start(OLD).count()) == ([], 0)


async def test_a_deleted_workspace_leaves_no_rows(fleet: Fleet, database: Database) -> None:
    """The rows of a workspace end with it."""
    old = fleet.start(OLD)
    await old.index(await old.remember(), await old.remember(workspace_id=2))

    await database.write(lambda tx: purge_workspace(tx, 1))

    assert [await old.get_active(workspace_id) for workspace_id in (1, 2)] == [None, OLD]
    assert [vector_set.workspace_id for vector_set in await database.read(lambda tx: store.list_of_version(tx, OLD, [1, 2]))] == [2]


class ExpectedSets:
    """The sets of a workspace after some steps of an old and a new process."""

    def __init__(self) -> None:
        self.active: str | None = None
        self.old_is_retired = False
        self.names: dict[str, set[str]] = {"old": set(), "new": set()}
        self.last_models = dict[str, str]()

    def index(self, model: str, name: str) -> None:
        """A process with *model* indexes a memory."""
        if model == "old":
            self.delete_retired()
        self.active = self.active or model
        for indexed in {model, self.active} if self.active == "old" else {model}:
            self.names[indexed].add(name)
        self.last_models[name] = model

    def delete(self, name: str) -> None:
        """A memory is deleted."""
        self.last_models.pop(name, None)
        for names in self.names.values():
            names.discard(name)

    def delete_retired(self) -> None:
        """Retired vectors are deleted."""
        if self.old_is_retired:
            self.old_is_retired = False
            self.names["old"].clear()

    def switch(self) -> int:
        """The new process activates its model if it is complete."""
        self.delete_retired()
        if self.active == "old" and set(self.last_models.values()) <= {"new"}:
            self.active, self.old_is_retired = "new", True
            return 1
        return 0


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["old", "new"]), st.sampled_from("abcd")),
        st.tuples(st.just("delete"), st.sampled_from("abcd")),
        st.tuples(st.just("switch"), st.just("")),
    ),
    max_size=30,
)
_workspace_ids = itertools.count(100)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
async def test_the_active_model_is_always_complete(steps: list[tuple[str, str]], fleet: Fleet, database: Database) -> None:
    """This holds for any order of writes, deletions and activations by processes with different models."""
    workspace_id, expected, memories = next(_workspace_ids), ExpectedSets(), dict[str, Memory]()
    async with AsyncExitStack() as fleet.stack:
        # The workspace of the last example would be activated with this one.
        await database.write(lambda tx: purge_workspace(tx, workspace_id - 1))
        old = fleet.start(OLD)
        new = fleet.start(NEW, previous=old)
        processes = {"old": old, "new": new}
        for step, name in steps:
            if step in processes:
                if name not in memories:
                    memories[name] = await new.remember(f"heron {name}", workspace_id)
                await processes[step].index(memories[name])
                expected.index(step, name)
            elif step == "switch":
                assert await new.migration.activate_complete() == expected.switch()
            elif name in memories:
                await new.delete(memories.pop(name))
                expected.delete(name)
            version = await new.get_active(workspace_id)
            assert (None if version is None else version.model) == (None if expected.active is None else f"{expected.active}/1")
            ids = {memory.id: name for name, memory in memories.items()}
            for model in ["new"] if expected.old_is_retired else ["old", "new"]:
                vectors = await processes[model].rig.vectors.fetch(workspace_id, list(ids))
                assert {ids[memory_id] for memory_id in vectors} == expected.names[model]
            served = set[str]() if expected.active is None else expected.names[expected.active]
            assert served >= {name for name, model in expected.last_models.items() if model == expected.active}
