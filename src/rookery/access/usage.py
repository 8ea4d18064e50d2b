"""What keys were used for: counted and logged in memory, written together at most a second later (D-29; spec 5.3, step 7)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple

import structlog

from rookery.access.models import Call, CallFilter, KeyKind, Seen, UsageField, UsageFilter, UsageSum
from rookery.access.store import usage as usage_store
from rookery.kernel.clock import Clock, from_micros, to_micros
from rookery.kernel.db import Database, Tx, Value
from rookery.kernel.errors import RookeryError
from rookery.kernel.log_limits import LimitedWarning

_log = structlog.stdlib.get_logger("rookery.access")

_FLUSH_S = 0.5
_MOST_CALLS = 20_000
"""While the record store is down, so many rows are kept; further ones are dropped, the counts never are."""

_BATCH = 2_000

RETENTION = timedelta(days=30)
"""How long single calls are remembered; their sums by day are kept (D-17)."""


class _Row(NamedTuple):
    key_id: str
    workspace_id: int
    at: int
    method: str
    route: str
    status: int
    duration_ms: float
    address: str
    request_id: str


@dataclass(slots=True)
class _Use:
    calls: int
    used_at: int
    used_ip: str


class Usage:
    """
    The buffer between requests and the tables of use.

    Reads of this process go through `flush` first, so who calls and then looks sees the call.
    """

    def __init__(self, db: Database, clock: Clock, *, flush_s: float = _FLUSH_S) -> None:
        self._db = db
        self._clock = clock
        self._flush_s = flush_s
        self._uses: dict[str, _Use] = {}
        self._calls: list[_Row] = []
        self._dropped = 0
        self.dropped = 0
        """How many rows were dropped since the start; for metrics."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._not_written = LimitedWarning(_log, "usage.not_written")
        self._closed = False

    def count(self, key_id: str, now: int, address: str) -> None:
        """Count one admitted request of the key."""
        use = self._uses.get(key_id)
        if use is None:
            self._uses[key_id] = _Use(1, now, address)
        else:
            use.calls += 1
            use.used_at = now
            use.used_ip = address
        if self._timer is None:
            self._arm()

    def log(self, row: tuple[str, int, int, str, str, int, float, str, str]) -> None:
        """Keep one answered request: key id, workspace id, time (µs), method, route, status, ms, address, request id."""
        if len(self._calls) < _MOST_CALLS:
            self._calls.append(_Row._make(row))
        else:
            self._dropped += 1
            self.dropped += 1
        if self._timer is None:
            self._arm()

    async def flush(self) -> None:
        """Write what is buffered; if the record store is down, keep it for the next time and say so in the log."""
        async with self._lock:
            uses, self._uses = self._uses, {}
            made, self._calls = self._calls, []
            if not uses and not made:
                return
            use_rows: list[dict[str, Value]] = [
                {"key_id": key_id, "calls": use.calls, "used_at": use.used_at, "used_ip": use.used_ip}
                for key_id, use in sorted(uses.items())
            ]
            call_rows: list[dict[str, Value]] = [row._asdict() for row in made]
            sums = _by_day(made)
            try:
                await self._db.write(lambda tx: usage_store.add_use(tx, use_rows, call_rows, sums))
            except RookeryError as error:
                self._put_back(uses, made)
                if self._closed:
                    _log.error("usage.calls_lost", calls=len(made), reason=str(error))
                else:
                    self._not_written.warn(reason=str(error), calls=len(made))
                return
            if self._dropped:
                _log.warning("usage.calls_dropped", calls=self._dropped)
                self._dropped = 0

    async def page(self, workspace_id: int, key_id: str, which: CallFilter, *, limit: int, offset: int) -> tuple[list[Call], int]:
        """Return the calls made with a key of the workspace, newest first, and how many there are."""
        await self.flush()
        return await self._db.read(lambda tx: usage_store.page_of_calls(tx, workspace_id, key_id, which, limit=limit, offset=offset))

    async def calls(self, workspace_id: int, key_id: str, which: CallFilter) -> AsyncGenerator[Call]:
        """Yield the calls made with a key, newest first, in batches that cost the same however many went before."""
        await self.flush()
        offset = 0
        while found := await self._db.read(_batch(workspace_id, key_id, which, offset)):
            for call in found:
                yield call
            last = found[-1].at
            seen = sum(call.at == last for call in found)
            # Calls of one moment may lie on both sides of the cut: ask for that moment again, past those that were seen.
            until = last + timedelta(microseconds=1)
            offset = offset + seen if which.until == until else seen
            which = replace(which, until=until)

    async def sums(self, workspace_id: int, kind: KeyKind, which: UsageFilter, by: frozenset[UsageField], *, limit: int) -> list[UsageSum]:
        """
        Return the calls of all keys of a kind, added up, in the order of day, key, method, route and status.

        Args:
            workspace_id: Whose keys.
            kind: Which of them.
            which: Of these, which days.
            by: What to keep apart; empty: one sum of all.
            limit: At most so many.
        """
        await self.flush()
        return await self._db.read(lambda tx: usage_store.sums(tx, workspace_id, kind, which, by, limit=limit))

    async def seen(self) -> Seen:
        """Return from how many addresses how many keys called: one for all suggests a proxy that we are not told of (D-28)."""
        return await self._db.read(usage_store.seen)

    async def forget_old(self) -> int:
        """Delete the calls older than `RETENTION`; return how many."""
        before = to_micros(self._clock() - RETENTION)
        return await self._db.write(lambda tx: usage_store.forget_calls(tx, before=before))

    async def close(self) -> None:
        """Write what is left; what comes later is still counted, and written by whoever flushes."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            await self._flushing
        await self.flush()

    def _arm(self) -> None:
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._start)

    def _start(self) -> None:
        if self._flushing is not None and not self._flushing.done():
            self._arm()
            return
        self._timer = None
        self._flushing = asyncio.get_running_loop().create_task(self.flush())

    def _put_back(self, uses: dict[str, _Use], made: list[_Row]) -> None:
        for key_id, old in uses.items():
            new = self._uses.get(key_id)
            if new is None:
                self._uses[key_id] = old
            else:
                new.calls += old.calls
        room = max(0, _MOST_CALLS - len(self._calls))
        lost = max(0, len(made) - room)
        self._dropped += lost
        self.dropped += lost
        self._calls = made[:room] + self._calls
        if self._timer is None:
            self._arm()


def _batch(workspace_id: int, key_id: str, which: CallFilter, offset: int) -> Callable[[Tx], list[Call]]:
    return lambda tx: usage_store.calls_of(tx, workspace_id, key_id, which, limit=_BATCH, offset=offset)


def _by_day(made: list[_Row]) -> list[dict[str, Value]]:
    """Return *made* added up by day, key, route and status, in one order for all processes, so that they cannot deadlock."""
    sums: defaultdict[tuple[int, str, str, str, str, int], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for row in made:
        name = (row.workspace_id, row.key_id, from_micros(row.at).date().isoformat(), row.method, row.route, row.status)
        calls, total_ms = sums[name]
        sums[name] = (calls + 1, total_ms + row.duration_ms)
    names = ("workspace_id", "key_id", "day", "method", "route", "status")
    return [
        {**dict(zip(names, name, strict=True)), "calls": calls, "total_ms": total_ms} for name, (calls, total_ms) in sorted(sums.items())
    ]
