"""Figures over call records: numbers of calls, durations and error rates."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from rookery.access.models import Caller
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.workspace_shares import WorkspaceTurns
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.catalogue_tool import is_tool_allowed
from rookery.tools.models import CallRecord, ToolCallFilter
from rookery.tools.servers.registry import is_server_allowed
from rookery.tools.store import call_stats as store
from rookery.tools.store.call_stats import CallGroupBy, CallStats
from rookery.tools.store.calls import CALLS


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """
    The figures of all matching calls, and of each group.

    Attributes:
        group_count: The total number of groups. `groups` has the first ones, up to the limit.
    """

    total: CallStats
    groups: list[CallStats]
    group_count: int


_MAX_CONCURRENT_REPORTS = 2
"""Limit on concurrent reports. A report over many rows takes seconds, and must not delay the reads of calls and lists."""


class CallAnalytics:
    """Reads call records. Buffered records are written first. The reports of one workspace run one after another."""

    def __init__(self, db: Database, buffer: CallBuffer) -> None:
        self._db = db
        self._buffer = buffer
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REPORTS)
        self._turns = WorkspaceTurns()

    async def load_report(self, caller: Caller, filters: ToolCallFilter, group_by: CallGroupBy, *, limit: int) -> CallReport:
        """Return the figures of the matching calls, limited to the servers and tools that the caller's key may use."""
        await self._buffer.flush()

        def read(tx: Tx) -> CallReport:
            allowed = _restrict_to_caller(tx, caller, filters)
            total = next(iter(store.compute_stats(tx, allowed, None)), CallStats())
            groups = store.compute_stats(tx, allowed, group_by, limit=limit)
            count = len(groups) if len(groups) < limit else store.count_groups(tx, allowed, group_by)
            return CallReport(total=total, groups=groups, group_count=count)

        async with self._turns.take(caller.workspace_id, self._slots):
            return await self._db.read(read)

    async def was_called(self, caller: Caller, server: str, tool: str) -> bool:
        """Return whether a call record of this tool exists that the key may see."""
        filters = ToolCallFilter(workspace_id=caller.workspace_id, server=server, tool=tool)
        return bool((await self.list_calls(caller, filters, page=PageSlice(1))).items)

    async def get_call(self, caller: Caller, call_id: str) -> CallRecord:
        """
        Return one call record.

        Raises:
            NotFound: It does not exist in the caller's workspace, or the key may not use its server or tool.
        """
        await self._buffer.flush()
        call = await self._db.read(lambda tx: CALLS.find(tx, caller.workspace_id, id=call_id))
        if call is None or not (is_server_allowed(caller, call.server_id) and is_tool_allowed(caller, call.server_id, call.tool)):
            raise NotFound("tool call", call_id)
        return call

    async def list_calls(self, caller: Caller, filters: ToolCallFilter, *, page: PageSlice) -> ListPage[CallRecord]:
        """Return one page of matching calls, latest first, and the total number of matches."""
        await self._buffer.flush()
        return await self._db.read(lambda tx: store.list_calls(tx, _restrict_to_caller(tx, caller, filters), page=page))


def _restrict_to_caller(tx: Tx, caller: Caller, filters: ToolCallFilter) -> ToolCallFilter:
    """Return *filters* restricted to the key's allow-lists."""
    filters = replace(filters, servers=caller.servers)
    if caller.tools is None:
        return filters
    called = store.list_called_tools(tx, filters)
    return replace(filters, names=frozenset(f"{server}/{tool}" for server, tool in called if is_tool_allowed(caller, server, tool)))
