"""
A record store whose lists are read from a read replica, as long as the replica has what the reader may expect.

The rule: a position of the primary's log is noted together with the time. Once the replica has replayed that position, it has every commit
before that time. It serves a read of a request only if no request of the same workspace to this process has committed anything since
then, so that clients do not miss their own writes, and if that time is not longer ago than the greatest lag. In all other cases the primary
serves. A read outside a request, such as that of a command, must not miss any commit of this process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol, TypeVar

import structlog
from sqlalchemy import BigInteger, ColumnClause, cast, func, literal_column, select

from rookery.kernel.db.transaction import Dialect, Tx, fetch_count
from rookery.kernel.errors import OUTAGES
from rookery.kernel.logs import LimitedWarning
from rookery.kernel.request_context import CURRENT_REQUEST

T = TypeVar("T")

_CHECK_INTERVAL_S = 0.25
_CHECK_TIMEOUT_S = 5.0
_FAILURE_DELAY_S = 2.0
_READ_TIMEOUT_S = 30.0

_log = structlog.stdlib.get_logger("rookery.database")

_START: ColumnClause[Any] = literal_column("'0/0'::pg_lsn")
# Positions that are not flushed count too: a commit that does not wait for the disk is behind them.
_SELECT_POSITION = select(cast(func.pg_wal_lsn_diff(func.pg_current_wal_insert_lsn(), _START), BigInteger))
_SELECT_REPLAYED = select(cast(func.pg_wal_lsn_diff(func.pg_last_wal_replay_lsn(), _START), BigInteger)).where(func.pg_is_in_recovery())


class _Store(Protocol):
    @property
    def dialect(self) -> Dialect: ...

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T: ...

    async def read(self, work: Callable[[Tx], T]) -> T: ...

    async def lookup(self, work: Callable[[Tx], T]) -> T: ...

    async def close(self) -> None: ...


class ReplicatedDatabase:
    """
    A `Database` on a primary and a read replica of it.

    Args:
        max_lag_s: The replica serves nothing if it may lack commits that are older than this.
    """

    def __init__(self, primary: _Store, replica: _Store, *, max_lag_s: float) -> None:
        self._primary = primary
        self._replica = replica
        self._max_lag_s = max_lag_s
        self._last_commits_s: dict[int | None, float] = {}
        """Monotonic times of the last commits by the workspace of the request; None: outside requests."""
        self._complete_until_s = float("-inf")
        self._noted = (0, float("-inf"))
        """A position of the primary's log, and a time before it was noted. Bytes, and monotonic seconds."""
        self._checker: asyncio.Task[None] | None = None
        self._warning = LimitedWarning(_log, "database.replica_unavailable")

    @property
    def dialect(self) -> Dialect:
        return self._primary.dialect

    def _is_replica_complete(self) -> bool:
        """Return whether the replica may serve a read of the current request, or one outside requests, now."""
        if time.monotonic() - self._complete_until_s > self._max_lag_s:
            return False
        workspace_id = _get_workspace_id()
        if workspace_id is None:
            return all(committed_s < self._complete_until_s for committed_s in self._last_commits_s.values())
        return self._last_commits_s.get(workspace_id, float("-inf")) < self._complete_until_s

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        # The commit of a cancelled or failed transaction may have reached the primary.
        try:
            return await self._primary.write(work, is_synced=is_synced)
        finally:
            self._last_commits_s[_get_workspace_id()] = time.monotonic()

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._primary.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await self._primary.lookup(work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        if self._checker is None:
            self._checker = asyncio.create_task(self._check_forever(), name="database-replica")
        if not self._is_replica_complete():
            return await self._primary.read(work)
        try:
            async with asyncio.timeout(_READ_TIMEOUT_S):
                return await self._replica.read(work)
        except (TimeoutError, *OUTAGES) as error:
            self._complete_until_s = float("-inf")
            self._warning.warn(reason=str(error))
            return await self._primary.read(work)

    async def close(self) -> None:
        if self._checker is not None:
            self._checker.cancel()
            await asyncio.wait({self._checker})
        await self._replica.close()
        await self._primary.close()

    async def _check_forever(self) -> NoReturn:
        while True:
            try:
                async with asyncio.timeout(_CHECK_TIMEOUT_S):
                    await self._check()
                await asyncio.sleep(_CHECK_INTERVAL_S)
            except (TimeoutError, *OUTAGES) as error:
                self._complete_until_s, self._noted = float("-inf"), (0, float("-inf"))
                self._warning.warn(reason=str(error))
                await asyncio.sleep(_FAILURE_DELAY_S)

    async def _check(self) -> None:
        """Note a position of the primary. If the replica has replayed the one noted before, it is complete up to that time."""
        replayed = await self._replica.lookup(lambda tx: fetch_count(tx, _SELECT_REPLAYED))
        position, noted_s = self._noted
        if replayed < position:
            return
        self._complete_until_s = noted_s
        self._last_commits_s = {workspace: at_s for workspace, at_s in self._last_commits_s.items() if at_s >= noted_s}
        noted_s = time.monotonic()
        self._noted = (await self._primary.lookup(lambda tx: fetch_count(tx, _SELECT_POSITION)), noted_s)


def _get_workspace_id() -> int | None:
    request = CURRENT_REQUEST.get()
    caller = request.caller() if request is not None else None
    return caller.public_workspace_id if caller is not None else None
