"""
Poolers in transaction mode before PostgreSQL, such as PgBouncer with `pool_mode = transaction`.

Each transaction of a client may run in another session of the server. So nothing that belongs to a session works: a prepared statement is
missing or belongs to another client, an option applies to the next client, and a message of LISTEN arrives nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib

import psycopg
import structlog
from psycopg.conninfo import make_conninfo

from rookery.kernel.postgres_address import ConnectionParameters

_log = structlog.stdlib.get_logger("rookery.database")

POOLER = "a pooler in transaction mode is in front of PostgreSQL"

LOSSES = "statements are not prepared, and have no time limit unless the role has one"

LOST_STATEMENT = f"{POOLER}, and PostgreSQL lost a prepared statement"
"""The reason of an error that shows a pooler."""

_SYMPTOM_SQLSTATES = frozenset({"42P05", "26000"})
"""duplicate_prepared_statement and invalid_sql_statement_name: another client's statement is in the session, or its own is not."""
_PROTOCOL_SQLSTATE = "08P01"
_ROUNDS = 3
_TIMEOUT_S = 10.0


class PoolerDetector:
    """
    A pooler in transaction mode, as far as one client of PostgreSQL has met it. It is looked for once, and an error may show one later.

    Args:
        parameters: The address.
        engine: The name of the client in the log.

    Attributes:
        is_known: It has looked, or seen such an error.
        is_found: There is a pooler.
    """

    def __init__(self, parameters: ConnectionParameters, *, engine: str) -> None:
        self.is_known = False
        self.is_found = False
        self._parameters = parameters
        self._engine = engine
        self._looking = asyncio.Lock()

    async def look(self) -> bool:
        """Look for a pooler unless that is known, and return whether there is one. Without an answer, the next call looks again."""
        async with self._looking:
            if not self.is_known and (is_found := await find_transaction_pooler(self._parameters)) is not None:
                self._record(is_found=is_found)
        return self.is_found

    def note(self, error: BaseException | None) -> bool:
        """Return whether *error* shows a pooler, and remember it."""
        is_symptom = is_pooler_symptom(error)
        if is_symptom:
            self._record(is_found=True)
        return is_symptom

    def _record(self, *, is_found: bool) -> None:
        if is_found and not self.is_found:
            _log.warning("database.transaction_pooler", engine=self._engine, reason=f"{POOLER}: {LOSSES}")
        self.is_known, self.is_found = True, is_found or self.is_found


async def find_transaction_pooler(parameters: ConnectionParameters) -> bool | None:
    """
    Return whether the transactions of one connection run in several sessions of PostgreSQL; None if it does not answer.

    Two connections have two sessions, each its own for as long as it is open. With a pooler, the second one gets the session that the first
    one has just left, and the first one another, since the second one holds it.
    """
    try:
        return await _compare_sessions(parameters)
    except (psycopg.Error, OSError, TimeoutError):
        return None


async def _compare_sessions(parameters: ConnectionParameters) -> bool:
    conninfo = make_conninfo(**{"connect_timeout": str(int(_TIMEOUT_S)), **parameters})
    async with asyncio.timeout(_TIMEOUT_S), contextlib.AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(await psycopg.AsyncConnection.connect(conninfo, prepare_threshold=None)) for _ in range(2)
        ]
        for _ in range(_ROUNDS):
            before = await _fetch_session(first)
            async with second.transaction():
                other = await _fetch_session(second)
                after = await _fetch_session(first)
            if other == before or after != before:
                return True
    return False


def is_pooler_symptom(error: BaseException | None) -> bool:
    """Return whether *error* is of a prepared statement that the session of the server does not have, or has for another client."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate == _PROTOCOL_SQLSTATE:
        return "prepared statement" in str(error)
    return error.sqlstate in _SYMPTOM_SQLSTATES


async def _fetch_session(connection: psycopg.AsyncConnection[tuple[object, ...]]) -> object:
    async with connection.transaction():
        row = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
    return None if row is None else row[0]
