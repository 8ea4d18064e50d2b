"""The record store on PostgreSQL: psycopg through SQLAlchemy's async engine, with one pooled connection per transaction."""

from __future__ import annotations

import asyncio
import random
import select
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar, cast
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import Connection, Dialect, Executable, event
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InvalidatePoolError, InvalidRequestError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection
from sqlalchemy.util import await_only

from rookery.kernel.db.driver_statements import DriverStatements
from rookery.kernel.db.statements import Row, Statement, Upsert, Value
from rookery.kernel.db.transaction import TransactionHook, Tx, TxCallbacks, get_transaction_hook
from rookery.kernel.errors import Conflict, EngineReadOnly, EngineUnavailable, StorageFull
from rookery.kernel.postgres_address import TCP_OPTIONS, add_options, describe_connection_error, parse_postgres_address
from rookery.kernel.postgres_pooler import LOST_STATEMENT, PoolerDetector, is_pooler_symptom

T = TypeVar("T")

ENGINE_URL = "postgresql+psycopg://"
"""The URL of SQLAlchemy's engines. `connect_args` have the address."""

_POOL_SIZE = 10
_POOL_TIMEOUT_S = 10
_CANCEL_GRACE_S = 1.0
"""Time that a transaction may take to end after the task that waits for it was cancelled. Then its statement is cancelled."""
_CANCEL_TIMEOUT_S = 1.0
"""Further time that a cancelled task waits for the end of its transaction."""
_CLOSE_TIMEOUT_S = 10.0
_STATEMENT_TIMEOUT_S = 30
_CHECK_AFTER_S = 3.0
"""Time after which a transaction, or the wait for a connection, makes sure that the server still answers, and again each time."""
_CHECK_TIMEOUT_S = 3.0
_MAX_ATTEMPTS = 5
_RETRYABLE_SQLSTATES = frozenset({"40001", "40P01"})
"""serialization_failure and deadlock_detected: PostgreSQL rolled the transaction back in favour of another."""
_ROWCOUNT_OPTIONS = {"preserve_rowcount": True}
"""SQLAlchemy does not return the row count of an INSERT without this option."""

_DISK_FULL_SQLSTATES = frozenset({"53100"})
_READ_ONLY_SQLSTATE = "25006"
_RECONNECT_INTERVAL_S = 1.0
"""Shortest time between two replacements of all connections of a server that rejects writes."""


Params = Mapping[str, Value | Sequence[Value]]

_UPSERTS: WeakKeyDictionary[Upsert, Executable] = WeakKeyDictionary()
"""Upserts compiled for PostgreSQL."""


@dataclass(slots=True)
class _Progress:
    """
    The progress of a transaction.

    Attributes:
        statement_count: The number of statements that it has begun.
        is_committing: Its work is done, and only the commit is left. If that is cancelled, nobody knows whether it took effect.
    """

    statement_count: int = 0
    is_committing: bool = False


class PostgresTx(TxCallbacks):
    """A `Tx` on a connection of SQLAlchemy, run inside its greenlet."""

    __slots__ = ("_connection", "_progress", "_statements")

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, connection: Connection, progress: _Progress, statements: DriverStatements) -> None:
        super().__init__()
        self._connection = connection
        self._progress = progress
        self._statements = statements

    def fetch_all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        self._progress.statement_count += 1
        compiled = self._statements.get(statement, params or {})
        if compiled is not None:
            rows, index = self._run(compiled.fetch_all, params or {})
            return [Row(row, index) for row in rows]
        result = self._connection.execute(_select_dialect(statement), params or {})
        index = {name: place for place, name in enumerate(result.keys())}
        return [Row(row, index) for row in result]

    def fetch_one(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> Row | None:
        rows = self.fetch_all(statement, params)
        return rows[0] if rows else None

    def execute(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
        self._progress.statement_count += 1
        compiled = self._statements.get(statement, params or {})
        if compiled is not None:
            return self._run(compiled.execute, params or {})
        return self._connection.execute(_select_dialect(statement), params or {}, execution_options=_ROWCOUNT_OPTIONS).rowcount

    def execute_many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        if not params:
            return 0
        if len(params) == 1:  # most changes are of one row
            return self.execute(statement, params[0])
        self._progress.statement_count += 1
        return self._connection.execute(_select_dialect(statement), list(params), execution_options=_ROWCOUNT_OPTIONS).rowcount

    def _run(self, run: Callable[[psycopg.AsyncConnection, Params], Coroutine[None, None, T]], params: Params) -> T:
        """Run a statement by the driver. As SQLAlchemy does, drop a connection that is lost or whose statement is cancelled."""
        connection = cast("psycopg.AsyncConnection", self._connection.connection.driver_connection)
        try:
            return await_only(run(connection, params))
        except psycopg.Error as error:
            if is_lost := connection.closed:
                self._connection.invalidate(error)
            raise DBAPIError.instance(None, None, error, psycopg.Error, connection_invalidated=is_lost) from error
        except BaseException as error:
            self._connection.invalidate(error)
            raise


class PostgresDatabase:
    """
    A `Database` on a PostgreSQL server that any number of hosts share.

    Each transaction runs in a task of its own, from the checkout of its connection to its return, so that no cancellation interrupts
    these. A connection whose statement is cancelled must be closed and replaced, which takes longer than most statements: when many
    tasks are cancelled, the store would only open connections. So the transaction of a cancelled task gets a short time to end.

    A lost network gives no error. So a transaction that takes long is given up if the server does not answer on a new connection either,
    or if a statement takes longer than the server allows: then its connection alone is lost.

    A server that rejects a write as read-only may be a standby since a failover, or have got the option that its sessions keep until they
    end. So all connections are opened again, which may lead to the primary.

    Before the first transaction it looks for a pooler in transaction mode. Then, or once an error shows one, no statement is prepared.

    Args:
        url: Its address.
        setting: The setting that has the address, for errors.
        statement_timeout_s: Longest time of a statement, which the server enforces.
    """

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, url: str, *, setting: str = "ROOKERY_DATABASE_URL", statement_timeout_s: int = _STATEMENT_TIMEOUT_S) -> None:
        parameters = parse_postgres_address(url, setting=setting)
        self._pooler = PoolerDetector(parameters, engine="database")
        session = add_options(parameters, f"-c statement_timeout={statement_timeout_s}s -c timezone=UTC")
        self._statement_timeout_s = statement_timeout_s
        self._engine: AsyncEngine = create_async_engine(
            ENGINE_URL,
            pool_size=_POOL_SIZE,
            max_overflow=0,
            pool_use_lifo=True,  # PostgreSQL keeps the prepared statements of each connection, so few connections should do the work
            connect_args={**session, "connect_timeout": _POOL_TIMEOUT_S, **TCP_OPTIONS},
            hide_parameters=True,  # the text of an error may be logged
        )
        event.listen(self._engine.sync_engine, "checkout", self._replace_if_stale)
        event.listen(self._engine.sync_engine, "do_connect", self._set_preparation)
        self._check_engine = create_async_engine(ENGINE_URL, poolclass=NullPool, connect_args={**parameters, **TCP_OPTIONS})
        self._check: asyncio.Task[None] | None = None
        self._must_reconnect = False
        self._reconnected_s = float("-inf")
        self._autocommit_engine = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._snapshot_engine = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._statements = DriverStatements(self._engine.dialect)
        self._slots = asyncio.Semaphore(_POOL_SIZE)
        self._transactions: set[asyncio.Task[object]] = set()

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        complete = get_transaction_hook()
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._run(self._engine, work, complete, is_synced=is_synced)
            except DBAPIError as error:
                self._require_writable(error)
                is_repeatable = self._note_pooler(error) or _sqlstate(error) in _RETRYABLE_SQLSTATES
                if attempt == _MAX_ATTEMPTS or not is_repeatable:
                    _raise_mapped(error)
            await asyncio.sleep(random.uniform(0.001, 0.02) * attempt)  # noqa: S311 - jitter, not a secret
        raise AssertionError(_MAX_ATTEMPTS)  # unreachable: the last attempt returns or raises

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._read(self._snapshot_engine, work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        return await self.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await self._read(self._autocommit_engine, work)

    async def _read(self, engine: AsyncEngine, work: Callable[[Tx], T]) -> T:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._run(engine, work)
            except DBAPIError as error:
                if engine is self._autocommit_engine:
                    self._require_writable(error)  # a lookup may lock rows
                if attempt == _MAX_ATTEMPTS or not self._note_pooler(error):
                    _raise_mapped(error)
        raise AssertionError(_MAX_ATTEMPTS)  # unreachable: the last attempt returns or raises

    async def close(self) -> None:
        if self._transactions:
            await asyncio.wait(self._transactions, timeout=_CLOSE_TIMEOUT_S)
        if self._check is not None:
            self._check.cancel()
        await self._engine.dispose()

    async def _run(self, engine: AsyncEngine, work: Callable[[Tx], T], hook: TransactionHook | None = None, *, is_synced: bool = True) -> T:
        """Run a transaction in a task of its own as soon as a connection is free. When cancelled while it runs, end within 2 s."""
        if not self._pooler.is_known:
            await self._pooler.look()
        await self._acquire_slot()
        progress = _Progress()
        task = asyncio.create_task(
            _run_transaction(engine, work, hook, progress, self._statements, is_synced=is_synced), name="database-transaction"
        )
        self._transactions.add(task)
        task.add_done_callback(self._on_done)
        try:
            seen_count, unchanged_s = 0, 0.0
            while not (await asyncio.wait({task}, timeout=_CHECK_AFTER_S))[0]:
                await self._require_answer()
                unchanged_s = unchanged_s + _CHECK_AFTER_S if progress.statement_count == seen_count else 0.0
                seen_count = progress.statement_count
                if unchanged_s > self._statement_timeout_s + _CHECK_AFTER_S:
                    await _abandon(task)
                    raise EngineUnavailable("database", f"a statement has had no answer for {unchanged_s:g} s")
            return task.result()
        except asyncio.CancelledError:
            try:
                await asyncio.wait({task}, timeout=_CANCEL_GRACE_S)
                if progress.is_committing:
                    await asyncio.wait({task}, timeout=_CANCEL_TIMEOUT_S)
            finally:
                task.cancel()
            if not progress.is_committing:
                await asyncio.wait({task}, timeout=_CANCEL_TIMEOUT_S)
            raise

    def _note_pooler(self, error: DBAPIError) -> bool:
        """Return whether *error* shows a pooler. Then all connections are opened again, without prepared statements."""
        if not self._pooler.note(error.orig):
            return False
        self._must_reconnect, self._reconnected_s = True, float("-inf")
        return True

    def _set_preparation(
        self, dialect: Dialect, entry: ConnectionPoolEntry, arguments: list[object], parameters: dict[str, object]
    ) -> None:
        """Set before a connection is opened whether the driver prepares its statements."""
        del dialect, entry, arguments
        if self._pooler.is_found:
            parameters["prepare_threshold"] = None

    async def _acquire_slot(self) -> None:
        for limit_s in (_CHECK_AFTER_S, _POOL_TIMEOUT_S - _CHECK_AFTER_S):
            try:
                async with asyncio.timeout(limit_s):
                    await self._slots.acquire()
            except TimeoutError:
                await self._require_answer()
            else:
                return
        raise EngineUnavailable("database", f"no connection became free within {_POOL_TIMEOUT_S} s")

    async def _require_answer(self) -> None:
        """
        Make sure that the server answers on a new connection. Concurrent calls share a check.

        Raises:
            EngineUnavailable: It does not answer. Transactions in progress may still be committed.
        """
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(self._ask(), name="database-check")
            self._check.add_done_callback(_ignore_outcome)
        check = self._check
        # Without the network, the end of a cancelled statement would be waited for without limit. So the check is left alone.
        if not (await asyncio.wait({check}, timeout=_CHECK_TIMEOUT_S))[0]:
            raise EngineUnavailable("database", f"no answer within {_CHECK_TIMEOUT_S:g} s")
        # An error, such as too many connections or a refusal, is an answer: then open connections work, or fail by themselves.

    def _replace_if_stale(self, connection: DBAPIConnection, entry: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        """
        Let the pool open its connections again if the server closed this one while it was idle, or has rejected a write as read-only.

        A closed connection is readable, which costs no round trip to see. It is also readable after a message, so the server is asked then.
        """
        now_s = time.monotonic()
        if self._must_reconnect and now_s - self._reconnected_s >= _RECONNECT_INTERVAL_S:
            self._must_reconnect, self._reconnected_s = False, now_s
            raise InvalidatePoolError
        driver_connection = cast("psycopg.AsyncConnection", entry.driver_connection)
        poll = select.poll()
        try:
            poll.register(driver_connection.fileno(), select.POLLIN)
            if poll.poll(0):
                self._engine.dialect.do_ping(connection)
        except psycopg.Error as error:  # the number of the file too is unknown if the driver has closed it
            raise InvalidatePoolError from error

    def _require_writable(self, error: DBAPIError) -> None:
        """Raise `EngineReadOnly` if *error* is a refusal of writes, and open all connections again."""
        if _sqlstate(error) == _READ_ONLY_SQLSTATE:
            self._must_reconnect = True
            raise EngineReadOnly("database", "PostgreSQL accepts only reads") from error

    async def _ask(self) -> None:
        async with self._check_engine.connect() as connection:
            await connection.exec_driver_sql("SELECT 1")

    def _on_done(self, task: asyncio.Task[object]) -> None:
        self._transactions.discard(task)
        self._slots.release()
        if not task.cancelled():
            task.exception()  # Its waiter may have been cancelled. Then the error has no other reader.


def _ignore_outcome(task: asyncio.Task[None]) -> None:
    """Mark the error of *task* as read: everybody who waited for it may have given up."""
    if not task.cancelled():
        task.exception()


async def _abandon(task: asyncio.Task[T]) -> None:
    """Cancel a transaction whose connection is lost. The driver waits for the end of a cancelled statement, so cancel that wait too."""
    for _ in range(2):
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_TIMEOUT_S)


async def _run_transaction(
    engine: AsyncEngine,
    work: Callable[[Tx], T],
    hook: TransactionHook | None,
    progress: _Progress,
    statements: DriverStatements,
    *,
    is_synced: bool,
) -> T:
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(engine.begin())
        except InvalidRequestError as error:  # SQLAlchemy gives up after two connections that are outdated when they are taken
            raise EngineUnavailable("database", "its connections were replaced meanwhile", retry_after_s=1) from error
        if not is_synced:
            await connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
        tx, result = await connection.run_sync(_run_work, work, hook, progress, statements)
    for callback in tx.callbacks:
        callback()
    return result


def _run_work(
    connection: Connection, work: Callable[[Tx], T], hook: TransactionHook | None, progress: _Progress, statements: DriverStatements
) -> tuple[PostgresTx, T]:
    tx = PostgresTx(connection, progress, statements)
    result = work(tx)
    tx.run_before_commit()
    if hook is not None:
        hook(tx, result)
    progress.is_committing = True
    return tx, result


def _select_dialect(statement: Statement) -> Executable:
    """Return the statement for PostgreSQL. SQLAlchemy caches compiled statements; this function caches upserts."""
    if not isinstance(statement, Upsert):
        return statement
    built = _UPSERTS.get(statement)
    if built is None:
        built = _UPSERTS[statement] = statement.build(insert(statement.table))
    return built


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _raise_mapped(error: DBAPIError) -> NoReturn:
    if _sqlstate(error) in _DISK_FULL_SQLSTATES:
        msg = "The disk of the PostgreSQL server is full: free some space, then try again."
        raise StorageFull(msg) from error
    if is_pooler_symptom(error.orig):
        raise EngineUnavailable("database", LOST_STATEMENT) from error
    if isinstance(error, IntegrityError):
        msg = "An object of the same name exists already."
        raise Conflict(msg) from error
    if isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated:
        reason = describe_connection_error(error.orig) if isinstance(error.orig, psycopg.Error) else type(error.orig).__name__
        raise EngineUnavailable("database", reason) from error
    raise error
