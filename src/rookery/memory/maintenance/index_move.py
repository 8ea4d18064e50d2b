"""
The move of an index to another engine while servers write to the old one.

    copy    passes over all memories, until a pass finds little that changed; the servers use the old engine
    switch  the operator changes the setting and restarts the servers
    finish  one more pass, which closes the gap between the last pass and the restart

The records decide what an index holds. A log has the version in which each memory was copied. So each pass compares the two: it copies what
is new or changed, and deletes what was deleted, however long ago the last pass was.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from rookery.kernel.clock import Clock
from rookery.kernel.copy_log import CopyLog
from rookery.kernel.db import Database
from rookery.kernel.errors import Conflict
from rookery.memory.indexing import build_document, build_passage
from rookery.memory.models import AccessFilter, EmbeddedDocument, Memory, TextQuery, Vector
from rookery.memory.passages import embed_memories
from rookery.memory.ports import Embedder, TextIndex, VectorIndex
from rookery.memory.store import indexing
from rookery.memory.store.indexing import IndexState
from rookery.memory.text_queries import parse_question
from rookery.memory.visibility import VectorFilter, filter_ids

_BATCH_SIZE = 256
_LOG_BATCH_SIZE = 1_000
_MAX_PASSES = 8
_FEW_CHANGES = 64
"""Changes in a pass after which no further one follows."""

_MAX_ROUNDS = 8
"""Maximum rounds over memories of a batch that change while it is copied. The next pass copies later changes."""

_MAX_SAMPLES = 40
_MAX_COUNTS = 3
_FLOAT_BYTES = 4
_MIN_SELF_SIMILARITY = 0.99
_MAX_SAMPLE_WORDS = 8
_SAMPLE_LIMIT = 10


class MovedIndex(Protocol):
    """The target of a move: an index of vectors or of full texts."""

    def get_version(self, state: IndexState) -> str | None:
        """Return the version of the entry of a memory; None if it is not to be copied yet."""
        ...

    async def put(self, memories: Sequence[Memory]) -> Collection[str]:
        """Write the entries of *memories*; return the ids of those that cannot be embedded."""
        ...

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete the entries of *ids*."""
        ...

    async def count(self, workspace_id: int) -> int:
        """Return the number of entries."""
        ...

    async def find_missing(self, workspace_id: int, ids: Sequence[str]) -> Collection[str]:
        """Return those of *ids* that may have no entry."""
        ...

    async def finds(self, memory: Memory) -> bool:
        """Return whether a search finds the memory by its own content."""
        ...

    async def measure(self, memories: Sequence[Memory]) -> int:
        """Return about the number of bytes of the entries of *memories*."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedVectors:
    """
    The vectors in the target.

    Attributes:
        source: The index that has them already. None: they are embedded again.
    """

    target: VectorIndex
    embedder: Embedder
    source: VectorIndex | None

    def get_version(self, state: IndexState) -> str | None:
        """Return the version of its vectors; None while the server has yet to embed it."""
        return state.vector_version if state.is_indexed else None

    async def put(self, memories: Sequence[Memory]) -> Collection[str]:
        """Copy vectors, and embed the memories of which the source has none."""
        vectors = dict[str, tuple[Vector, ...]]()
        if self.source is not None:
            for workspace_id, group in _group(memories).items():
                vectors.update(await self.source.fetch(workspace_id, [memory.id for memory in group]))
        missing = [memory for memory in memories if memory.id not in vectors]
        vectors.update(await self._embed(missing))
        documents = [
            EmbeddedDocument(document=build_document(memory), vectors=vectors[memory.id]) for memory in memories if memory.id in vectors
        ]
        await self.target.put(documents)
        return {memory.id for memory in missing if memory.id not in vectors}

    async def _embed(self, memories: Sequence[Memory]) -> Mapping[str, tuple[Vector, ...]]:
        """Return the vectors of *memories*, without those that cannot be embedded."""
        if not memories:
            return {}
        vectors = await embed_memories(self.embedder, memories, [build_passage(memory) for memory in memories])
        return {memory.id: chunks for memory, chunks in zip(memories, vectors, strict=True) if chunks is not None}

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete the vectors of *ids*."""
        await self.target.drop(workspace_id, ids)

    async def count(self, workspace_id: int) -> int:
        """Return the number of memories with vectors."""
        return await self.target.count(workspace_id)

    async def find_missing(self, workspace_id: int, ids: Sequence[str]) -> Collection[str]:
        """Return those of *ids* that have no vectors."""
        return set(ids) - (await self.target.fetch(workspace_id, ids)).keys()

    async def measure(self, memories: Sequence[Memory]) -> int:
        """Return the bytes of their vectors in the source; without a source, those of one vector for each."""
        if self.source is None:
            return len(memories) * self.embedder.dimension * _FLOAT_BYTES
        size = 0
        for workspace_id, group in _group(memories).items():
            stored = await self.source.fetch(workspace_id, [memory.id for memory in group])
            size += sum(len(vector) for vectors in stored.values() for vector in vectors)
        return size

    async def finds(self, memory: Memory) -> bool:
        """Return whether a search by its own vector finds it, or one that is as similar."""
        vectors = (await self.target.fetch(memory.workspace_id, [memory.id])).get(memory.id)
        if not vectors:
            return False
        for where in (VectorFilter(workspace_id=memory.workspace_id), filter_ids(memory.workspace_id, [memory.id])):
            hits = await self.target.search(vectors[0], where=where, limit=1)
            if hits and hits[0].similarity >= _MIN_SELF_SIMILARITY:
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTexts:
    """The full texts in the target. They are made from the records."""

    target: TextIndex

    def get_version(self, state: IndexState) -> str | None:
        """Return the version of its document."""
        return state.text_version

    async def put(self, memories: Sequence[Memory]) -> Collection[str]:
        """Write the documents."""
        await self.target.put([build_document(memory) for memory in memories])
        return ()

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        """Delete the documents of *ids*."""
        await self.target.drop(workspace_id, ids)

    async def count(self, workspace_id: int) -> int:
        """Return the number of documents."""
        return await self.target.count(workspace_id)

    async def find_missing(self, workspace_id: int, ids: Sequence[str]) -> Collection[str]:
        """Return all of *ids*: a full-text index does not list its documents, and writing them again is fast."""
        del workspace_id
        return set(ids)

    async def measure(self, memories: Sequence[Memory]) -> int:
        """Return the bytes of their contents."""
        return sum(len(memory.content.encode()) for memory in memories)

    async def finds(self, memory: Memory) -> bool:
        """Return whether a search by its own words finds it among the memories of the same moment and owner."""
        words = parse_question(memory.content).any_of[:_MAX_SAMPLE_WORDS]
        if not words:
            return True
        access_filter = AccessFilter(
            workspace_id=memory.workspace_id,
            at=memory.updated_at,
            org=memory.org,
            project=memory.project,
            agent_id=memory.agent_id,
            session_id=memory.session_id,
            scopes=frozenset({memory.memory_scope}),
            since=memory.created_at,
            until=memory.created_at + timedelta(microseconds=1),
        )
        hits = await self.target.search(TextQuery(any_of=words), access_filter=access_filter, limit=_SAMPLE_LIMIT)
        return any(hit.memory_id == memory.id for hit in hits) or len(hits) == _SAMPLE_LIMIT


@dataclass(slots=True, kw_only=True)
class MoveReport:
    """
    The result of a move or of a part of it.

    Attributes:
        total: Live memories at the start.
        copied: Entries written, counting a memory again for each change.
        dropped: Entries deleted, because their memories were deleted, archived or expired meanwhile.
        pending: Memories that a server has yet to embed. It writes them to the engine of its setting.
        rejected_ids: Memories that the embedder rejects.
        passes: The number of passes.
        missing: Entries that the check did not find, although they were copied again. The next run tries once more.
        sampled: Memories whose search was tried.
    """

    total: int = 0
    copied: int = 0
    dropped: int = 0
    pending: int = 0
    rejected_ids: set[str] = field(default_factory=set[str])
    passes: int = 0
    missing: int = 0
    sampled: int = 0
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePreview:
    """The work of a move: live memories, those still to copy, those a server has yet to embed, and about the bytes to write."""

    total: int
    to_copy: int
    pending: int
    bytes_to_copy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMove:
    """
    A move of one index. A second run continues where the first one ended, also after a kill.

    Attributes:
        model: The embedder's model.
        log: What has been copied. It is used by this move alone.
        is_finish: The servers use the target already, so it may have entries that the log does not have.
    """

    db: Database
    clock: Clock
    index: MovedIndex
    log: CopyLog
    model: str
    is_finish: bool = False
    timer: Callable[[], float] = time.perf_counter
    random: random.Random = field(default_factory=random.SystemRandom)

    async def require_usable_target(self) -> None:
        """
        Check that the target is empty, or has what an earlier run copied. Forget copies that it no longer has.

        Raises:
            Conflict: The target has entries of another origin; or the servers use it, and no move to it is unfinished.
            EngineUnavailable: The target is down.
        """
        if self.is_finish:
            if self.log.is_new:
                raise Conflict(
                    "The setting has this address already, and no move to it is unfinished here. "
                    "Run the move before the setting changes; to rebuild an index from the records, use `rookery brain:reindex`."
                )
            return
        for workspace_id in await self.db.read(indexing.list_workspaces):
            size = await self.index.count(workspace_id)
            if size < self.log.count().get(workspace_id, 0):
                await self._forget_missing(workspace_id)
            if self.log.is_new and size:
                raise Conflict(
                    f"The target has entries of {size:,} memories of workspace {workspace_id} already, which this move did not write. "
                    "Empty it first, or name another one. Nothing was changed."
                )

    async def count_live(self) -> int:
        """Return the number of live memories of all workspaces."""
        return await self.db.read(lambda tx: indexing.count_live(tx, at=self.clock()))

    async def preview(self) -> MovePreview:
        """Return what a run would copy."""
        await self.require_usable_target()
        total = await self.count_live()
        to_copy = pending = sampled = sampled_bytes = 0
        after = ""
        while batch := await self._scan(after):
            changed = self._select_changed(batch)
            to_copy += len(changed)
            if changed and sampled < _BATCH_SIZE:
                memories = await self._load(changed)
                sampled, sampled_bytes = sampled + len(memories), sampled_bytes + await self.index.measure(memories)
            pending += sum(self.index.get_version(state) is None for state in batch)
            after = batch[-1].id
        return MovePreview(
            total=total, to_copy=to_copy, pending=pending, bytes_to_copy=sampled_bytes * to_copy // sampled if sampled else 0
        )

    async def run(self, *, on_progress: Callable[[int, int], None]) -> MoveReport:
        """
        Copy until little is left, then check that nothing is missing.

        Args:
            on_progress: Called with the number of memories that the first pass has seen, and the total.

        Raises:
            EngineUnavailable: An engine is down. Another run continues.
        """
        started_s = self.timer()
        await self.require_usable_target()
        self.log.start()
        report = MoveReport(total=await self.count_live())
        while report.passes < _MAX_PASSES:
            before = report.copied + report.dropped
            await self._run_pass(report, on_progress if report.passes == 0 else _ignore_progress)
            if report.copied + report.dropped - before <= _FEW_CHANGES:
                break
        await self._check(report)
        report.duration_s = self.timer() - started_s
        return report

    async def _run_pass(self, report: MoveReport, on_progress: Callable[[int, int], None]) -> None:
        done, after = 0, ""
        report.passes += 1
        report.pending = 0
        while batch := await self._scan(after):
            report.pending += sum(self.index.get_version(state) is None for state in batch)
            await self._copy(self._select_changed(batch), report)
            done, after = done + len(batch), batch[-1].id
            on_progress(min(done, report.total), report.total)
        after = ""
        while items := self.log.list_items(after=after, limit=_LOG_BATCH_SIZE):
            after = items[-1][1]
            live_ids = await self._get_states([item_id for _, item_id in items])
            await self._drop([item for item in items if item[1] not in live_ids], report)

    def _select_changed(self, batch: Sequence[IndexState]) -> list[IndexState]:
        versions = self.log.get_versions([state.id for state in batch])
        return [state for state in batch if (version := self.index.get_version(state)) is not None and version != versions.get(state.id)]

    async def _copy(self, states: Sequence[IndexState], report: MoveReport) -> None:
        """Copy the memories of *states*, and again those that change meanwhile, so that no older version overwrites a newer one."""
        for _ in range(_MAX_ROUNDS):
            if not states:
                return
            self.log.begin([(state.workspace_id, state.id) for state in states])
            rejected_ids = await self.index.put(await self._load(states))
            current = await self._get_states([state.id for state in states])
            await self._drop([(state.workspace_id, state.id) for state in states if state.id not in current], report)
            copied, changed = list[tuple[int, str, str]](), list[IndexState]()
            for state in states:
                latest = current.get(state.id)
                version = None if latest is None else self.index.get_version(latest)
                if latest is None or version is None:
                    continue  # deleted, or to be embedded by a server: a later pass copies it
                if state.id in rejected_ids:
                    report.rejected_ids.add(state.id)
                elif version == self.index.get_version(state):
                    copied.append((state.workspace_id, state.id, version))
                else:
                    changed.append(latest)
            self.log.finish(copied)
            report.copied += len(copied)
            states = changed

    async def _drop(self, items: Sequence[tuple[int, str]], report: MoveReport) -> None:
        """Delete the entries of memories that are no longer live, unless they are live again after that."""
        for workspace_id in sorted({workspace_id for workspace_id, _ in items}):
            ids = [item_id for item_workspace, item_id in items if item_workspace == workspace_id]
            await self.index.drop(workspace_id, ids)
            self.log.delete(ids)
            report.dropped += len(ids)
            restored = await self._get_states(ids)
            await self._copy([state for state in restored.values() if self.index.get_version(state) is not None], report)

    async def _check(self, report: MoveReport) -> None:
        """Compare the counts, and try the search of some memories. What is missing is copied again, and counted if that does not help."""
        for workspace_id in self.log.count():
            for _ in range(_MAX_COUNTS):
                if await self._count_missing(workspace_id) == 0:
                    break
                # It may only be a memory that a server has deleted since the last pass.
                await self._forget_missing(workspace_id)
                await self._run_pass(report, _ignore_progress)
            report.missing += await self._count_missing(workspace_id)
        for memory in await self._choose_samples():
            report.sampled += 1
            if not await self.index.finds(memory) and await self._is_unchanged(memory):
                report.missing += 1
                self.log.delete([memory.id])

    async def _count_missing(self, workspace_id: int) -> int:
        return max(0, self.log.count().get(workspace_id, 0) - await self.index.count(workspace_id))

    async def _forget_missing(self, workspace_id: int) -> None:
        """Forget copies of the workspace that the target may not have, so that they are made again."""
        after = ""
        while items := self.log.list_items(after=after, limit=_LOG_BATCH_SIZE):
            after = items[-1][1]
            ids = [item_id for item_workspace, item_id in items if item_workspace == workspace_id]
            if ids:
                missing_ids = await self.index.find_missing(workspace_id, ids)
                self.log.begin([(workspace_id, item_id) for item_id in sorted(missing_ids)])

    async def _choose_samples(self) -> list[Memory]:
        """Return random memories that were copied."""
        items, after = list[tuple[int, str]](), ""
        item_count = 0
        while batch := self.log.list_items(after=after, limit=_LOG_BATCH_SIZE):
            after = batch[-1][1]
            for item in batch:  # reservoir sampling
                item_count += 1
                if len(items) < _MAX_SAMPLES:
                    items.append(item)
                elif (place := self.random.randrange(item_count)) < _MAX_SAMPLES:
                    items[place] = item
        states = await self._get_states([item_id for _, item_id in items])
        return await self._load([state for state in states.values() if state.id in self.log.get_versions([state.id])])

    async def _is_unchanged(self, memory: Memory) -> bool:
        """Return whether the log still has the current version of the memory. One that changed meanwhile is not missing."""
        state = (await self._get_states([memory.id])).get(memory.id)
        version = None if state is None else self.index.get_version(state)
        return version is not None and self.log.get_versions([memory.id]).get(memory.id) == version

    async def _scan(self, after: str) -> list[IndexState]:
        return await self.db.read(lambda tx: indexing.scan_states(tx, after=after, limit=_BATCH_SIZE, at=self.clock(), model=self.model))

    async def _get_states(self, ids: Sequence[str]) -> dict[str, IndexState]:
        return await self.db.read(lambda tx: indexing.get_states(tx, ids, at=self.clock(), model=self.model))

    async def _load(self, states: Sequence[IndexState]) -> list[Memory]:
        ids: dict[int, list[str]] = {}
        for state in states:
            ids.setdefault(state.workspace_id, []).append(state.id)
        at = self.clock()
        groups = await asyncio.gather(
            *(
                self.db.read(lambda tx, workspace_id=workspace_id, group=group: indexing.get_live(tx, workspace_id, group, at=at))
                for workspace_id, group in ids.items()
            )
        )
        return [memory for group in groups for memory in group]


def _group(memories: Sequence[Memory]) -> dict[int, list[Memory]]:
    groups: dict[int, list[Memory]] = {}
    for memory in memories:
        groups.setdefault(memory.workspace_id, []).append(memory)
    return groups


def _ignore_progress(done: int, total: int) -> None:
    """Show nothing: later passes are short."""
