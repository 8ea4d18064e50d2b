"""The record store on SQLite: reads on the event loop or in threads, writes by one thread with shared commits."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NoReturn, TypeVar

from rookery.kernel.db.statements import CompiledStatement, Row, Statement, Value, compile_statement
from rookery.kernel.db.transaction import Tx, TxCallbacks, get_transaction_hook
from rookery.kernel.errors import Conflict, EngineUnavailable, StorageFull
from rookery.kernel.sqlite import SqliteWriter, connect

T = TypeVar("T")

_READER_THREADS = 4
_READ_TIMEOUT_S = 30.0
_PROGRESS_STEPS = 100_000
"""Steps of SQLite's virtual machine between two checks whether a read must end, about a millisecond."""


class SqliteTx(TxCallbacks):
    """A `Tx` on a connection of the sqlite3 driver."""

    __slots__ = ("_connection",)

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__()
        self._connection = connection

    def fetch_all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        params = params or {}
        compiled = compile_statement(statement, params)
        cursor = self._connection.execute(*compiled.bind(params))
        rows: list[tuple[object, ...]] = cursor.fetchall()
        if not rows:
            return []
        index = _column_index(compiled, cursor)
        return [Row(row, index) for row in rows]

    def fetch_one(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> Row | None:
        params = params or {}
        compiled = compile_statement(statement, params)
        cursor = self._connection.execute(*compiled.bind(params))
        rows: list[tuple[object, ...]] = cursor.fetchall()
        return Row(rows[0], _column_index(compiled, cursor)) if rows else None

    def execute(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
        params = params or {}
        return self._connection.execute(*compile_statement(statement, params).bind(params)).rowcount

    def execute_many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        if not params:
            return 0
        compiled = compile_statement(statement, params[0])
        pieces = compiled.split_inserts(params)
        if pieces is None:
            return self._connection.executemany(compiled.sql, [compiled.bind(values)[1] for values in params]).rowcount
        return sum(self._connection.execute(*piece).rowcount for piece in pieces)


class SqliteDatabase:
    """
    A `Database` in one file, shared with other processes of this host.

    Args:
        read_timeout_s: Time limit of a read. A longer one is interrupted, so that it does not keep its thread.
    """

    dialect: Literal["sqlite"] = "sqlite"

    def __init__(self, path: Path, *, read_timeout_s: float = _READ_TIMEOUT_S) -> None:
        self._path = path
        self._read_timeout_s = read_timeout_s
        self._is_closing = False
        self._writer = SqliteWriter(lambda: connect(path), name="records")
        self._reader_pool: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: list[sqlite3.Connection] = []
        self._lookup_tx: SqliteTx | None = None

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        callbacks: list[Callable[[], None]] = []
        complete = get_transaction_hook()

        def piece(connection: sqlite3.Connection) -> T:
            tx = SqliteTx(connection)
            tx.callbacks = callbacks
            result = work(tx)
            tx.run_before_commit()
            if complete is not None:
                complete(tx, result)
            return result

        def committed() -> None:
            for callback in callbacks:
                callback()

        try:
            return await self._writer.submit(piece, on_commit=committed, is_synced=is_synced)
        except sqlite3.Error as error:
            _raise_mapped(error)

    async def read(self, work: Callable[[Tx], T]) -> T:
        if self._reader_pool is None:
            self._reader_pool = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="records-read")
        future = asyncio.get_running_loop().run_in_executor(self._reader_pool, self._read_in_thread, work)
        try:
            async with asyncio.timeout(self._read_timeout_s):
                return await future
        except TimeoutError as error:
            raise self._too_slow() from error
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise self._too_slow() from error
            _raise_mapped(error)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        return await self.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        try:
            if self._lookup_tx is None:
                self._lookup_tx = SqliteTx(self._open_reader())
            return work(self._lookup_tx)
        except sqlite3.Error as error:
            _raise_mapped(error)

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._is_closing = True
        self._writer.close()
        if self._reader_pool is not None:
            self._reader_pool.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            connections, self._connections = self._connections, []
        self._lookup_tx = None
        for connection in connections:
            connection.close()

    def _open_reader(self) -> sqlite3.Connection:
        connection = connect(self._path, read_only=True)
        with self._lock:
            self._connections.append(connection)
        return connection

    def _read_in_thread(self, work: Callable[[Tx], T]) -> T:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._open_reader()
        deadline = time.monotonic() + self._read_timeout_s
        connection.set_progress_handler(lambda: self._is_closing or time.monotonic() >= deadline, _PROGRESS_STEPS)
        connection.execute("BEGIN")
        try:
            return work(SqliteTx(connection))
        finally:
            connection.execute("ROLLBACK")

    def _too_slow(self) -> EngineUnavailable:
        return EngineUnavailable("database", f"a read took longer than {self._read_timeout_s:g} s")


def _column_index(compiled: CompiledStatement, cursor: sqlite3.Cursor) -> Mapping[str, int]:
    if compiled.index is None:
        compiled.index = {column[0]: place for place, column in enumerate(cursor.description)}
    return compiled.index


def _raise_mapped(error: sqlite3.Error) -> NoReturn:
    if isinstance(error, sqlite3.IntegrityError):
        msg = "An object of the same name exists already."
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
