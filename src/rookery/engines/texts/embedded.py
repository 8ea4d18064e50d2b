"""
A full-text index in a SQLite file with FTS5: Porter stemmer, Unicode word boundaries, bm25 ranking.

Chinese, Japanese and Thai have no spaces. `kernel.tokenization.to_index_text` therefore indexes each pair of adjacent characters, and
queries are split in the same way.

bm25 counts word frequencies in the whole file, other workspaces included. A score therefore shows at most that others use the word. The
order within a workspace changes only for words that are rare in one and common in the other. Measured with `python -m benchmarks.engines`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rookery.engines.texts.fts_query import build_query
from rookery.engines.texts.text_file import TextFile
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.wal import truncate_wal
from rookery.memory.models import AccessFilter, IndexDocument, TextHit, TextQuery
from rookery.memory.ports import TextFeature

T = TypeVar("T")

_QUERY_TIMEOUT_S = 5.0
_QUERY_THREADS = (os.cpu_count() or 1) + 2
_REOPEN_TIMEOUT_S = 30.0


class EmbeddedTextIndex:
    """
    A `TextIndex` without a server. All calls come from one event loop.

    Deleting the file (with its -wal and -shm) empties the index, also while it is in use.
    """

    lacks = frozenset({TextFeature.SHARED_BY_HOSTS})

    def __init__(self, path: Path, *, timeout_s: float = _QUERY_TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._file: TextFile | None = None
        self._open_lock = asyncio.Lock()
        self._is_cache_enabled = False
        self._user_count = 0
        self._has_no_users = asyncio.Event()
        self._query_threads = ThreadPoolExecutor(_QUERY_THREADS, thread_name_prefix="texts-query")

    async def start(self) -> None:
        """Open the file now, and from now on keep the cache of a large store up to date."""
        self._is_cache_enabled = True
        async with self._use_file() as file:
            await asyncio.to_thread(file.start_cache)

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        file, self._file = self._file, None
        await asyncio.to_thread(self._close_all, file)

    async def setup(self) -> None:
        async with self._use_file():
            pass

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        async with self._use_file() as file:
            await file.writer.submit(lambda connection: file.put(connection, documents, is_only_newer=is_early), is_synced=not is_early)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._use_file() as file:
            await file.writer.submit(lambda connection: file.delete(connection, workspace_id, ids))

    async def count(self, workspace_id: int, *, query: TextQuery | None = None, access_filter: AccessFilter | None = None) -> int:
        fts_query = None if query is None or access_filter is None else build_query(query, access_filter)
        if query is not None and fts_query is None:
            return 0
        async with self._use_file() as file:
            if fts_query is None or access_filter is None:
                return await self._run_in_thread(lambda: file.count(workspace_id))
            return await self._run_in_thread(lambda: file.count_matches(fts_query, access_filter=access_filter, timeout_s=self._timeout_s))

    async def erase(self) -> None:
        async with self._use_file() as file:
            await asyncio.to_thread(file.erase)
            await asyncio.to_thread(truncate_wal, self._path)

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        fts_query = build_query(query, access_filter)
        if fts_query is None:
            return []
        async with self._use_file() as file:
            return await self._run_in_thread(
                lambda: file.search(fts_query, access_filter=access_filter, limit=limit, offset=offset, timeout_s=self._timeout_s)
            )

    async def is_cached(self) -> bool:
        """Return whether the cache of a large store contains all documents. Until then searches take longer."""
        async with self._use_file() as file:
            return await self._run_in_thread(lambda: file.is_cached)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._query_threads, work)

    @contextlib.asynccontextmanager
    async def _use_file(self) -> AsyncGenerator[TextFile]:
        """Yield the open file. Convert SQLite errors to `EngineUnavailable`."""
        try:
            file = self._file
            if file is None or not file.is_in_place:
                file = await self._open()
            self._user_count += 1
            try:
                yield file
            finally:
                self._user_count -= 1
                if self._user_count == 0:
                    self._has_no_users.set()
        except sqlite3.Error as error:
            raise self._map_error(error) from error

    async def _open(self) -> TextFile:
        async with self._open_lock:
            if self._file is not None and self._file.is_in_place:
                return self._file
            if self._file is not None:
                await self._close_deleted(self._file)
            file = TextFile(self._path)
            await asyncio.to_thread(file.open)
            if self._is_cache_enabled:
                await asyncio.to_thread(file.start_cache)
            self._file = file
            return file

    async def _close_deleted(self, file: TextFile) -> None:
        """Close a deleted file. SQLite must release it before a new file of the same name is opened."""
        try:
            async with asyncio.timeout(_REOPEN_TIMEOUT_S):
                while self._user_count:
                    self._has_no_users.clear()
                    await self._has_no_users.wait()
        except TimeoutError as error:
            raise EngineUnavailable("texts", f"{self._path.name} was deleted, and searches still use it") from error
        self._file = None
        await asyncio.to_thread(file.close)

    def _map_error(self, error: sqlite3.Error) -> EngineUnavailable:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return EngineUnavailable("texts", f"the query took longer than {self._timeout_s:g} s")
        if type(error) is not sqlite3.DatabaseError and "malformed" not in str(error):
            return EngineUnavailable("texts", f"{self._path.name}: {error}")
        reason = f"{self._path} is damaged ({error}): delete it, with its -wal and -shm, and run `rookery brain:reindex`"
        return EngineUnavailable("texts", reason)

    def _close_all(self, file: TextFile | None) -> None:
        self._query_threads.shutdown()
        if file is not None:
            file.close()
