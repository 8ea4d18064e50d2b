"""The record store on PostgreSQL: psycopg through SQLAlchemy's async engine, a pooled connection a transaction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NoReturn, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Executable
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from rookery.kernel.db.rows import Row, Value
from rookery.kernel.db.statements import Statement, Upsert
from rookery.kernel.db.transaction import COMPLETION, Completion, Tx
from rookery.kernel.errors import Conflict, EngineUnavailable, StorageFull

T = TypeVar("T")

_POOL = 10
_POOL_WAIT_S = 10
_STATEMENT_S = 30
_TRIES = 5
_AGAIN = frozenset({"40001", "40P01"})
"""serialization_failure, deadlock_detected: PostgreSQL undid the transaction so that another could go on."""
_COUNTED = {"preserve_rowcount": True}
"""SQLAlchemy does not look at how many rows an INSERT made unless it is told to."""

_FULL = frozenset({"53100"})

_UPSERTS: WeakKeyDictionary[Upsert, Executable] = WeakKeyDictionary()
"""Upserts as PostgreSQL writes them."""


class PostgresTx:
    """A transaction of SQLAlchemy's, run inside its greenlet."""

    __slots__ = ("_connection", "_last", "callbacks")

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last: dict[Callable[[Tx, list[object]], None], list[object]] = {}
        self.callbacks: list[Callable[[], None]] = []

    def all(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> list[Row]:
        result = self._connection.execute(_chosen(statement), params or {})
        index = {name: place for place, name in enumerate(result.keys())}
        return [Row(row, index) for row in result]

    def one(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> Row | None:
        rows = self.all(statement, params)
        return rows[0] if rows else None

    def run(self, statement: Statement, params: Mapping[str, Value | Sequence[Value]] | None = None) -> int:
        return self._connection.execute(_chosen(statement), params or {}, execution_options=_COUNTED).rowcount

    def many(self, statement: Statement, params: Sequence[Mapping[str, Value]]) -> int:
        if not params:
            return 0
        return self._connection.execute(_chosen(statement), list(params), execution_options=_COUNTED).rowcount

    def at_end(self, work: Callable[[Tx, list[object]], None], item: object) -> None:
        self._last.setdefault(work, []).append(item)

    def after_commit(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def finish(self) -> None:
        """Do what was to be done last."""
        for work, items in self._last.items():
            work(self, items)


class PostgresDatabase:
    """`Database` on a server, shared with any number of hosts."""

    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, url: str) -> None:
        self._engine: AsyncEngine = create_async_engine(
            sqlalchemy_url(url),
            pool_size=_POOL,
            max_overflow=0,
            pool_timeout=_POOL_WAIT_S,
            pool_pre_ping=True,
            connect_args={"connect_timeout": _POOL_WAIT_S, "options": f"-c statement_timeout={_STATEMENT_S}s -c timezone=UTC"},
        )
        self._single = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        self._moment = self._engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    async def write(self, work: Callable[[Tx], T]) -> T:
        complete = COMPLETION.get()
        for attempt in range(1, _TRIES + 1):
            try:
                return await _once(self._engine, work, complete)
            except DBAPIError as error:
                if attempt == _TRIES or _state(error) not in _AGAIN:
                    _translate(error)
            except PoolTimeoutError as error:
                _no_connection(error)
            await asyncio.sleep(random.uniform(0.001, 0.02) * attempt)  # noqa: S311 - spreads the contenders, guards nothing
        raise AssertionError(_TRIES)  # the last attempt returns or raises

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._reading(self._moment, work)

    async def quick(self, work: Callable[[Tx], T]) -> T:
        return await self._reading(self._single, work)

    async def close(self) -> None:
        await self._engine.dispose()

    async def _reading(self, engine: AsyncEngine, work: Callable[[Tx], T]) -> T:
        try:
            return await _once(engine, work)
        except DBAPIError as error:
            _translate(error)
        except PoolTimeoutError as error:
            _no_connection(error)


def sqlalchemy_url(url: str, driver: str = "postgresql+psycopg") -> URL:
    """Return *url* for SQLAlchemy with psycopg 3, whatever of postgres:// or postgresql:// it was given as."""
    return make_url(url.replace("postgres://", "postgresql://", 1)).set(drivername=driver)


async def _once(engine: AsyncEngine, work: Callable[[Tx], T], complete: Completion | None = None) -> T:
    async with engine.begin() as connection:
        tx, result = await connection.run_sync(_run, work, complete)
    for callback in tx.callbacks:
        callback()
    return result


def _run(connection: Connection, work: Callable[[Tx], T], complete: Completion | None) -> tuple[PostgresTx, T]:
    tx = PostgresTx(connection)
    result = work(tx)
    tx.finish()
    if complete is not None:
        complete(tx, result)
    return tx, result


def _chosen(statement: Statement) -> Executable:
    """Return the statement in this dialect; SQLAlchemy compiles equal statements once, and an upsert is built once."""
    if not isinstance(statement, Upsert):
        return statement
    built = _UPSERTS.get(statement)
    if built is None:
        built = _UPSERTS[statement] = statement.build(insert(statement.table))
    return built


def _state(error: DBAPIError) -> str | None:
    return getattr(error.orig, "sqlstate", None)


def _no_connection(error: Exception) -> NoReturn:
    reason = f"no connection became free within {_POOL_WAIT_S} s"
    raise EngineUnavailable("database", reason) from error


def _translate(error: DBAPIError) -> NoReturn:
    if _state(error) in _FULL:
        msg = "The disk of the PostgreSQL server is full: free some space, then try again."
        raise StorageFull(msg) from error
    if isinstance(error, IntegrityError):
        msg = "Something of the same name exists already."
        raise Conflict(msg) from error
    if isinstance(error, (OperationalError, InterfaceError)) or error.connection_invalidated:
        raise EngineUnavailable("database", type(error.orig).__name__) from error
    raise error
