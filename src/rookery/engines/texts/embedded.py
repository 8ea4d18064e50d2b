"""
Full text in a SQLite file, by FTS5: Porter's stemmer over words as Unicode separates them, ranked by bm25.

Chinese, Japanese and Thai write no spaces, so `kernel.words.indexed` gives FTS5 each two of their letters that stand side
by side, and `memory.words` asks for these. How rare a word is, bm25 takes from the whole file, other workspaces included:
nothing of them can be read from a score but that they use the word, and an order within one workspace changes only where
words are rare in the one and common in the other. Measured with `python -m benchmarks.engines`.
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

from rookery.engines.texts.file import TextFile
from rookery.engines.texts.grammar import ask
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.wiping import empty_log
from rookery.memory.models import Document, Matched, Within, Words

T = TypeVar("T")

_DEADLINE_S = 5.0
_QUERIES = (os.cpu_count() or 1) + 2
_REOPEN_S = 30.0


class EmbeddedTexts:
    """
    The `TextIndex` that needs no server. All of it runs on one event loop.

    Deleting the file (with its -wal and -shm) empties the index, also while it is in use.
    """

    def __init__(self, path: Path, *, deadline_s: float = _DEADLINE_S) -> None:
        self._path = path
        self._deadline_s = deadline_s
        self._file: TextFile | None = None
        self._opening = asyncio.Lock()
        self._keeps_cache = False
        self._users = 0
        self._unused = asyncio.Event()
        self._queries = ThreadPoolExecutor(_QUERIES, thread_name_prefix="texts-query")

    async def start(self) -> None:
        """Open the file now rather than at the first use, and keep the cache of a large one up to date from then on."""
        self._keeps_cache = True
        async with self._using() as file:
            await asyncio.to_thread(file.keep_cache)

    async def close(self) -> None:
        """Finish writes, then close the file and the threads."""
        file, self._file = self._file, None
        await asyncio.to_thread(self._shut, file)

    async def setup(self) -> None:
        async with self._using():
            pass

    async def put(self, documents: Sequence[Document]) -> None:
        async with self._using() as file:
            await file.writer.submit(lambda connection: file.put(connection, documents))

    async def offer(self, documents: Sequence[Document]) -> None:
        async with self._using() as file:
            await file.writer.submit(lambda connection: file.put(connection, documents, only_newer=True), is_synced=False)

    async def drop(self, workspace_id: int, ids: Collection[str]) -> None:
        ids = tuple(ids)
        async with self._using() as file:
            await file.writer.submit(lambda connection: file.drop(connection, workspace_id, ids))

    async def count(self, workspace_id: int) -> int:
        async with self._using() as file:
            return await self._in_thread(lambda: file.count(workspace_id))

    async def erase(self) -> None:
        async with self._using() as file:
            await asyncio.to_thread(file.erase)
            await asyncio.to_thread(empty_log, self._path)

    async def match(self, words: Words, *, within: Within, limit: int, offset: int = 0) -> list[Matched]:
        asked = ask(words, within)
        if asked is None:
            return []
        async with self._using() as file:
            return await self._in_thread(lambda: file.match(asked, within=within, limit=limit, offset=offset, deadline_s=self._deadline_s))

    async def total(self, words: Words, *, within: Within) -> int:
        asked = ask(words, within)
        if asked is None:
            return 0
        async with self._using() as file:
            return await self._in_thread(lambda: file.total(asked, within=within, deadline_s=self._deadline_s))

    async def is_cached(self) -> bool:
        """Return whether the cache of a large store has all that was put: until then questions take longer."""
        async with self._using() as file:
            return await self._in_thread(lambda: file.is_cached)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._queries, work)

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncGenerator[TextFile]:
        """Lend the file, and turn what SQLite complains of into the port's error."""
        try:
            file = self._file
            if file is None or not file.is_in_place:
                file = await self._open()
            self._users += 1
            try:
                yield file
            finally:
                self._users -= 1
                if self._users == 0:
                    self._unused.set()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    async def _open(self) -> TextFile:
        async with self._opening:
            if self._file is not None and self._file.is_in_place:
                return self._file
            if self._file is not None:
                await self._forsake(self._file)
            file = TextFile(self._path)
            await asyncio.to_thread(file.open)
            if self._keeps_cache:
                await asyncio.to_thread(file.keep_cache)
            self._file = file
            return file

    async def _forsake(self, file: TextFile) -> None:
        """Close a file that was deleted. SQLite must have left it before a new one of that name is opened."""
        try:
            async with asyncio.timeout(_REOPEN_S):
                while self._users:
                    self._unused.clear()
                    await self._unused.wait()
        except TimeoutError as error:
            raise EngineUnavailable("texts", f"{self._path.name} was deleted while in use, and its users do not end") from error
        self._file = None
        await asyncio.to_thread(file.close)

    def _unavailable(self, error: sqlite3.Error) -> EngineUnavailable:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            return EngineUnavailable("texts", f"the query took longer than {self._deadline_s:g} s")
        if type(error) is not sqlite3.DatabaseError and "malformed" not in str(error):
            return EngineUnavailable("texts", f"{self._path.name}: {error}")
        reason = f"{self._path} is damaged ({error}): delete it, with its -wal and -shm, and run `rookery brain:reindex`"
        return EngineUnavailable("texts", reason)

    def _shut(self, file: TextFile | None) -> None:
        self._queries.shutdown()
        if file is not None:
            file.close()
