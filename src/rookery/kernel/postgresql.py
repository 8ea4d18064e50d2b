"""Connections of engines that keep derived data in PostgreSQL: a pool, bounded waits, and repetition of rolled-back work."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import psycopg
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, StorageFull
from rookery.kernel.postgres_address import TCP_OPTIONS, describe_connection_error, parse_postgres_address
from rookery.kernel.postgres_pooler import LOST_STATEMENT, PoolerDetector, is_pooler_symptom

T = TypeVar("T")
PostgresConnection = AsyncConnection[tuple[object, ...]]

MISSING_TABLE_SQLSTATE = "42P01"
_MISSING_SQLSTATES = frozenset({MISSING_TABLE_SQLSTATE, "3F000", "42704", "42883"})
"""undefined_table, and a schema, a type, or a function or operator that is missing: somebody moved an extension to another schema."""

_POOL_SIZE = 10
_POOL_TIMEOUT_S = 10.0
_MAX_ATTEMPTS = 5
_RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", *_MISSING_SQLSTATES})
"""serialization_failure, deadlock_detected, and what somebody deleted or moved, which the next attempt finds or creates."""

_DISK_FULL_SQLSTATE = "53100"
_READ_ONLY_SQLSTATE = "25006"
_SET_OPTION = "SELECT set_config(%(name)s, %(value)s, false)"


class _PooledConnection(AsyncConnection[tuple[object, ...]]):
    """A connection with the time at which it was opened."""

    opened_s: float = 0.0


class PostgresPool:
    """
    A pool of autocommit connections, opened on first use. All calls come from one event loop.

    Before the first use it looks for a pooler in transaction mode. Then, or once an error shows one, it prepares no statements and sets no
    options of sessions, which would be those of other clients.

    Args:
        engine: The name of the engine in errors, and of its setting.
        options: Options of PostgreSQL for each connection, by name.
        on_missing_table: Called if a table, or what it needs, does not exist, before the work is repeated.
        prepares_statements: Prepare statements that are repeated. Then PostgreSQL may plan them without their parameters.
        timeout_s: Longest wait for a connection.
    """

    def __init__(
        self,
        url: str,
        *,
        engine: str,
        options: Mapping[str, str],
        on_missing_table: Callable[[], None],
        prepares_statements: bool = True,
        timeout_s: float = _POOL_TIMEOUT_S,
    ) -> None:
        self._parameters = parse_postgres_address(url, setting=f"ROOKERY_{engine.upper()}")
        self._engine = engine
        self._options = options
        self._on_missing_table = on_missing_table
        self._prepares_statements = prepares_statements
        self._timeout_s = timeout_s
        self._pooler = PoolerDetector(self._parameters, engine=engine)
        self._pool: AsyncConnectionPool[PostgresConnection] | None = None
        self._opening = asyncio.Lock()
        self._connection_error: psycopg.Error | None = None
        self._drained_s = float("-inf")
        self._tasks: set[asyncio.Task[object]] = set()

    async def run(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        """
        Run *work* on a connection, again if PostgreSQL rolled it back for another writer or a table is missing.

        A cancelled caller does not cancel it: its connection returns to the pool when the statement has ended.

        Raises:
            EngineUnavailable: The server does not answer, or rejects a statement.
            StorageFull: The disk of the server is full.
        """
        task = asyncio.create_task(self._execute(work))
        self._tasks.add(cast("asyncio.Task[object]", task))
        task.add_done_callback(self._on_done)
        return await asyncio.shield(task)

    @property
    def has_pooler(self) -> bool:
        """True if a pooler in transaction mode was found. Then a connection has no session of its own."""
        return self._pooler.is_found

    async def set_option(self, connection: PostgresConnection, name: str, value: str) -> None:
        """Set an option of the session, if *connection* has one of its own."""
        if not self._pooler.is_found:
            await connection.execute(_SET_OPTION, {"name": name, "value": value})

    async def close(self) -> None:
        """Wait for running work, then close the connections. The next use opens them again."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_POOL_TIMEOUT_S)
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _on_done(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as read, if the caller was cancelled

    async def _execute(self, work: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        pool = await self._open()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                async with pool.connection() as connection:
                    return await work(connection)
            except PoolTimeout as error:
                raise EngineUnavailable(self._engine, self._explain_no_connection()) from error
            except psycopg.Error as error:
                if error.sqlstate in _MISSING_SQLSTATES:
                    self._on_missing_table()
                if self._pooler.note(error):
                    await pool.drain()  # new connections prepare no statements
                    if attempt < _MAX_ATTEMPTS:
                        continue
                if error.sqlstate == _READ_ONLY_SQLSTATE:
                    await pool.drain()  # new connections may lead to the primary, or to one that accepts writes again
                if attempt == _MAX_ATTEMPTS or error.sqlstate not in _RETRYABLE_SQLSTATES:
                    raise self._map_error(error) from error
        raise AssertionError(_MAX_ATTEMPTS)  # unreachable: the last attempt returns or raises

    async def _open(self) -> AsyncConnectionPool[PostgresConnection]:
        async with self._opening:
            if not self._pooler.is_known:
                await self._pooler.look()
            if self._pool is None:
                pool = AsyncConnectionPool(
                    connection_class=self._make_connection_class(),
                    min_size=0,
                    max_size=_POOL_SIZE,
                    timeout=self._timeout_s,
                    open=False,
                    reconnect_timeout=_POOL_TIMEOUT_S,
                    configure=self._configure,
                    check=self._check,
                    kwargs={**self._parameters, "autocommit": True, "connect_timeout": int(_POOL_TIMEOUT_S), **TCP_OPTIONS},
                )
                await pool.open()
                self._pool = pool
        return self._pool

    async def _check(self, connection: PostgresConnection) -> None:
        """
        Raise an error if the server closed *connection* while it was idle. Then the other idle connections are opened again too.

        A closed connection is readable, which costs no round trip to see. It is also readable after a message, so the server is asked then.
        """
        poll = select.poll()
        try:
            poll.register(connection.fileno(), select.POLLIN)
            if poll.poll(0):
                await AsyncConnectionPool.check_connection(connection)
        except psycopg.Error:
            if self._pool is not None and cast("_PooledConnection", connection).opened_s > self._drained_s:
                self._drained_s = time.monotonic()
                await self._pool.drain()  # otherwise the pool would wait longer after each closed connection
            raise

    def _make_connection_class(self) -> type[PostgresConnection]:
        """Return the class of connections that notes why the last one could not be opened. The pool itself only logs it."""
        pool = self

        class Connection(_PooledConnection):
            @classmethod
            async def connect(cls, *arguments: Any, **parameters: Any) -> Any:  # noqa: ANN401 - those of the base class
                try:
                    connection = await super().connect(*arguments, **parameters)
                except psycopg.Error as error:
                    pool._connection_error = error
                    raise
                pool._connection_error = None
                connection.opened_s = time.monotonic()
                return connection

        return Connection

    def _explain_no_connection(self) -> str:
        if self._connection_error is None:
            return f"no connection became free within {self._timeout_s:g} s"
        return f"no connection to PostgreSQL: {describe_connection_error(self._connection_error)}"

    async def _configure(self, connection: PostgresConnection) -> None:
        if self._pooler.is_found or not self._prepares_statements:
            connection.prepare_threshold = None
        for name, value in self._options.items():
            await self.set_option(connection, name, value)

    def _map_error(self, error: psycopg.Error) -> EngineUnavailable | StorageFull:
        if error.sqlstate == _DISK_FULL_SQLSTATE:
            return StorageFull("The disk of the PostgreSQL server is full: free some space, then try again.")
        if error.sqlstate == _READ_ONLY_SQLSTATE:
            return EngineReadOnly(self._engine, "PostgreSQL accepts only reads")
        if is_pooler_symptom(error):
            return EngineUnavailable(self._engine, LOST_STATEMENT)
        return EngineUnavailable(self._engine, error.diag.message_primary or type(error).__name__)
