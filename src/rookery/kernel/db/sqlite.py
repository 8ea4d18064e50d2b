"""The record store on SQLite: reads on the loop or in threads, writes by one thread with shared commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from rookery.kernel.db.rows import Row, Value
from rookery.kernel.db.statements import Compiled, Compiler, Statement
from rookery.kernel.db.transaction import COMPLETION, Tx
from rookery.kernel.errors import Conflict, EngineUnavailable, StorageFull
from rookery.kernel.sqlite import Writer, connect

T = TypeVar("T")

_READERS = 4
_READ_DEADLINE_S = 30.0


class SqliteTx:
    """A transaction on the raw driver."""

    __slots__ = ("_compile", "_connection", "_last", "callbacks")

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, connection: sqlite3.Connection, compiler: Compiler) -> None:
        self._connection = connection
        self._compile = compiler
        self._last: dict[Callable[[Tx, list[object]], None], list[object]] = {}
        self.callbacks: list[Callable[[], None]] = []

    def all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        params = params or {}
        compiled = self._compile(statement, params)
        cursor = self._connection.execute(*compiled.bind(params))
        rows: list[tuple[object, ...]] = cursor.fetchall()
        if not rows:
            return []
        index = _index(compiled, cursor)
        return [Row(row, index) for row in rows]

    def one(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> Row | None:
        params = params or {}
        compiled = self._compile(statement, params)
        cursor = self._connection.execute(*compiled.bind(params))
        rows: list[tuple[object, ...]] = cursor.fetchall()
        return Row(rows[0], _index(compiled, cursor)) if rows else None

    def run(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
        params = params or {}
        return self._connection.execute(*self._compile(statement, params).bind(params)).rowcount

    def many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        if not params:
            return 0
        compiled = self._compile(statement, params[0])
        pieces = compiled.pieces(params)
        if pieces is None:
            return self._connection.executemany(compiled.sql, [compiled.bind(each)[1] for each in params]).rowcount
        return sum(self._connection.execute(*piece).rowcount for piece in pieces)

    def at_end(self, work: Callable[[Tx, list[object]], None], item: object) -> None:
        self._last.setdefault(work, []).append(item)

    def after_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def finish(self) -> None:
        """Do what was to be done last."""
        for work, items in self._last.items():
            work(self, items)


class SqliteDatabase:
    """`Database` on one file, shared with other processes of this host."""

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._compiler = Compiler()
        self._writer = Writer(lambda: connect(path), name="records")
        self._readers: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._opened: list[sqlite3.Connection] = []
        self._on_loop: SqliteTx | None = None

    async def write(self, work: Callable[[Tx], T]) -> T:
        callbacks: list[Callable[[], None]] = []
        complete = COMPLETION.get()

        def piece(connection: sqlite3.Connection) -> T:
            tx = SqliteTx(connection, self._compiler)
            tx.callbacks = callbacks
            result = work(tx)
            tx.finish()
            if complete is not None:
                complete(tx, result)
            return result

        def committed() -> None:
            for callback in callbacks:
                callback()

        try:
            return await self._writer.submit(piece, committed=committed)
        except sqlite3.Error as error:
            _translate(error)

    async def read(self, work: Callable[[Tx], T]) -> T:
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="records-read")
        reading = asyncio.get_running_loop().run_in_executor(self._readers, self._read_in_thread, work)
        try:
            async with asyncio.timeout(_READ_DEADLINE_S):
                return await reading
        except TimeoutError as error:
            reason = f"a read took longer than {_READ_DEADLINE_S:.0f} s"
            raise EngineUnavailable("database", reason) from error
        except sqlite3.Error as error:
            _translate(error)

    async def quick(self, work: Callable[[Tx], T]) -> T:
        try:
            if self._on_loop is None:
                self._on_loop = SqliteTx(self._open(), self._compiler)
            return work(self._on_loop)
        except sqlite3.Error as error:
            _translate(error)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        if self._readers is not None:
            self._readers.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            opened, self._opened = self._opened, []
        self._on_loop = None
        for connection in opened:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._path, read_only=True)
        with self._lock:
            self._opened.append(connection)
        return connection

    def _read_in_thread(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._open()
        connection.execute("BEGIN")
        try:
            return work(SqliteTx(connection, self._compiler))
        finally:
            connection.execute("ROLLBACK")


def _index(compiled: Compiled, cursor: sqlite3.Cursor) -> Mapping[str, int]:
    if compiled.index is None:
        compiled.index = {column[0]: place for place, column in enumerate(cursor.description)}
    return compiled.index


def _translate(error: sqlite3.Error) -> NoReturn:
    if isinstance(error, sqlite3.IntegrityError):
        msg = "Something of the same name exists already."
        raise Conflict(msg) from error
    if "disk is full" in str(error):
        msg = "The disk that holds the data folder is full: free some space, then try again."
        raise StorageFull(msg) from error
    is_damaged = getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
    if is_damaged or "malformed" in str(error):
        advice = "the file records.db is damaged: restore a backup with `rookery restore`"
        raise EngineUnavailable("database", f"{error}; {advice}") from error
    is_ours = "syntax error" in str(error) or "no such column" in str(error)
    if isinstance(error, sqlite3.OperationalError) and not is_ours:
        raise EngineUnavailable("database", str(error)) from error
    raise error
