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
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rookery.engines.vectors.ivf_build import BuildRequest, run_build
from rookery.engines.vectors.ivf_file import IvfFolder
from rookery.engines.vectors.search import Floats, IndexLimits, validate_vectors
from rookery.engines.vectors.vector_file import VectorFile
from rookery.engines.vectors.workspace_index import WorkspaceIndex
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.periodic import PeriodicTask, run_periodic_tasks
from rookery.kernel.sqlite import ReopenableFile, map_file_error
from rookery.kernel.wal import truncate_wal
from rookery.memory.models import EmbeddedDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion, VectorFeature
from rookery.memory.vector_filter import VectorFilter

T = TypeVar("T")

_LOADER_THREADS = 4
_MAX_PRELOADED_BYTES = 256 * 1024 * 1024
_MAX_PRELOADED_WORKSPACES = 64
"""Limits of preloading, which starts with the largest workspaces. 100,000 memories have 160 MB and take a second. A small workspace is read
by its first query in milliseconds."""

_QUERY_THREADS = (os.cpu_count() or 1) + 2


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
        self._file = ReopenableFile(self._open_file, map_error=partial(map_file_error, "vectors", path), on_deleted=self._forget_file)
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
        await self._run(self._query_threads, lambda file: self._remove_unused_lists(file, workspace_id))

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
                after = await file.writer.submit(
                    partial(file.delete_version, workspace_id=workspace_id, version=version, after=after, last_change=last_change)
                )
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
        await run_periodic_tasks(
            [PeriodicTask(name="lists of vectors", interval_s=self._limits.list_check_interval_s, run=self._check_lists)]
        )

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
                index.update_task.add_done_callback(_retrieve_exception)
            # One update for all waiting callers; a cancelled caller does not cancel it.
            await asyncio.shield(index.update_task)
        return index

    def _get_index(self, workspace_id: int) -> WorkspaceIndex:
        index = self._workspace_indexes.get(workspace_id)
        if index is None:
            index = self._workspace_indexes[workspace_id] = WorkspaceIndex(
                workspace_id, self._lists, dimension=self._model_version.dimension, limits=self._limits
            )
        return index

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
        """Load newer lists. Build them first if there are none. Queries continue meanwhile. If that fails, read all vectors."""
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
        task.add_done_callback(_retrieve_exception)
        return task

    def _remove_unused_lists(self, file: VectorFile, workspace_id: int) -> None:
        """Delete the lists of a workspace without vectors."""
        if not file.has_any(workspace_id):
            self._lists.remove_files(workspace_id, of_all_models=True)

    def _open_file(self) -> VectorFile:
        return VectorFile(self._path, self._model_version, max_tombstones=self._limits.max_tombstones)

    def _forget_file(self) -> None:
        self._workspace_indexes.clear()
        self._version = None


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a task without waiting callers. The error appears in the next query."""
    if not task.cancelled():
        task.exception()
