"""How often, how fast, how wrong: figures over the rows that calls leave (D-38)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from weakref import WeakValueDictionary

from rookery.access.models import Caller
from rookery.kernel.db import Database, Tx
from rookery.tools.calling.journal import Journal
from rookery.tools.models import CallRow
from rookery.tools.past_calls import CallFigures, Selection
from rookery.tools.store import figures as store
from rookery.tools.store.figures import By


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    Figures of all chosen calls together, and of each group.

    Attributes:
        group_count: How many groups there are; the report has the first of them.
    """

    total: CallFigures
    groups: list[CallFigures]
    group_count: int


_AT_ONCE = 2
"""Reports that are being read: over many rows one takes seconds, and what calls and lists read must not wait behind them all."""


class Analytics:
    """Reads rows; those that this process has not written yet are written first. A workspace's reports come one after another."""

    def __init__(self, db: Database, journal: Journal) -> None:
        self._db = db
        self._journal = journal
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def report(self, caller: Caller, chosen: Selection, by: By, *, limit: int) -> Report:
        """Return the figures of the calls of *chosen* that are the caller's business: of servers and tools that its key reaches."""
        await self._journal.flush()

        def read(tx: Tx) -> Report:
            allowed = _allowed(tx, caller, chosen)
            total = next(iter(store.figures(tx, allowed, None)), CallFigures())
            groups = store.figures(tx, allowed, by, limit=limit)
            count = len(groups) if len(groups) < limit else store.group_count(tx, allowed, by)
            return Report(total=total, groups=groups, group_count=count)

        # Its workspace's turn first: whoever asks for a hundred at once waits for them alone.
        turn = self._turns.setdefault(caller.workspace_id, asyncio.Lock())
        async with turn, self._places:
            return await self._db.read(read)

    async def was_called(self, caller: Caller, server: str, tool: str) -> bool:
        """Tell whether any row is left of a tool that the key reaches."""
        chosen = Selection(workspace_id=caller.workspace_id, server=server, tool=tool)
        return bool((await self.calls(caller, chosen, limit=1, offset=0))[0])

    async def calls(self, caller: Caller, chosen: Selection, *, limit: int, offset: int) -> tuple[list[CallRow], int]:
        """Return one page of such calls, the latest first, and how many there are in all."""
        await self._journal.flush()
        return await self._db.read(lambda tx: store.calls_page(tx, _allowed(tx, caller, chosen), limit=limit, offset=offset))


def _allowed(tx: Tx, caller: Caller, chosen: Selection) -> Selection:
    """Return *chosen* without what the key's allow-lists leave out (D-23)."""
    chosen = replace(chosen, servers=caller.servers)
    globs = caller.tools
    if globs is None:
        return chosen
    called = [f"{server}/{tool}" for server, tool in store.names(tx, chosen)]
    return replace(chosen, names=frozenset(name for name in called if any(fnmatchcase(name, glob) for glob in globs)))
