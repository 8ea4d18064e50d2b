"""The usage of keys, buffered in memory and written in batches at most one second later."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from rookery.access.models import AddressStats, CallFilter, KeyCall, KeyKind, UsageField, UsageFilter, UsageSum
from rookery.access.store import usage as usage_store
from rookery.kernel.clock import Clock, from_micros, to_micros
from rookery.kernel.db import Database, Tx, Value
from rookery.kernel.errors import RookeryError
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.write_buffer import WriteBuffer

_FLUSH_INTERVAL_S = 0.5
_MAX_BUFFERED_CALLS = 20_000
"""Rows buffered while the record store is unavailable. Further rows are dropped; the counts are kept."""

_BATCH_SIZE = 2_000

RETENTION = timedelta(days=30)
"""Retention of single calls. Totals by day are kept."""


class _BufferedCall(NamedTuple):
    key_id: str
    workspace_id: int
    at: int
    method: str
    route: str
    status: int
    duration_ms: float
    is_upstream_error: int
    address: str
    request_id: str


@dataclass(slots=True)
class _BufferedUsage:
    calls: int
    used_at: int
    used_ip: str


class UsageLog:
    """
    A write buffer in front of the usage tables.

    Reads call `flush` first, so a client sees its own earlier calls to this process.
    """

    def __init__(
        self, db: Database, clock: Clock, *, flush_interval_s: float = _FLUSH_INTERVAL_S, max_calls: int = _MAX_BUFFERED_CALLS
    ) -> None:
        self._db = db
        self._clock = clock
        self._usage_by_key: dict[str, _BufferedUsage] = {}
        self._calls = WriteBuffer[_BufferedCall](
            self._write, name="usage.calls", delay_s=flush_interval_s, max_rows=max_calls, batch_size=max_calls
        )

    def count_request(self, key_id: str, now: int, address: str) -> None:
        """Count one admitted request of a key."""
        usage = self._usage_by_key.get(key_id)
        if usage is None:
            self._usage_by_key[key_id] = _BufferedUsage(1, now, address)
        else:
            usage.calls += 1
            usage.used_at = now
            usage.used_ip = address
        self._calls.wake()

    def log_request(self, row: tuple[str, int, int, str, str, int, float, int, str, str]) -> None:
        """Buffer one answered request: the columns of `access_calls` in their order, from the key's id on."""
        self._calls.add(_BufferedCall._make(row))

    async def flush(self) -> None:
        """Write the buffer. If the record store is unavailable, the buffer stays for the next time."""
        with contextlib.suppress(RookeryError):
            await self._calls.flush()

    @property
    def dropped_count(self) -> int:
        """Number of rows dropped since the start; for metrics."""
        return self._calls.dropped

    async def list_call_page(self, workspace_id: int, key_id: str, filters: CallFilter, *, page: PageSlice) -> ListPage[KeyCall]:
        """Return a page of the calls of a key, newest first, and the total."""
        await self.flush()
        return await self._db.read_from_replica(lambda tx: usage_store.list_call_page(tx, workspace_id, key_id, filters, page=page))

    async def iter_calls(self, workspace_id: int, key_id: str, filters: CallFilter) -> AsyncGenerator[KeyCall]:
        """Yield the calls of a key, newest first. Every batch costs the same, however far it is from the first."""
        await self.flush()
        page: PageSlice | None = PageSlice(_BATCH_SIZE)
        while page is not None:
            call_page = await self._db.read(_select_batch(workspace_id, key_id, filters, page))
            for call in call_page.items:
                yield call
            page = call_page.following(_BATCH_SIZE)

    async def list_sums(
        self, workspace_id: int, kind: KeyKind, filters: UsageFilter, by: frozenset[UsageField], *, limit: int
    ) -> list[UsageSum]:
        """
        Return the totals of all keys of a kind, ordered by day, key, method, route and status.

        Args:
            workspace_id: The owner of the keys.
            kind: The kind of keys.
            filters: The filter of keys and days.
            by: Fields to group by; empty: one total.
            limit: Maximum number of groups.
        """
        await self.flush()
        return await self._db.read_from_replica(lambda tx: usage_store.list_sums(tx, workspace_id, kind, filters, by, limit=limit))

    async def get_address_stats(self) -> AddressStats:
        """Return the numbers of addresses and keys. A single address for all keys suggests a proxy missing in the settings."""
        return await self._db.read(usage_store.get_address_stats)

    async def delete_old_calls(self) -> int:
        """Delete the calls older than `RETENTION`; return the number."""
        before = to_micros(self._clock() - RETENTION)
        return await self._db.write(lambda tx: usage_store.delete_old_calls(tx, before=before))

    async def close(self) -> None:
        """Write the buffer and stop writing in the background."""
        await self._calls.aclose()

    async def _write(self, calls: Sequence[_BufferedCall]) -> None:
        usages, self._usage_by_key = self._usage_by_key, {}
        usage_rows: list[dict[str, Value]] = [
            {"key_id": key_id, "calls": usage.calls, "used_at": usage.used_at, "used_ip": usage.used_ip}
            for key_id, usage in sorted(usages.items())
        ]
        call_rows: list[dict[str, Value]] = [row._asdict() for row in calls]
        sums = _sum_by_day(calls)
        try:
            await self._db.write(lambda tx: usage_store.add_usage(tx, usage_rows, call_rows, sums))
        except BaseException:
            self._restore_usage(usages)
            raise

    def _restore_usage(self, usages: dict[str, _BufferedUsage]) -> None:
        for key_id, old in usages.items():
            new = self._usage_by_key.get(key_id)
            if new is None:
                self._usage_by_key[key_id] = old
            else:
                new.calls += old.calls


def _select_batch(workspace_id: int, key_id: str, filters: CallFilter, page: PageSlice) -> Callable[[Tx], ListPage[KeyCall]]:
    return lambda tx: usage_store.list_calls(tx, workspace_id, key_id, filters, page=page)


def _sum_by_day(rows: Sequence[_BufferedCall]) -> list[dict[str, Value]]:
    """Return the totals by day, key, route and status, sorted so that processes lock rows in one order and cannot deadlock."""
    sums: defaultdict[tuple[int, str, str, str, str, int], tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))
    for row in rows:
        name = (row.workspace_id, row.key_id, from_micros(row.at).date().isoformat(), row.method, row.route, row.status)
        calls, upstream_errors, total_ms = sums[name]
        sums[name] = (calls + 1, upstream_errors + row.is_upstream_error, total_ms + row.duration_ms)
    names = ("workspace_id", "key_id", "day", "method", "route", "status")
    return [
        {**dict(zip(names, name, strict=True)), "calls": calls, "upstream_errors": upstream_errors, "total_ms": total_ms}
        for name, (calls, upstream_errors, total_ms) in sorted(sums.items())
    ]
