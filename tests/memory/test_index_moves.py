"""Moves of an index to another engine while memories change. The commands are tested in tests/test_move_indexes.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rookery.engines import texts as text_engines
from rookery.engines import vectors as vector_engines
from rookery.kernel.copy_log import CopyLog, delete_copy_log, open_copy_log
from rookery.kernel.errors import Conflict, EngineUnavailable
from rookery.memory.maintenance.index_move import IndexMove, MovedIndex, MovedTexts, MovedVectors, MoveReport
from rookery.memory.models import Memory, MemoryChange, MemoryScope
from tests.memory.makers import DIMENSION, MODEL, MemoryRig, make_caller

_Progress = Callable[[int, int], None]
_MANY = 300
"""More memories than a batch has."""


@dataclass
class Moves:
    """The targets of moves, and a log that each move opens as a new process would."""

    rig: MemoryRig
    folder: Path
    vectors: vector_engines.VectorEngine
    texts: text_engines.TextEngine

    def open(self, stack: ExitStack, index: MovedIndex | None = None, *, is_finish: bool = False, goal: str = "new") -> IndexMove:
        """Return a move of the vectors, or of *index*."""
        log = stack.enter_context(open_copy_log(self.folder / "move.db", goal))
        chosen = index or MovedVectors(target=self.vectors, embedder=self.rig.embedder, source=None if is_finish else self.rig.vectors)
        return IndexMove(db=self.rig.db, clock=self.rig.clock, index=chosen, log=log, model=MODEL, is_finish=is_finish)

    async def run(
        self, index: MovedIndex | None = None, *, is_finish: bool = False, goal: str = "new", on_progress: _Progress | None = None
    ) -> MoveReport:
        """Run a move to its end."""
        with ExitStack() as stack:
            return await self.open(stack, index, is_finish=is_finish, goal=goal).run(on_progress=on_progress or _ignore)

    async def find_vectors(self, memories: Sequence[Memory]) -> set[str]:
        """Return the contents of those of *memories* that have vectors in the target."""
        ids = set(await self.vectors.fetch(1, [memory.id for memory in memories]))
        return {memory.content for memory in memories if memory.id in ids}


def _ignore(done: int, total: int) -> None:
    """Show nothing."""


@pytest.fixture
async def moves(rig: MemoryRig, tmp_path: Path) -> AsyncIterator[Moves]:
    """Yield empty targets."""
    folder = tmp_path / "target"
    folder.mkdir()
    vectors = vector_engines.open("embedded:", data_dir=folder, model=MODEL, dimension=DIMENSION)
    texts = text_engines.open("embedded:", data_dir=folder)
    yield Moves(rig=rig, folder=folder, vectors=vectors, texts=texts)
    await vectors.close()
    await texts.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CopyLog]:
    """Yield a log that was started."""
    with open_copy_log(tmp_path / "log.db", "goal") as log:
        log.start()
        yield log


async def test_vectors_are_copied_and_not_embedded_again(rig: MemoryRig, moves: Moves) -> None:
    """The vectors of the source are copied, of every workspace; archived memories are left out."""
    stored = [await rig.remember(f"heron {number}") for number in range(_MANY)]
    foreign = await rig.remember("heron of two", make_caller(workspace_id=2))
    archived = await rig.remember("heron archived")
    await rig.run_jobs()
    await rig.services.records.archive(make_caller(), archived.id)
    await rig.run_jobs()
    embedded, progress = len(rig.embedder.embedded_contents), list[tuple[int, int]]()

    report = await moves.run(on_progress=lambda done, total: progress.append((done, total)))

    assert len(rig.embedder.embedded_contents) == embedded
    assert (report.total, report.copied, report.missing, report.pending) == (_MANY + 1, _MANY + 1, 0, 0)
    assert (report.sampled, progress[-1]) == (40, (_MANY + 1, _MANY + 1))
    ids = [memory.id for memory in stored]
    assert await moves.vectors.fetch(1, ids) == await rig.vectors.fetch(1, ids)
    assert (await moves.vectors.count(1), await moves.vectors.count(2)) == (_MANY, 1)
    assert foreign.id in await moves.vectors.fetch(2, [foreign.id])


async def test_a_change_or_deletion_after_a_pass_is_not_missed(rig: MemoryRig, moves: Moves) -> None:
    """A memory that is stored, changed or deleted between the first run and the finish is right in the target afterwards."""
    kept, changed, deleted, archived = [await rig.remember(f"{name} heron") for name in ("kept", "changed", "deleted", "archived")]
    await rig.run_jobs()
    await moves.run()
    rig.clock.advance(hours=1)
    new = await rig.remember("new rook")
    await rig.services.records.change(make_caller(), changed.id, MemoryChange.of(content="changed rook"))
    await rig.services.records.delete(make_caller(), deleted.id)
    await rig.services.records.archive(make_caller(), archived.id)
    await rig.run_jobs()  # by a server that still uses the old index
    assert await moves.find_vectors([new]) == set()

    report = await moves.run(is_finish=True)

    everything = [kept, changed, deleted, archived, new]
    assert await moves.find_vectors(everything) == {"kept heron", "changed heron", "new rook"}
    vectors = await moves.vectors.fetch(1, [changed.id, kept.id])
    assert vectors == await rig.vectors.fetch(1, [changed.id, kept.id])
    assert (report.copied, report.dropped, report.missing) == (2, 2, 0)


async def test_changes_during_a_batch_are_copied_again(rig: MemoryRig, moves: Moves) -> None:
    """A memory that changes or is deleted after it was read and before it is written does not stay as it was."""
    changed, deleted = await rig.remember("changed heron"), await rig.remember("deleted heron")
    await rig.run_jobs()

    class Interrupted(MovedVectors):
        """Vectors whose memories change before their first write."""

        has_changed = False

        async def put(self, memories: Sequence[Memory]) -> Collection[str]:
            if not Interrupted.has_changed:
                Interrupted.has_changed = True
                rig.clock.advance(seconds=1)
                rejected = await super().put(memories)
                await rig.services.records.change(make_caller(), changed.id, MemoryChange.of(content="changed rook"))
                await rig.services.records.delete(make_caller(), deleted.id)
                await rig.run_jobs()
                return rejected
            return await super().put(memories)

    await moves.run(Interrupted(target=moves.vectors, embedder=rig.embedder, source=rig.vectors))

    assert await moves.find_vectors([changed, deleted]) == {"changed heron"}
    assert await moves.vectors.fetch(1, [changed.id]) == await rig.vectors.fetch(1, [changed.id])


async def test_an_interrupted_move_continues(rig: MemoryRig, moves: Moves) -> None:
    """After a failure in the middle, the next run copies the rest, and drops what was deleted meanwhile."""
    stored = [await rig.remember(f"heron {number}") for number in range(_MANY)]
    await rig.run_jobs()

    class Failing(MovedVectors):
        """Vectors that fail after the second write, before its result is known."""

        puts = 0

        async def put(self, memories: Sequence[Memory]) -> Collection[str]:
            Failing.puts += 1
            rejected = await super().put(memories)
            if Failing.puts == 2:
                raise EngineUnavailable("vectors", "it was switched off")
            return rejected

    with pytest.raises(EngineUnavailable):
        await moves.run(Failing(target=moves.vectors, embedder=rig.embedder, source=rig.vectors))
    last = max(stored, key=lambda memory: memory.id)
    await rig.services.records.delete(make_caller(), last.id)
    await rig.run_jobs()

    report = await moves.run()

    assert 0 < report.copied < _MANY // 2
    assert (await moves.vectors.count(1), await moves.find_vectors([last])) == (_MANY - 1, set())


async def test_vectors_that_the_source_lost_are_embedded_again(rig: MemoryRig, moves: Moves) -> None:
    """The records decide what the target holds, not the source."""
    stored = [await rig.remember(f"heron {number}") for number in range(3)]
    await rig.run_jobs()
    await rig.vectors.drop(1, [stored[0].id])

    report = await moves.run()

    assert (report.copied, await moves.vectors.count(1)) == (3, 3)
    assert rig.embedder.embedded_contents[-1] == "heron 0"


async def test_memories_that_are_not_embedded_yet_are_left_to_the_servers(rig: MemoryRig, moves: Moves) -> None:
    """They are counted, and copied by the run after a server has embedded them."""
    await rig.remember("heron")

    first = await moves.run()
    await rig.run_jobs()
    second = await moves.run()

    assert [(report.copied, report.pending) for report in (first, second)] == [(0, 1), (1, 0)]


async def test_a_filled_target_is_refused_and_an_emptied_one_is_filled_again(rig: MemoryRig, moves: Moves) -> None:
    """Entries of another origin are an error before anything is written; entries that vanished are copied again."""
    stored = [await rig.remember(f"heron {number}") for number in range(3)]
    await rig.run_jobs()
    await moves.run()

    with pytest.raises(Conflict, match="has entries of 3 memories of workspace 1"):
        await moves.run(goal="another")
    await moves.vectors.drop(1, [stored[0].id])
    report = await moves.run()

    assert (report.copied, report.missing, await moves.vectors.count(1)) == (1, 0, 3)


async def test_a_move_is_finished_only_where_it_began(rig: MemoryRig, moves: Moves) -> None:
    """With the new setting and without a log, nothing is known of the target: the error names the command to use."""
    await rig.remember("heron")

    with pytest.raises(Conflict, match="brain:reindex"):
        await moves.run(is_finish=True)


async def test_a_check_reports_what_cannot_be_written(rig: MemoryRig, moves: Moves) -> None:
    """A target that loses entries is noticed by the counts, and a search that finds nothing by the samples."""
    for number in range(9):
        await rig.remember(f"heron {number}")
    await rig.run_jobs()

    class Losing(MovedVectors):
        """Vectors that keep only the first memory of a batch."""

        async def put(self, memories: Sequence[Memory]) -> Collection[str]:
            return await super().put(memories[:1])

    class Blind(MovedVectors):
        """Vectors that no search finds."""

        async def finds(self, memory: Memory) -> bool:
            return False

    losing = await moves.run(Losing(target=moves.vectors, embedder=rig.embedder, source=rig.vectors))
    repaired = await moves.run()
    blind = await moves.run(Blind(target=moves.vectors, embedder=rig.embedder, source=rig.vectors))

    assert (losing.missing > 0, repaired.missing, blind.missing) == (True, 0, 9)


async def test_a_preview_writes_nothing(rig: MemoryRig, moves: Moves) -> None:
    """A dry run returns counts and bytes; the next run still starts from the beginning."""
    for number in range(3):
        await rig.remember(f"heron {number}")
    await rig.run_jobs()
    await rig.remember("pending heron")

    with ExitStack() as stack:
        preview = await moves.open(stack).preview()

    assert (preview.total, preview.to_copy, preview.pending, preview.bytes_to_copy) == (4, 3, 1, 3 * 4 * DIMENSION)
    assert await moves.vectors.count(1) == 0
    assert (await moves.run()).copied == 3


async def test_texts_are_moved_with_their_changes(rig: MemoryRig, moves: Moves) -> None:
    """The full-text index is filled from the records, also with memories that are not embedded yet."""
    index = MovedTexts(target=moves.texts)
    kept, changed, deleted = [await rig.remember(f"{name} heron") for name in ("kept", "changed", "deleted")]
    own = await rig.remember("own heron", agent_id="kim", memory_scope=MemoryScope.AGENT)
    first = await moves.run(index)
    rig.clock.advance(hours=1)
    await rig.services.records.change(make_caller(), changed.id, MemoryChange.of(tags=("new",)))
    await rig.services.records.delete(make_caller(), deleted.id)
    await rig.run_jobs()

    second = await moves.run(index, is_finish=True)

    assert [(report.copied, report.dropped, report.missing, report.sampled) for report in (first, second)] == [(4, 0, 0, 4), (1, 1, 0, 3)]
    assert await moves.texts.count(1) == 3
    assert kept.id != own.id


def test_only_one_process_uses_a_log(tmp_path: Path) -> None:
    """A second move with the same log is refused; a deleted log is new again."""
    path = tmp_path / "move.db"
    with open_copy_log(path, "goal") as log:
        log.start()
        log.finish([(1, "a", "1")])
        with pytest.raises(Conflict, match="Another process"), open_copy_log(path, "goal"):
            pass
    with open_copy_log(path, "goal") as log:
        assert (log.is_new, dict(log.count())) == (False, {1: 1})
    with open_copy_log(path, "another") as log:
        assert (log.is_new, dict(log.count())) == (True, {})
    delete_copy_log(path)
    with open_copy_log(path, "goal") as log:
        assert log.is_new


def test_a_log_knows_copies_that_only_began(log: CopyLog) -> None:
    """An item that was begun is not a copy, but is listed, so that it is dropped if its memory is deleted."""
    log.begin([(1, "a"), (2, "b")])
    log.finish([(2, "b", "7")])

    assert dict(log.get_versions(["a", "b", "c"])) == {"b": "7"}
    assert log.list_items(after="", limit=10) == [(1, "a"), (2, "b")]
    log.delete(["b"])
    assert log.list_items(after="", limit=10) == [(1, "a")]
