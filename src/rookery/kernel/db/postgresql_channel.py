"""
Messages between processes by LISTEN and NOTIFY of PostgreSQL.

NOTIFY is never part of a transaction that writes: PostgreSQL commits transactions with a NOTIFY one after another.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

import psycopg
import structlog
from psycopg.conninfo import make_conninfo
from sqlalchemy import bindparam, func, select

from rookery.kernel.db.transaction import Tx
from rookery.kernel.logs import LimitedWarning
from rookery.kernel.postgres_address import add_options, parse_postgres_address
from rookery.kernel.postgres_pooler import POOLER, PoolerDetector

_CHANNEL = "rookery"
_NOTIFY = select(func.pg_notify(_CHANNEL, bindparam("message")))

_CONNECT_TIMEOUT_S = 10
_READ_TIMEOUT_S = 10.0
"""Time without a message after which the listener checks its connection."""
_CHECK_TIMEOUT_S = 5.0
_SEND_BUFFER_TIMEOUT_MS = 30_000
_MIN_DELAY_S = 0.2
_MAX_DELAY_S = 30.0

_OPTIONS = f"-c tcp_user_timeout={_SEND_BUFFER_TIMEOUT_MS}"
"""A listener that no longer reads is disconnected: until then, the server keeps the messages and cannot vacuum newer rows."""

_log = structlog.stdlib.get_logger("rookery.database")


class PostgresChannel:
    """
    A `MessageChannel` on the database at *url*.

    Args:
        lookup: `Database.lookup` of the record store at *url*, which sends the messages. The listener has a connection of its own.
    """

    def __init__(self, url: str, lookup: Callable[[Callable[[Tx], object]], Awaitable[object]]) -> None:
        own = {"fallback_application_name": "rookery listener", "connect_timeout": str(_CONNECT_TIMEOUT_S)}
        self._parameters = parse_postgres_address(url, setting="ROOKERY_DATABASE_URL")
        self._pooler = PoolerDetector(self._parameters, engine="listener")
        self._connection_info = make_conninfo(**add_options(own | self._parameters, _OPTIONS))
        self._lookup = lookup

    async def send(self, message: str) -> None:
        await self._lookup(lambda tx: tx.fetch_one(_NOTIFY, {"message": message}))

    async def listen(self, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> NoReturn:
        warning = LimitedWarning(_log, "database.listener_disconnected")
        delay_s = _MIN_DELAY_S
        while not await self._pooler.look():  # through one, no message would arrive
            started_s = time.monotonic()
            try:
                await self._listen_once(on_connect, on_message)
            except (psycopg.Error, OSError, TimeoutError) as error:
                warning.warn(reason=type(error).__name__)
            if time.monotonic() - started_s > _MAX_DELAY_S:
                delay_s = _MIN_DELAY_S
            await asyncio.sleep(delay_s * random.uniform(0.5, 1))  # noqa: S311 - jitter, not a secret
            delay_s = min(2 * delay_s, _MAX_DELAY_S)
        _log.warning("database.listener_off", reason=f"{POOLER}: this process sees the changes of others at its next poll")
        await asyncio.Event().wait()
        raise AssertionError  # unreachable: nobody sets the event

    async def _listen_once(self, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> NoReturn:
        async with await self._connect() as connection:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                await connection.execute(f"LISTEN {_CHANNEL}")
            on_connect()
            while True:
                async for notification in connection.notifies(timeout=_READ_TIMEOUT_S):
                    on_message(notification.payload)
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await connection.execute("SELECT 1")

    async def _connect(self) -> psycopg.AsyncConnection[tuple[object, ...]]:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await psycopg.AsyncConnection.connect(self._connection_info, autocommit=True)
