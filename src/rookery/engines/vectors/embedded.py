"""
Vector search over a SQLite file: exact and in memory in small workspaces, by inverted lists (IVF) in large ones, exact for new rows.

The file is the index. Memory follows its change counter, so any number of processes can write, and each sees the commits of others at its
next query. Lists are a cache beside the file, built by a child process and mapped (see `ivf_file`). Filters do not reduce recall: if a
query sees few rows, all of them are scored. Measured with `python -m benchmarks.engines` and `python -m benchmarks.large_store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rookery.engines.vectors.ivf_build import BuildRequest, run_build
from rookery.engines.vectors.ivf_file import IvfFile, IvfFolder
from rookery.engines.vectors.search import Floats, IndexLimits, ScoredRows, Segment, rank, validate_vectors
from rookery.engines.vectors.vector_file import VectorFile
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.runtime import PeriodicTask, run_periodic_tasks
from rookery.kernel.sqlite import ReopenableFile, map_file_error, truncate_wal
from rookery.memory.models import EmbeddedDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion, VectorFeature
from rookery.memory.visibility import AnyOf, VectorFilter

T = TypeVar("T")

_LOADER_THREADS = 4
_MAX_PRELOADED_BYTES = 256 * 1024 * 1024
_MAX_PRELOADED_WORKSPACES = 64
"""Limits of preloading, which starts with the largest workspaces. 100,000 memories have 160 MB and take a second. A small workspace is read
by its first query in milliseconds."""

_QUERY_THREADS = (os.cpu_count() or 1) + 2

_MAX_INLINE_FLOATS = 12_288 * 384
"""
Size of a segment that is scored on the event loop: 0.3 ms, and twice that if it is not in the CPU's caches.

With two more changes of threads, a recall among 10,000 memories takes 0.2 to 0.4 ms more and its CPU time is 0.6 ms higher.
"""

_MAX_INLINE_IDS = 400
"""Memories whose vectors are scored on the event loop: 0.6 ms (measured)."""

_NEW_SHARE_DIVISOR = 32
_DEAD_SHARE_DIVISOR = 4
_MAX_DEAD_AGE_S = 24 * 3600.0
"""Maximum age of lists that contain deleted memories. Older ones are built again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedRows:
    """The rows up to the change *last_change*; -1 if nothing was read yet."""

    segment: Segment
    lists: IvfFile | None = None
    last_change: int = -1

    @property
    def sources(self) -> tuple[Segment | IvfFile, ...]:
        """The segment and the lists, without those that have no rows."""
        return tuple(source for source in (self.segment, self.lists) if source is not None and source.count)

    @property
    def listed_rows(self) -> int:
        """Number of live rows in lists."""
        return 0 if self.lists is None else self.lists.count - self.lists.dead

    @property
    def listed_change(self) -> int:
        """Last change that the lists contain; 0 without lists."""
        return 0 if self.lists is None else self.lists.last_change


class WorkspaceIndex:
    """
    A workspace's vectors, up to a change of the file.

    Attributes:
        state: What queries read.
        next_state: Lists that were loaded, for the next update. Used by the event loop only, as the next five are.
        change_count: The engine's change counter at the last update.
        build_task: Loads lists, and builds them before that if needed; *build_started_s* is when it began.
        next_build_s: Time before which no build begins, because the last one failed.
    """

    def __init__(self, workspace_id: int, folder: IvfFolder, *, dimension: int, limits: IndexLimits) -> None:
        self.workspace_id = workspace_id
        self.state = IndexedRows(segment=Segment(dimension))
        self.next_state: IndexedRows | None = None
        self.change_count = 0
        self.update_task: asyncio.Task[None] | None = None
        self.build_task: asyncio.Task[None] | None = None
        self.build_started_s = self.next_build_s = 0.0
        self._dimension = dimension
        self._folder = folder
        self._limits = limits
        self._lock = threading.Lock()

    def update(self, file: VectorFile, state: IndexedRows) -> None:
        """Read the changes of the file since *state*. Blocks. One thread at a time may call it; queries read the previous state."""
        if state.last_change < file.get_bounds().floor or state.segment.has_stale_dictionaries:
            state = self.load_lists(file) or self._apply_changes(file, IndexedRows(segment=Segment(self._dimension), last_change=0))
        else:
            state = self._apply_changes(file, state)
        with self._lock:
            self.state = state

    def load_lists(self, file: VectorFile) -> IndexedRows | None:
        """Open the newest lists and read later changes. Blocks. Return None if there are no valid lists."""
        lists = self._folder.open_newest(self.workspace_id, file)
        if lists is None:
            return None
        return self._apply_changes(file, IndexedRows(segment=Segment(self._dimension), lists=lists, last_change=lists.last_change))

    def _apply_changes(self, file: VectorFile, state: IndexedRows) -> IndexedRows:
        last_known, last_change, is_complete = file.get_bounds().last, state.last_change, False
        while not is_complete:
            changes = file.get_changes(self.workspace_id, after=last_change)
            last_change, is_complete = changes.last, changes.is_complete
            with self._lock:
                for source in state.sources:
                    source.delete(changes.changed_ids)
                state.segment.add(changes.points)
        return replace(state, last_change=max(last_change, last_known))

    @property
    def is_loaded(self) -> bool:
        """True after the first update; later changes are read fast."""
        return self.state.last_change >= 0

    @property
    def needs_lists(self) -> bool:
        """True if lists should be built, or built again, now."""
        lists, new_floats = self.state.lists, self.state.segment.count * self._dimension
        if time.monotonic() < self.next_build_s:
            return False
        if lists is None:
            return new_floats > self._limits.max_exact_floats
        return (
            (lists.dead > 0 and time.time() - lists.made_at_s > _MAX_DEAD_AGE_S)
            or new_floats > max(self._limits.max_new_floats, lists.count * self._dimension // _NEW_SHARE_DIVISOR)
            or lists.dead * _DEAD_SHARE_DIVISOR > lists.count
        )

    def is_fast(self, where: VectorFilter) -> bool:
        """Return whether a search takes less time than the change to another thread: it reads no file, does not wait, and has few rows."""
        condition = where.required.get("memory_id")
        has_few_ids = isinstance(condition, AnyOf) and len(condition.values) <= _MAX_INLINE_IDS
        is_small = self.state.segment.count * self._dimension <= _MAX_INLINE_FLOATS
        return self.state.lists is None and not self._lock.locked() and (has_few_ids or is_small)

    def search(self, vector: Floats, where: VectorFilter, *, limit: int, helpers: ThreadPoolExecutor | None) -> list[VectorHit]:
        """Return the nearest memories that *where* admits. Waits briefly while changes are applied."""
        condition = where.required.get("memory_id")
        with self._lock:
            if isinstance(condition, AnyOf):
                ids = [memory_id.encode() for memory_id in condition.values if memory_id is not None]
                matches = [(source, numbers) for source in self.state.sources if len(numbers := source.find_rows(ids))]
                return rank([source.take_snapshot(where).score_rows(numbers, vector) for source, numbers in matches], limit)
            snapshots = [source.take_snapshot(where) for source in self.state.sources]
        scored = list[ScoredRows]()
        for rows in snapshots:
            if isinstance(rows, IvfFile):
                scored.append(rows.score_nearest(vector, limit=limit, limits=self._limits))
            else:
                scored += rows.score_all(vector, helpers=helpers)
        return rank(scored, limit)


class EmbeddedVectorIndex:
    """
    A `VectorIndex` without a server. All calls come from one event loop.

    Deleting the file (with its -wal and -shm) empties the index, also while it is in use. The folder of lists may be deleted at any time;
    lists of large workspaces are then built again.
    """

    lacks = frozenset({VectorFeature.SHARED_BY_HOSTS})

    def __init__(self, path: Path, *, model: str, dimension: int, limits: IndexLimits | None = None) -> None:
        self._path = path
        self._limits = limits or IndexLimits()
        self._model_version = ModelVersion(model=model, dimension=dimension)
        self._lists = IvfFolder(path, self._model_version)
        self._tasks = set[asyncio.Task[None]]()
        self._build_lock = asyncio.Lock()
        open_file = partial(VectorFile, path, self._model_version, max_tombstones=self._limits.max_tombstones)
        self._file = ReopenableFile(open_file, map_error=partial(map_file_error, "vectors", path), on_deleted=self._forget_file)
        self._version: int | None = None
        self._change_count = 0
        self._workspace_indexes: dict[int, WorkspaceIndex] = {}
        self._is_started = False
        self._loader_threads = ThreadPoolExecutor(_LOADER_THREADS, thread_name_prefix="vectors-load")
        self._query_threads = ThreadPoolExecutor(_QUERY_THREADS, thread_name_prefix="vectors-query")

    async def start(self) -> None:
        """Open the file now. Start to preload the largest workspaces, and to replace lists with deleted memories."""
        async with self._file.use():
            if not self._is_started:
                self._is_started = True
                self._start_task(self._run_in_background())

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        for task in (tasks := set(self._tasks)):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._workspace_indexes.clear()
        for pool in (self._loader_threads, self._query_threads):
            await asyncio.to_thread(pool.shutdown)
        await self._file.close()

    @property
    def loaded_rows(self) -> int:
        """Number of vector rows in memory or in lists."""
        return self.listed_rows + sum(index.state.segment.count for index in self._workspace_indexes.values())

    @property
    def listed_rows(self) -> int:
        """Number of these rows in lists."""
        return sum(index.state.listed_rows for index in self._workspace_indexes.values())

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        for item in items:
            validate_vectors(item.vectors, dimension=self._model_version.dimension)
        async with self._file.use() as file:
            await file.writer.submit(lambda connection: file.put(connection, items))

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._file.use() as file:
            await file.writer.submit(lambda connection: file.delete(connection, workspace_id, ids))
        await self._run(self._query_threads, partial(self._lists.remove_unused, workspace_id))

    async def erase(self) -> None:
        await self._run(self._loader_threads, self._lists.erase_stale)
        await self._run(self._loader_threads, lambda _: truncate_wal(self._path))

    async def count(self, workspace_id: int) -> int:
        return await self._run(self._query_threads, lambda file: file.count(workspace_id))

    async def is_ready(self, workspace_id: int) -> bool:
        index = self._get_index(workspace_id)
        if index.is_loaded:
            return True
        max_count = self._limits.max_exact_floats // self._model_version.dimension
        if index.build_task is None and not await self._run(self._query_threads, lambda file: file.has_more_than(workspace_id, max_count)):
            return True
        task = self._start_build(index)
        await asyncio.wait({task}, timeout=max(0.0, index.build_started_s + self._limits.max_warmup_s - time.monotonic()))
        return task.done()

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        validate_vectors([vector], dimension=self._model_version.dimension)
        query: Floats = np.frombuffer(vector, dtype="<f4")
        async with self._file.use() as file:
            index = await self._get_current_index(file, where.workspace_id)
            if index.is_fast(where):
                return index.search(query, where, limit=limit, helpers=None)
            search = partial(index.search, query, where, limit=limit, helpers=self._query_threads)
            return await asyncio.get_running_loop().run_in_executor(self._query_threads, search)

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        ids = tuple(ids)
        return await self._run(self._query_threads, lambda file: file.get_vectors(workspace_id, ids))

    async def drop_version(self, workspace_id: int, version: ModelVersion) -> None:
        last_change = (await self._run(self._loader_threads, VectorFile.get_bounds)).last
        after: int | None = 0
        while after is not None:
            async with self._file.use() as file:
                delete = partial(file.delete_version, workspace_id=workspace_id, version=version, after=after, last_change=last_change)
                after = await file.writer.submit(delete)
        await self._run(self._loader_threads, lambda _: IvfFolder(self._path, version).remove_files(workspace_id))
        index = self._workspace_indexes.pop(workspace_id, None) if version == self._model_version else None
        if index is not None and index.build_task is not None:
            index.build_task.cancel()

    async def _run(self, pool: ThreadPoolExecutor, work: Callable[[VectorFile], T]) -> T:
        """Return the result of *work*, called with the open file in a thread of *pool*."""
        async with self._file.use() as file:
            return await asyncio.get_running_loop().run_in_executor(pool, work, file)

    async def _run_in_background(self) -> None:
        with contextlib.suppress(EngineUnavailable):  # it appears in the first queries
            await self._preload()
        task = PeriodicTask(name="lists of vectors", interval_s=self._limits.list_check_interval_s, run=self._check_lists)
        await run_periodic_tasks([task])

    async def _preload(self) -> None:
        """Load what the first queries need. Errors appear in those queries."""
        remaining_bytes, large = _MAX_PRELOADED_BYTES, list[WorkspaceIndex]()
        for workspace_id, vectors in await self._run(self._loader_threads, lambda file: file.list_largest(limit=_MAX_PRELOADED_WORKSPACES)):
            if vectors * self._model_version.dimension > self._limits.max_exact_floats:
                large.append(self._get_index(workspace_id))
                continue
            remaining_bytes -= vectors * self._model_version.dimension * 4
            if remaining_bytes >= 0:
                await self._refresh(workspace_id)
        # One after the other, so that queries find free threads; first those whose lists need only to be opened.
        for index in sorted(large, key=lambda index: self._lists.get_newest_change(index.workspace_id) == 0):
            if not index.is_loaded:
                await asyncio.wait({self._start_build(index)})

    async def _check_lists(self) -> None:
        """Build lists that are due, and rebuild those that contain deleted memories for a day. Without queries nothing else would."""
        for workspace_id in self._lists.list_workspaces():
            await self._refresh(workspace_id)
        for index in tuple(self._workspace_indexes.values()):
            if index.needs_lists:
                self._start_build(index)

    async def _refresh(self, workspace_id: int) -> None:
        """Read the changes of a workspace without a query."""
        async with self._file.use() as file:
            await self._get_current_index(file, workspace_id)

    async def _get_current_index(self, file: VectorFile, workspace_id: int) -> WorkspaceIndex:
        """Return the workspace's index with all changes that were committed before this call."""
        version = file.get_version()
        if version != self._version:
            self._version, self._change_count = version, self._change_count + 1
        change_count = self._change_count
        index = self._get_index(workspace_id)
        while index.change_count < change_count or index.next_state is not None:
            if index.update_task is None:
                index.update_task = asyncio.create_task(self._update_index(file, index, self._change_count))
                index.update_task.add_done_callback(lambda task: task.cancelled() or task.exception())
            # One update for all waiting callers; a cancelled caller does not cancel it.
            await asyncio.shield(index.update_task)
        return index

    def _get_index(self, workspace_id: int) -> WorkspaceIndex:
        if workspace_id not in self._workspace_indexes:
            index = WorkspaceIndex(workspace_id, self._lists, dimension=self._model_version.dimension, limits=self._limits)
            self._workspace_indexes[workspace_id] = index
        return self._workspace_indexes[workspace_id]

    async def _update_index(self, file: VectorFile, index: WorkspaceIndex, change_count: int) -> None:
        state, index.next_state = index.next_state or index.state, None
        try:
            with self._file.hold():
                await asyncio.get_running_loop().run_in_executor(self._loader_threads, index.update, file, state)
            index.change_count = change_count
            if index.needs_lists:
                self._start_build(index)
        finally:
            index.update_task = None

    def _start_build(self, index: WorkspaceIndex) -> asyncio.Task[None]:
        """Return the running build of the workspace, or start it."""
        if index.build_task is None:
            index.build_started_s = time.monotonic()
            index.build_task = self._start_task(self._build_lists(index))
        return index.build_task

    async def _build_lists(self, index: WorkspaceIndex) -> None:
        """Load newer lists. Build them first if they are missing. Queries continue meanwhile. If that fails, read all vectors."""
        try:
            if not await self._load_lists(index):
                request = BuildRequest(self._path, index.workspace_id, self._model_version, known_change=index.state.listed_change)
                async with self._build_lock:
                    await run_build(request, poll_s=self._limits.build_poll_s)
                if not await self._load_lists(index):
                    index.next_build_s = time.monotonic() + self._limits.list_check_interval_s
            await self._refresh(index.workspace_id)
        finally:
            index.build_task = None

    async def _load_lists(self, index: WorkspaceIndex) -> bool:
        """Load newer lists than those in use, for the next query. Return False if there are no valid ones."""
        if self._lists.get_newest_change(index.workspace_id) <= index.state.listed_change:
            return False
        index.next_state = await self._run(self._loader_threads, index.load_lists)
        return index.next_state is not None

    def _start_task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Start a task that `close` cancels. Its errors appear in the next query."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    def _forget_file(self) -> None:
        self._workspace_indexes.clear()
        self._version = None
