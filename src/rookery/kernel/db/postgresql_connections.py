"""
The open connections of the record store on PostgreSQL.

All of them are in autocommit mode: a transaction begins and ends by statements of its own, and a lookup needs neither.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg

PostgresConnection = psycopg.AsyncConnection[tuple[object, ...]]

_PREPARE_THRESHOLD = 5
"""The number of runs of a statement on a connection after which it is prepared, as by default."""

_REPLACE_INTERVAL_S = 1.0
"""Shortest time between two replacements of all connections that `replace_soon` asks for."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A connection, and the number of replacements before it was opened."""

    connection: PostgresConnection
    generation: int


class ConnectionStack:
    """
    Open connections to one server, of which the one used last is taken first.

    PostgreSQL keeps the prepared statements of each connection, so few connections should do the work. The number of those that are
    taken at once is bounded by the caller.

    Args:
        conninfo: Their parameters as libpq takes them.
        prepares_statements: Returns whether the driver may prepare statements on a connection that is opened now.
    """

    def __init__(self, conninfo: str, *, prepares_statements: Callable[[], bool]) -> None:
        self._conninfo = conninfo
        self._prepares_statements = prepares_statements
        self._idle: list[_Entry] = []
        self._generation = 0
        self._must_replace = False
        self._replaced_s = float("-inf")

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[PostgresConnection]:
        """
        Lend a connection until the end of the block. What the block did not commit is rolled back.

        Raises:
            psycopg.OperationalError: No connection could be opened, or the server closed it, for whatever reason that it gave.
        """
        entry = await self._take()
        try:
            yield entry.connection
        except Exception as error:
            is_lost = isinstance(error, psycopg.Error) and entry.connection.closed
            await self._give_back_after_error(entry)
            if is_lost and not isinstance(error, psycopg.OperationalError):
                msg = "the server closed the connection"
                raise psycopg.OperationalError(msg) from error
            raise
        except BaseException:  # its statement was cancelled, and the server may still be busy with it
            await entry.connection.close()
            raise
        await self._give_back(entry)

    def replace_soon(self) -> None:
        """Open all connections again when they are needed next, unless that was done less than a second before."""
        self._must_replace = True

    def replace(self) -> None:
        """Open all connections again when they are needed next."""
        self._must_replace, self._replaced_s = False, time.monotonic()
        self._generation += 1

    async def close(self) -> None:
        """Close the connections that nobody uses, and each other one at the end of its block."""
        self._generation += 1
        while self._idle:
            await self._idle.pop().connection.close()

    async def _take(self) -> _Entry:
        if self._must_replace and time.monotonic() - self._replaced_s >= _REPLACE_INTERVAL_S:
            self.replace()
        while self._idle:
            idle = self._idle.pop()
            is_usable = False
            try:
                if idle.generation == self._generation:
                    is_usable = await _is_open(idle.connection)
                    if is_usable:
                        return idle
                    self.replace()  # the server has probably closed the others too
            finally:
                if not is_usable:  # also when cancelled
                    await idle.connection.close()
        generation = self._generation
        threshold = _PREPARE_THRESHOLD if self._prepares_statements() else None
        connection = await PostgresConnection.connect(self._conninfo, autocommit=True, prepare_threshold=threshold)
        return _Entry(connection, generation)

    async def _give_back(self, entry: _Entry) -> None:
        if entry.generation == self._generation and not entry.connection.closed:
            self._idle.append(entry)
        else:
            await entry.connection.close()

    async def _give_back_after_error(self, entry: _Entry) -> None:
        connection = entry.connection
        try:
            if not connection.closed:
                await connection.rollback()  # it also forgets the statements that it prepared meanwhile
        except BaseException as error:
            await connection.close()
            if not isinstance(error, psycopg.Error):
                raise
        await self._give_back(entry)


async def _is_open(connection: PostgresConnection) -> bool:
    """
    Return whether the server has not closed *connection* while nobody used it.

    A closed connection is readable, which costs no round trip to see. It is also readable after a message, so the server is asked then.
    """
    poll = select.poll()
    with contextlib.suppress(psycopg.Error):  # the number of the file too is unknown if the driver has closed it
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):
            await connection.execute(b"SELECT 1", prepare=False)
        return True
    return False
