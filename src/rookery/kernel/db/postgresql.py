"""
The record store on PostgreSQL: statements of SQLAlchemy, run by psycopg on one connection per transaction.

SQLAlchemy's engine is not used: its pool, its events and its transactions took 1 ms of CPU for each transaction, four times as long as the
driver takes for a statement.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from sqlalchemy.util import await_only, greenlet_spawn

from rookery.kernel.db.driver_statements import Params, compile_for_driver
from rookery.kernel.db.postgresql_connections import ConnectionStack, PostgresConnection
from rookery.kernel.db.statements import Row, Statement, Value
from rookery.kernel.db.transaction import TransactionHook, Tx, TxCallbacks, get_transaction_hook
from rookery.kernel.errors import Conflict, EngineReadOnly, EngineUnavailable, StorageFull
from rookery.kernel.postgres_address import TCP_OPTIONS, add_options, describe_connection_error, parse_postgres_address
from rookery.kernel.postgres_pooler import LOST_STATEMENT, PoolerDetector, is_pooler_symptom

T = TypeVar("T")

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
_DISK_FULL_SQLSTATES = frozenset({"53100"})
_READ_ONLY_SQLSTATE = "25006"

_BEGIN_WRITE = b"BEGIN"
_BEGIN_UNSYNCED_WRITE = b"BEGIN; SET LOCAL synchronous_commit TO off"
_BEGIN_READ = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


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
    """A `Tx` on a connection of the driver, run inside a greenlet of SQLAlchemy's."""

    __slots__ = ("_connection", "_progress")

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, connection: PostgresConnection, progress: _Progress) -> None:
        super().__init__()
        self._connection = connection
        self._progress = progress

    def fetch_all(self, statement: Statement, params: Params | None = None) -> list[Row]:
        self._progress.statement_count += 1
        params = params or {}
        rows, index = await_only(compile_for_driver(statement, params).fetch_all(self._connection, params))
        return [Row(row, index) for row in rows]

    def fetch_one(self, statement: Statement, params: Params | None = None) -> Row | None:
        rows = self.fetch_all(statement, params)
        return rows[0] if rows else None

    def execute(self, statement: Statement, params: Params | None = None) -> int:
        self._progress.statement_count += 1
        params = params or {}
        return await_only(compile_for_driver(statement, params).execute(self._connection, params))

    def execute_many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        if not params:
            return 0
        if len(params) == 1:  # most changes are of one row
            return self.execute(statement, params[0])
        self._progress.statement_count += 1
        return await_only(compile_for_driver(statement, params[0]).execute_many(self._connection, params))


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
        conninfo = make_conninfo(**{**session, "connect_timeout": str(_POOL_TIMEOUT_S), **TCP_OPTIONS})
        self._connections = ConnectionStack(conninfo, prepares_statements=lambda: not self._pooler.is_found)
        self._check_conninfo = make_conninfo(**{**parameters, **TCP_OPTIONS})
        self._check: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(_POOL_SIZE)
        self._transactions: set[asyncio.Task[object]] = set()

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        complete = get_transaction_hook()
        begin = _BEGIN_WRITE if is_synced else _BEGIN_UNSYNCED_WRITE
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._run(begin, work, complete)
            except psycopg.Error as error:
                self._require_writable(error)
                is_repeatable = self._note_pooler(error) or error.sqlstate in _RETRYABLE_SQLSTATES
                if attempt == _MAX_ATTEMPTS or not is_repeatable:
                    _raise_mapped(error)
            await asyncio.sleep(random.uniform(0.001, 0.02) * attempt)  # noqa: S311 - jitter, not a secret
        raise AssertionError(_MAX_ATTEMPTS)  # unreachable: the last attempt returns or raises

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._read(_BEGIN_READ, work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        return await self.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await self._read(None, work)

    async def _read(self, begin: bytes | None, work: Callable[[Tx], T]) -> T:
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                return await self._run(begin, work)
            except psycopg.Error as error:
                if begin is None:
                    self._require_writable(error)  # a lookup may lock rows
                if attempt == _MAX_ATTEMPTS or not self._note_pooler(error):
                    _raise_mapped(error)
        raise AssertionError(_MAX_ATTEMPTS)  # unreachable: the last attempt returns or raises

    async def close(self) -> None:
        if self._transactions:
            await asyncio.wait(self._transactions, timeout=_CLOSE_TIMEOUT_S)
        if self._check is not None:
            self._check.cancel()
        await self._connections.close()

    async def _run(self, begin: bytes | None, work: Callable[[Tx], T], hook: TransactionHook | None = None) -> T:
        """
        Run *work* in a task of its own as soon as a connection is free. When cancelled while it runs, end within 2 s.

        Args:
            begin: The statement that begins its transaction. None: each of its statements is a transaction.
        """
        if not self._pooler.is_known:
            await self._pooler.look()
        await self._acquire_slot()
        progress = _Progress()
        task = asyncio.create_task(_run_transaction(self._connections, begin, work, hook, progress), name="database-transaction")
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

    def _note_pooler(self, error: psycopg.Error) -> bool:
        """Return whether *error* shows a pooler. Then all connections are opened again, without prepared statements."""
        if not self._pooler.note(error):
            return False
        self._connections.replace()
        return True

    async def _acquire_slot(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
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

    def _require_writable(self, error: psycopg.Error) -> None:
        """Raise `EngineReadOnly` if *error* is a refusal of writes, and open all connections again."""
        if error.sqlstate == _READ_ONLY_SQLSTATE:
            self._connections.replace_soon()
            raise EngineReadOnly("database", "PostgreSQL accepts only reads") from error

    async def _ask(self) -> None:
        async with await psycopg.AsyncConnection.connect(self._check_conninfo, autocommit=True) as connection:
            await connection.execute(b"SELECT 1")

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
    connections: ConnectionStack, begin: bytes | None, work: Callable[[Tx], T], hook: TransactionHook | None, progress: _Progress
) -> T:
    async with connections.use() as connection:
        if begin is not None:
            await connection.execute(begin, prepare=False)
        tx, result = await greenlet_spawn(_run_work, connection, work, hook, progress)
        if begin is not None:
            await connection.execute(b"COMMIT", prepare=False)
    for callback in tx.callbacks:
        callback()
    return result


def _run_work(
    connection: PostgresConnection, work: Callable[[Tx], T], hook: TransactionHook | None, progress: _Progress
) -> tuple[PostgresTx, T]:
    tx = PostgresTx(connection, progress)
    result = work(tx)
    tx.run_before_commit()
    if hook is not None:
        hook(tx, result)
    progress.is_committing = True
    return tx, result


def _raise_mapped(error: psycopg.Error) -> NoReturn:
    if error.sqlstate in _DISK_FULL_SQLSTATES:
        msg = "The disk of the PostgreSQL server is full: free some space, then try again."
        raise StorageFull(msg) from error
    if is_pooler_symptom(error):
        raise EngineUnavailable("database", LOST_STATEMENT) from error
    if isinstance(error, psycopg.IntegrityError):
        msg = "An object of the same name exists already."
        raise Conflict(msg) from error
    if isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        raise EngineUnavailable("database", describe_connection_error(error)) from error
    raise error
