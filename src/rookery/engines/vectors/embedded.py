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
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rookery.engines.vectors.ivf_build import BuildOutcome, BuildProcess, BuildRequest
from rookery.engines.vectors.ivf_file import IvfFolder
from rookery.engines.vectors.model_versions import delete_retired
from rookery.engines.vectors.search import Floats, HelperThreads
from rookery.engines.vectors.vector_file import VectorFile
from rookery.engines.vectors.workspace_index import MAX_DEAD_AGE_S, IndexLimits, WorkspaceIndex
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.wal import truncate_wal
from rookery.memory.models import EmbeddedDocument, Vector, VectorHit
from rookery.memory.ports import ModelVersion, OutdatedWorkspace, VectorFeature
from rookery.memory.vector_filter import AnyOf, VectorFilter

T = TypeVar("T")

_DELETE_BATCH_SIZE = 256
"""Vectors deleted per transaction; blocks other writers for a few milliseconds."""

_MAX_INLINE_IDS = 400
"""Memories whose vectors are scored on the event loop: 0.5 ms."""

_LOADER_THREADS = 4
_MAX_PRELOADED_BYTES = 256 * 1024 * 1024
_MAX_PRELOADED_WORKSPACES = 64
"""Limits of preloading, which starts with the largest workspaces. 100,000 memories have 160 MB and take a second. A small workspace is read
by its first query in milliseconds."""

_QUERY_THREADS = (os.cpu_count() or 1) + 2
_HELPER_THREADS = min(7, (os.cpu_count() or 1) - 1)
_REOPEN_TIMEOUT_S = 30.0


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
        self._build_process = BuildProcess()
        self._warmups: dict[int, tuple[float, asyncio.Task[None]]] = {}
        """Start time and task of the running warm-ups, by workspace."""
        self._file: VectorFile | None = None
        self._open_lock = asyncio.Lock()
        self._user_count = 0
        self._has_no_users = asyncio.Event()
        self._version: int | None = None
        self._change_count = 0
        self._workspace_indexes: dict[int, WorkspaceIndex] = {}
        self._preload_task: asyncio.Task[None] | None = None
        self._loader_threads = ThreadPoolExecutor(_LOADER_THREADS, thread_name_prefix="vectors-load")
        self._query_threads = ThreadPoolExecutor(_QUERY_THREADS, thread_name_prefix="vectors-query")
        self._helpers = (
            HelperThreads(pool=ThreadPoolExecutor(_HELPER_THREADS, thread_name_prefix="vectors-help"), size=_HELPER_THREADS)
            if _HELPER_THREADS
            else None
        )

    async def start(self) -> None:
        """Open the file now, and start to preload the largest workspaces."""
        async with self._use_file():
            if self._preload_task is None:
                self._preload_task = asyncio.create_task(self._preload())
                self._preload_task.add_done_callback(_retrieve_exception)

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        tasks = [
            self._preload_task,
            *(task for _, task in self._warmups.values()),
            *(index.build_task for index in self._workspace_indexes.values()),
        ]
        pending_tasks = [task for task in tasks if task is not None and not task.done()]
        for task in pending_tasks:
            task.cancel()
        await self._build_process.close()
        if pending_tasks:
            await asyncio.wait(pending_tasks)
        file, self._file = self._file, None
        self._workspace_indexes.clear()
        await asyncio.to_thread(self._close_all, file)

    @property
    def loaded_rows(self) -> int:
        """Number of vector rows in memory."""
        return sum(index.row_count for index in self._workspace_indexes.values())

    @property
    def listed_rows(self) -> int:
        """Number of these rows in lists."""
        return sum(index.listed_row_count for index in self._workspace_indexes.values())

    async def put(self, items: Sequence[EmbeddedDocument]) -> None:
        for item in items:
            self._validate_vectors(item.vectors)
        async with self._use_file() as file:
            await file.writer.submit(lambda connection: file.put(connection, items))

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._use_file() as file:
            await file.writer.submit(lambda connection: file.delete(connection, workspace_id, ids))
            await self._run_in_thread(self._query_threads, lambda: self._remove_unused_lists(file, workspace_id))

    async def erase(self) -> None:
        async with self._use_file() as file:
            await self._run_in_thread(self._loader_threads, lambda: self._lists.erase_stale(file))
            await asyncio.to_thread(truncate_wal, self._path)

    async def count(self, workspace_id: int) -> int:
        async with self._use_file() as file:
            return await self._run_in_thread(self._query_threads, lambda: file.count(workspace_id))

    async def is_ready(self, workspace_id: int) -> bool:
        index = self._workspace_indexes.get(workspace_id)
        if index is not None and index.is_loaded:
            return True
        if workspace_id not in self._warmups:
            max_count = self._limits.max_exact_floats // self._model_version.dimension
            async with self._use_file() as file:
                if not await self._run_in_thread(self._query_threads, lambda: file.has_more_than(workspace_id, max_count)):
                    return True
        started_s, task = self._start_warmup(workspace_id)
        await asyncio.wait({task}, timeout=max(0.0, started_s + self._limits.max_warmup_s - time.monotonic()))
        return task.done()

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        self._validate_vectors([vector])
        query: Floats = np.frombuffer(vector, dtype="<f4")
        async with self._use_file() as file:
            index = await self._get_current_index(file, where.workspace_id)
            if index.is_small or (index.is_in_memory and _selects_few(where)):
                return index.search(query, where, limit=limit, helpers=None)
            return await self._run_in_thread(self._query_threads, lambda: index.search(query, where, limit=limit, helpers=self._helpers))

    async def fetch(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        ids = tuple(ids)
        async with self._use_file() as file:
            return await self._run_in_thread(self._query_threads, lambda: file.get_vectors(workspace_id, ids))

    async def get_active_version(self, workspace_id: int) -> ModelVersion | None:
        async with self._use_file() as file:
            return file.get_active_version(workspace_id)

    async def list_outdated(self) -> list[OutdatedWorkspace]:
        async with self._use_file() as file:
            return await self._run_in_thread(self._loader_threads, file.list_outdated)

    async def activate(self, *, ignored_ids: Collection[str] = ()) -> int:
        async with self._use_file() as file:
            complete = await self._run_in_thread(self._loader_threads, lambda: file.list_complete(ignored_ids))
            switched_count = 0
            for activation in complete:
                switched_count += await file.writer.submit(partial(file.activate, activation=activation))
            return switched_count

    async def delete_retired(self) -> None:
        async with self._use_file() as file:
            after: int | None = 0
            while after is not None:
                after = await file.writer.submit(partial(delete_retired, after=after, limit=_DELETE_BATCH_SIZE))
            for workspace_id in await self._run_in_thread(self._loader_threads, self._lists.list_workspaces):
                if file.get_active_version(workspace_id) == self._model_version:
                    await self._run_in_thread(self._loader_threads, partial(self._lists.remove_files, workspace_id, of_other_models=True))
                await self._run_in_thread(self._query_threads, partial(self._remove_unused_lists, file, workspace_id))
                # Without queries nothing else would start a rebuild.
                if self._lists.is_old(workspace_id, max_age_s=MAX_DEAD_AGE_S):
                    self._start_build_if_due(await self._get_current_index(file, workspace_id))

    async def _preload(self) -> None:
        """Load what the first queries need. Errors appear in those queries."""
        async with self._use_file() as file:
            remaining_bytes, listed, unlisted = _MAX_PRELOADED_BYTES, list[int](), list[int]()
            for workspace_id, vectors in await self._run_in_thread(
                self._loader_threads, lambda: file.list_largest(limit=_MAX_PRELOADED_WORKSPACES)
            ):
                if vectors * self._model_version.dimension > self._limits.max_exact_floats:
                    (listed if self._lists.get_newest_change(workspace_id) else unlisted).append(workspace_id)
                    continue
                remaining_bytes -= vectors * self._model_version.dimension * 4
                if remaining_bytes >= 0:
                    await self._get_current_index(file, workspace_id)
        for workspace_id in (*listed, *unlisted):
            await asyncio.wait({self._start_warmup(workspace_id)[1]})

    def _start_warmup(self, workspace_id: int) -> tuple[float, asyncio.Task[None]]:
        """Return the running warm-up of the workspace, or start it. Its errors appear in the next query."""
        if workspace_id not in self._warmups:
            task = asyncio.create_task(self._warm_up(workspace_id))
            self._warmups[workspace_id] = (time.monotonic(), task)
            task.add_done_callback(_retrieve_exception)
            task.add_done_callback(lambda _: self._warmups.pop(workspace_id))
        return self._warmups[workspace_id]

    async def _warm_up(self, workspace_id: int) -> None:
        """Open a large workspace's lists. Build them first if they are missing. If that fails, read all of its vectors."""
        if not await self._open_lists(workspace_id):
            request = self._build_request(workspace_id, known_change=0)
            outcome = await self._build_process.run(request)
            while outcome is BuildOutcome.ELSEWHERE:
                await asyncio.sleep(self._limits.build_poll_s)
                outcome = await self._build_process.run(request)
            await self._open_lists(workspace_id)
        async with self._use_file() as file:
            await self._get_current_index(file, workspace_id)

    async def _open_lists(self, workspace_id: int) -> bool:
        """Load the newest lists for the next query. Return False if there are no valid ones."""
        async with self._use_file() as file:
            index = self._get_index(workspace_id)
            is_loaded = await self._run_in_thread(self._loader_threads, lambda: index.load_lists(file))
            if is_loaded:
                index.change_count = -1
            return is_loaded

    def _validate_vectors(self, vectors: Sequence[Vector]) -> None:
        if not vectors:
            raise ValueError("a memory needs at least one vector")
        for vector in vectors:
            if len(vector) != self._model_version.dimension * 4:
                raise ValueError(f"a vector has {len(vector)} bytes instead of {self._model_version.dimension} floats of 4 bytes")
        if not np.isfinite(np.frombuffer(b"".join(vectors), dtype="<f4")).all():
            raise ValueError("a vector contains a number that is not finite")

    async def _run_in_thread(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _get_current_index(self, file: VectorFile, workspace_id: int) -> WorkspaceIndex:
        """Return the workspace's index with all changes that were committed before this call."""
        version = file.get_version()
        if version != self._version:
            self._version, self._change_count = version, self._change_count + 1
        change_count = self._change_count
        index = self._get_index(workspace_id)
        while index.change_count < change_count:
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
        self._user_count += 1
        try:
            await self._run_in_thread(self._loader_threads, lambda: index.update(file))
            index.change_count = change_count
            self._start_build_if_due(index)
        finally:
            index.update_task = None
            self._release_file()

    def _start_build_if_due(self, index: WorkspaceIndex) -> None:
        if index.build_task is None and index.needs_lists:
            index.build_task = asyncio.create_task(self._build_lists(index))
            index.build_task.add_done_callback(_retrieve_exception)

    async def _build_lists(self, index: WorkspaceIndex) -> None:
        """Build lists, or find those of another process, and load them. Queries continue meanwhile."""
        try:
            if self._lists.get_newest_change(index.workspace_id) <= index.lists_last_change:
                await self._build_process.run(self._build_request(index.workspace_id, known_change=index.lists_last_change))
            if self._lists.get_newest_change(index.workspace_id) <= index.lists_last_change:
                await asyncio.sleep(self._limits.build_retry_s)
            if self._lists.get_newest_change(index.workspace_id) > index.lists_last_change and await self._open_lists(index.workspace_id):
                async with self._use_file() as file:
                    await self._get_current_index(file, index.workspace_id)
        finally:
            index.build_task = None

    def _remove_unused_lists(self, file: VectorFile, workspace_id: int) -> None:
        """Delete the lists of a workspace without vectors."""
        if workspace_id in self._lists.list_workspaces() and not file.has_any(workspace_id):
            self._lists.remove_files(workspace_id)

    def _build_request(self, workspace_id: int, *, known_change: int) -> BuildRequest:
        return BuildRequest(
            database=self._path,
            workspace_id=workspace_id,
            model_version=self._model_version,
            known_change=known_change,
        )

    @contextlib.asynccontextmanager
    async def _use_file(self) -> AsyncGenerator[VectorFile]:
        """Yield the open file. Convert SQLite errors to `EngineUnavailable`."""
        try:
            file = self._file
            if file is None or not file.is_in_place:
                file = await self._open()
            self._user_count += 1
            try:
                yield file
            finally:
                self._release_file()
        except sqlite3.Error as error:
            raise self._map_error(error) from error

    def _release_file(self) -> None:
        self._user_count -= 1
        if self._user_count == 0:
            self._has_no_users.set()

    async def _open(self) -> VectorFile:
        async with self._open_lock:
            if self._file is not None and self._file.is_in_place:
                return self._file
            if self._file is not None:
                await self._close_deleted(self._file)
            file = VectorFile(
                self._path,
                model=self._model_version.model,
                dimension=self._model_version.dimension,
                max_tombstones=self._limits.max_tombstones,
            )
            await asyncio.to_thread(file.open)
            self._file = file
            return file

    async def _close_deleted(self, file: VectorFile) -> None:
        """Close a deleted file. SQLite must release it before a new file of the same name is opened."""
        try:
            async with asyncio.timeout(_REOPEN_TIMEOUT_S):
                while self._user_count:
                    self._has_no_users.clear()
                    await self._has_no_users.wait()
        except TimeoutError as error:
            raise EngineUnavailable("vectors", f"{self._path.name} was deleted, and queries still use it") from error
        self._file = None
        self._workspace_indexes.clear()
        self._version = None
        await asyncio.to_thread(file.close)

    def _map_error(self, error: sqlite3.Error) -> EngineUnavailable:
        if type(error) is not sqlite3.DatabaseError and "malformed" not in str(error):
            return EngineUnavailable("vectors", f"{self._path.name}: {error}")
        reason = f"{self._path} is damaged ({error}): delete it, with its -wal and -shm, and run `rookery brain:reindex`"
        return EngineUnavailable("vectors", reason)

    def _close_all(self, file: VectorFile | None) -> None:
        self._loader_threads.shutdown()
        self._query_threads.shutdown()
        if self._helpers is not None:
            self._helpers.pool.shutdown()
        if file is not None:
            file.close()


def _selects_few(where: VectorFilter) -> bool:
    """Return whether *where* names so few memories that a search takes less time than the change to another thread."""
    condition = where.required.get("memory_id")
    return isinstance(condition, AnyOf) and len(condition.values) <= _MAX_INLINE_IDS


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a task without waiting callers. The error appears in the next query."""
    if not task.cancelled():
        task.exception()
