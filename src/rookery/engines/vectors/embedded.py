"""
Search over the rows of a SQLite file: exact, in memory, in a small workspace; in a large one by lists, and exact in what is new.

The file is the index; what is in memory follows its change counter, so any number of processes may write it and each sees
the others' commits at its next query. The lists are a cache beside it, built by a process of its own and mapped (see `sealed`).
Filters never widen the answer, nor thin it: who sees little has all of it scored.
Measured with `python -m benchmarks.engines` and `python -m benchmarks.large_store`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from rookery.engines.vectors.blocks import Floats
from rookery.engines.vectors.building import Order
from rookery.engines.vectors.builds import Builds, Built
from rookery.engines.vectors.comparing import Copied
from rookery.engines.vectors.copies import Copy
from rookery.engines.vectors.erasing import forget_lists
from rookery.engines.vectors.file import Part, VectorFile
from rookery.engines.vectors.generations import clear
from rookery.engines.vectors.openings import Openings
from rookery.engines.vectors.sealed import remove, there, workspaces
from rookery.engines.vectors.shelves import EXACT_FLOATS, Shelf, are_old
from rookery.engines.vectors.views import Crew
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.wiping import empty_log
from rookery.memory.models import Near, Vector, Vectored, Within
from rookery.memory.ports import Behind, Generation

T = TypeVar("T")

_CLEARED = 256
"""Vectors cleared away in a transaction: a few milliseconds, in which others wait to write."""

_LOADERS = 4
_PRELOADED_BYTES = 256 * 1024 * 1024
_PRELOADED_SPACES = 64
"""
So much is read ahead of the first questions, the largest workspaces first: 100,000 memories are 160 MB and take a second;
a small workspace is read by its first question in milliseconds.
"""

_QUERIES = (os.cpu_count() or 1) + 2
_HELPERS = min(7, (os.cpu_count() or 1) - 1)
_REOPEN_S = 30.0
_LOOK_AGAIN_S = 1.0
"""While another process builds."""

_NEXT_TRY_S = 60.0
"""After a build that failed, or that another process is at."""


class EmbeddedVectors:
    """
    The `VectorIndex` that needs no server. All of it runs on one event loop.

    Deleting the file (with its -wal and -shm) empties the index, also while it is in use. The folder of lists may be deleted at any
    time; those of a large workspace are then built anew.
    """

    def __init__(self, path: Path, *, model: str, dimension: int) -> None:
        self._path = path
        self._model = model
        self._dimension = dimension
        self._generation = Generation(model=model, dimension=dimension)
        self._lists = path.with_suffix(".lists")
        self._builds = Builds()
        self._openings = Openings(self._get_ready)
        self._file: VectorFile | None = None
        self._opening = asyncio.Lock()
        self._users = 0
        self._unused = asyncio.Event()
        self._version: int | None = None
        self._age = 0
        self._shelves: dict[int, Shelf] = {}
        self._preloading: asyncio.Task[None] | None = None
        self._loaders = ThreadPoolExecutor(_LOADERS, thread_name_prefix="vectors-load")
        self._queries = ThreadPoolExecutor(_QUERIES, thread_name_prefix="vectors-query")
        self._crew = Crew(pool=ThreadPoolExecutor(_HELPERS, thread_name_prefix="vectors-help"), size=_HELPERS) if _HELPERS else None

    async def start(self) -> None:
        """Open the file now rather than at the first use, and begin to read the largest workspaces."""
        async with self._using():
            if self._preloading is None:
                self._preloading = asyncio.create_task(self._preload())
                self._preloading.add_done_callback(_hear)

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        tasks = [self._preloading, *self._openings.cancel(), *(shelf.building for shelf in self._shelves.values())]
        waiting = [task for task in tasks if task is not None and not task.done()]
        for task in waiting:
            task.cancel()
        await self._builds.close()
        if waiting:
            await asyncio.wait(waiting)
        file, self._file = self._file, None
        self._shelves.clear()
        await asyncio.to_thread(self._shut, file)

    @property
    def loaded_rows(self) -> int:
        """How many rows of vectors are in memory."""
        return sum(shelf.rows for shelf in self._shelves.values())

    @property
    def listed_rows(self) -> int:
        """How many of them are in lists."""
        return sum(shelf.listed_rows for shelf in self._shelves.values())

    async def put(self, items: Sequence[Vectored]) -> None:
        for item in items:
            self._check(item.vectors)
        async with self._using() as file:
            await file.writer.submit(lambda connection: file.put(connection, items))

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._using() as file:
            await file.writer.submit(lambda connection: file.drop(connection, workspace_id, ids))
            await self._in(self._queries, lambda: self._forget(file, workspace_id))

    async def erase(self) -> None:
        async with self._using() as file:
            await self._in(self._loaders, lambda: forget_lists(file, self._lists, self._generation))
            await asyncio.to_thread(empty_log, self._path)

    async def count(self, workspace_id: int) -> int:
        async with self._using() as file:
            return await self._in(self._queries, lambda: file.count(workspace_id))

    async def is_ready(self, workspace_id: int) -> bool:
        shelf = self._shelves.get(workspace_id)
        if shelf is not None and shelf.is_begun:
            return True
        if workspace_id not in self._openings:
            most = EXACT_FLOATS // self._dimension
            async with self._using() as file:
                if not await self._in(self._queries, lambda: file.has_over(workspace_id, most)):
                    return True
        return await self._openings.wait(workspace_id)

    async def near(self, vector: Vector, *, within: Within, limit: int) -> list[Near]:
        self._check([vector])
        query: Floats = np.frombuffer(vector, dtype="<f4")
        async with self._using() as file:
            shelf = await self._current(file, within.workspace_id)
            view = shelf.glance(within)
            if view is not None:
                return view.nearest(query, limit=limit, crew=None)
            return await self._in(self._queries, lambda: shelf.view(within).nearest(query, limit=limit, crew=self._crew))

    async def similarities(self, vector: Vector, *, workspace_id: int, ids: Collection[str]) -> Mapping[str, float]:
        self._check([vector])
        query: Floats = np.frombuffer(vector, dtype="<f4")
        ids = tuple(ids)
        async with self._using() as file:
            shelf = await self._current(file, workspace_id)
            return await self._in(self._queries, lambda: shelf.similarities(query, ids))

    async def stored(self, workspace_id: int, ids: Collection[str]) -> Mapping[str, tuple[Vector, ...]]:
        ids = tuple(ids)
        async with self._using() as file:
            return await self._in(self._queries, lambda: file.stored(workspace_id, ids))

    @contextlib.asynccontextmanager
    async def comparing(self, workspace_id: int, *, org: str | None = None, project: str | None = None) -> AsyncGenerator[Copied]:
        copied = Copied(Copy(self._path.parent, dimension=self._dimension), dimension=self._dimension, pool=self._queries)
        try:
            async with self._using() as file:
                await copied.fill(file, Part(workspace_id=workspace_id, org=org, project=project))
            yield copied
        finally:
            await copied.close()

    async def serving(self, workspace_id: int) -> Generation | None:
        async with self._using() as file:
            return file.serving(workspace_id)

    async def behind(self) -> list[Behind]:
        async with self._using() as file:
            return await self._in(self._loaders, file.behind)

    async def switch(self, *, without: Collection[str] = ()) -> int:
        async with self._using() as file:
            complete = await self._in(self._loaders, lambda: file.complete(without))
            switched = 0
            for due in complete:
                switched += await file.writer.submit(partial(file.switch, due=due))
            return switched

    async def clear(self) -> None:
        async with self._using() as file:
            after: int | None = 0
            while after is not None:
                after = await file.writer.submit(partial(clear, after=after, limit=_CLEARED))
            for workspace_id in await self._in(self._loaders, lambda: workspaces(self._lists)):
                if file.serving(workspace_id) == self._generation:
                    await self._in(self._loaders, partial(remove, self._lists, workspace_id=workspace_id, but=self._generation))
                await self._in(self._queries, partial(self._forget, file, workspace_id))
                # Without questions nobody else would see that it is time to build them anew.
                if await self._in(self._queries, partial(are_old, self._lists, workspace_id=workspace_id, generation=self._generation)):
                    self._tend(await self._current(file, workspace_id))

    async def _preload(self) -> None:
        """Read what the first questions will need; what fails here, they meet themselves."""
        async with self._using() as file:
            left, listed, unlisted = _PRELOADED_BYTES, list[int](), list[int]()
            for workspace_id, vectors in await self._in(self._loaders, lambda: file.largest(limit=_PRELOADED_SPACES)):
                if vectors * self._dimension > EXACT_FLOATS:
                    (listed if self._newest(workspace_id) else unlisted).append(workspace_id)
                    continue
                left -= vectors * self._dimension * 4
                if left >= 0:
                    await self._current(file, workspace_id)
        for workspace_id in (*listed, *unlisted):
            await self._openings.end(workspace_id)

    async def _get_ready(self, workspace_id: int) -> None:
        """Open a large workspace's lists, which are built first if there are none; only if they cannot be, read all of it."""
        if not await self._take_lists(workspace_id):
            order = self._order(workspace_id, known=0)
            built = await self._builds.make(order)
            while built is Built.ELSEWHERE:
                await asyncio.sleep(_LOOK_AGAIN_S)
                built = await self._builds.make(order)
            await self._take_lists(workspace_id)
        async with self._using() as file:
            await self._current(file, workspace_id)

    async def _take_lists(self, workspace_id: int) -> bool:
        """Have the newest lists taken in by the next question; false: there are none that can be believed."""
        async with self._using() as file:
            shelf = self._shelf(workspace_id)
            is_taken = await self._in(self._loaders, lambda: shelf.take_lists(file))
            if is_taken:
                shelf.age = -1
            return is_taken

    def _check(self, vectors: Sequence[Vector]) -> None:
        if not vectors:
            raise ValueError("a memory has at least one vector")
        for vector in vectors:
            if len(vector) != self._dimension * 4:
                raise ValueError(f"a vector of {len(vector)} bytes, not {self._dimension} floats of 4")
        if not np.isfinite(np.frombuffer(b"".join(vectors), dtype="<f4")).all():
            raise ValueError("a vector with a number that is not finite")

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _current(self, file: VectorFile, workspace_id: int) -> Shelf:
        """Return the workspace's shelf once it holds all that was committed before this call."""
        version = file.version()
        if version != self._version:
            self._version, self._age = version, self._age + 1
        age = self._age
        shelf = self._shelf(workspace_id)
        while shelf.age < age:
            if shelf.following is None:
                shelf.following = asyncio.create_task(self._follow(file, shelf, self._age))
                shelf.following.add_done_callback(_hear)
            # One reads for all who wait; that one of them gives up must not stop it for the others.
            await asyncio.shield(shelf.following)
        return shelf

    def _shelf(self, workspace_id: int) -> Shelf:
        shelf = self._shelves.get(workspace_id)
        if shelf is None:
            shelf = self._shelves[workspace_id] = Shelf(workspace_id, self._generation, self._lists)
        return shelf

    async def _follow(self, file: VectorFile, shelf: Shelf, age: int) -> None:
        self._users += 1
        try:
            await self._in(self._loaders, lambda: shelf.follow(file))
            shelf.age = age
            self._tend(shelf)
        finally:
            shelf.following = None
            self._leave()

    def _tend(self, shelf: Shelf) -> None:
        if shelf.building is None and shelf.wants_lists:
            shelf.building = asyncio.create_task(self._list(shelf))
            shelf.building.add_done_callback(_hear)

    async def _list(self, shelf: Shelf) -> None:
        """Have lists built, or find them built by another process, and have them taken in beside the queries that go on."""
        try:
            if self._newest(shelf.workspace_id) <= shelf.listed:
                await self._builds.make(self._order(shelf.workspace_id, known=shelf.listed))
            if self._newest(shelf.workspace_id) <= shelf.listed:
                await asyncio.sleep(_NEXT_TRY_S)
            if self._newest(shelf.workspace_id) > shelf.listed and await self._take_lists(shelf.workspace_id):
                async with self._using() as file:
                    await self._current(file, shelf.workspace_id)
        finally:
            shelf.building = None

    def _forget(self, file: VectorFile, workspace_id: int) -> None:
        """Delete the lists of a workspace of which nothing is left."""
        if workspace_id in workspaces(self._lists) and not file.has_any(workspace_id):
            remove(self._lists, workspace_id=workspace_id)

    def _newest(self, workspace_id: int) -> int:
        """Return up to which change the newest lists know; 0: there are none."""
        found = there(self._lists, workspace_id=workspace_id, generation=self._generation)
        return found[0][0] if found else 0

    def _order(self, workspace_id: int, *, known: int) -> Order:
        return Order(database=self._path, folder=self._lists, workspace_id=workspace_id, generation=self._generation, known=known)

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncGenerator[VectorFile]:
        """Lend the file, and turn what SQLite complains of into the port's error."""
        try:
            file = self._file
            if file is None or not file.is_in_place:
                file = await self._open()
            self._users += 1
            try:
                yield file
            finally:
                self._leave()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._unused.set()

    async def _open(self) -> VectorFile:
        async with self._opening:
            if self._file is not None and self._file.is_in_place:
                return self._file
            if self._file is not None:
                await self._forsake(self._file)
            file = VectorFile(self._path, model=self._model, dimension=self._dimension)
            await asyncio.to_thread(file.open)
            self._file = file
            return file

    async def _forsake(self, file: VectorFile) -> None:
        """Close a file that was deleted. SQLite must have left it before a new one of that name is opened."""
        try:
            async with asyncio.timeout(_REOPEN_S):
                while self._users:
                    self._unused.clear()
                    await self._unused.wait()
        except TimeoutError as error:
            raise EngineUnavailable("vectors", f"{self._path.name} was deleted while in use, and its users do not end") from error
        self._file = None
        self._shelves.clear()
        self._version = None
        await asyncio.to_thread(file.close)

    def _unavailable(self, error: sqlite3.Error) -> EngineUnavailable:
        if type(error) is not sqlite3.DatabaseError and "malformed" not in str(error):
            return EngineUnavailable("vectors", f"{self._path.name}: {error}")
        reason = f"{self._path} is damaged ({error}): delete it, with its -wal and -shm, and run `rookery brain:reindex`"
        return EngineUnavailable("vectors", reason)

    def _shut(self, file: VectorFile | None) -> None:
        self._loaders.shutdown()
        self._queries.shutdown()
        if self._crew is not None:
            self._crew.pool.shutdown()
        if file is not None:
            file.close()


def _hear(task: asyncio.Task[None]) -> None:
    """Take note of a failure that nobody waits for any more: the next query will meet it itself."""
    if not task.cancelled():
        task.exception()
