"""How often, how fast, how wrong: figures over the rows that calls leave (D-38)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from weakref import WeakValueDictionary

from rookery.access.models import Caller
from rookery.kernel.db import Database, Tx
from rookery.tools.call_stats import CallStats, ToolCallFilter
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.models import CallRecord
from rookery.tools.store import call_stats as store
from rookery.tools.store.call_stats import CallGroupBy


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """
    Figures of all chosen calls together, and of each group.

    Attributes:
        group_count: How many groups there are; the report has the first of them.
    """

    total: CallStats
    groups: list[CallStats]
    group_count: int


_MAX_CONCURRENT_REPORTS = 2
"""Reports that are being read: over many rows one takes seconds, and what calls and lists read must not wait behind them all."""


class CallAnalytics:
    """Reads rows; those that this process has not written yet are written first. A workspace's reports come one after another."""

    def __init__(self, db: Database, buffer: CallBuffer) -> None:
        self._db = db
        self._buffer = buffer
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REPORTS)
        self._workspace_locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def load_report(self, caller: Caller, filters: ToolCallFilter, actor: CallGroupBy, *, limit: int) -> CallReport:
        """Return the figures of the calls of *filters* that are the caller's business: of servers and tools that its key reaches."""
        await self._buffer.flush()

        def read(tx: Tx) -> CallReport:
            allowed = _restrict_to_caller(tx, caller, filters)
            total = next(iter(store.compute_stats(tx, allowed, None)), CallStats())
            groups = store.compute_stats(tx, allowed, actor, limit=limit)
            count = len(groups) if len(groups) < limit else store.count_groups(tx, allowed, actor)
            return CallReport(total=total, groups=groups, group_count=count)

        # Its workspace's turn first: whoever asks for a hundred at once waits for them alone.
        turn = self._workspace_locks.setdefault(caller.workspace_id, asyncio.Lock())
        async with turn, self._slots:
            return await self._db.read(read)

    async def was_called(self, caller: Caller, server: str, tool: str) -> bool:
        """Return whether any row is left of a tool that the key reaches."""
        chosen = ToolCallFilter(workspace_id=caller.workspace_id, server=server, tool=tool)
        return bool((await self.list_calls(caller, chosen, limit=1, offset=0))[0])

    async def list_calls(self, caller: Caller, filters: ToolCallFilter, *, limit: int, offset: int) -> tuple[list[CallRecord], int]:
        """Return one page of such calls, the latest first, and how many there are in all."""
        await self._buffer.flush()
        return await self._db.read(lambda tx: store.list_calls(tx, _restrict_to_caller(tx, caller, filters), limit=limit, offset=offset))


def _restrict_to_caller(tx: Tx, caller: Caller, filters: ToolCallFilter) -> ToolCallFilter:
    """Return *filters* without what the key's allow-lists leave out (D-23)."""
    filters = replace(filters, servers=caller.servers)
    globs = caller.tools
    if globs is None:
        return filters
    called = [f"{server}/{tool}" for server, tool in store.list_called_tools(tx, filters)]
    return replace(filters, names=frozenset(name for name in called if any(fnmatchcase(name, glob) for glob in globs)))
