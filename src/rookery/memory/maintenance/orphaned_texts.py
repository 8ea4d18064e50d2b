"""
Texts in the full-text index that belong to no memory.

A request that stores a memory writes its words while the record is being stored. If the process is killed before the record is
committed, the words stay without a memory. No search returns them, but they are content.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

import structlog

from rookery.kernel.db import Database, Tx
from rookery.memory.indexing import Indexer
from rookery.memory.ports import TextIndex
from rookery.memory.store import records

_PAGE_SIZE = 500
_RECOUNT_DELAY_S = 1.0
"""Time after which a text still has no memory, unless its request was killed."""

_log = structlog.stdlib.get_logger("rookery.memory")

TextKey = tuple[int, str]
"""The ids of a workspace and of a memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanedTexts:
    """The search for texts without a memory, and their removal. Safe while a server runs, and with every full-text index."""

    db: Database
    texts: TextIndex
    indexer: Indexer

    async def count(self) -> int:
        """
        Return the number of texts without a memory, without those of requests in progress.

        Raises:
            EngineUnavailable: The record store or the full-text index is down.
        """
        orphans = [key async for page in self._find() for key in page]
        if orphans:
            await asyncio.sleep(_RECOUNT_DELAY_S)
        return len(await self._list_absent(orphans))

    async def remove(self) -> int:
        """
        Remove the texts without a memory from the index and return their number.

        A memory whose record is committed meanwhile is indexed again.

        Raises:
            EngineUnavailable: The record store or the full-text index is down.
        """
        removed = 0
        async for orphans in self._find():
            by_workspace = dict[int, list[str]]()
            for workspace_id, memory_id in orphans:
                by_workspace.setdefault(workspace_id, []).append(memory_id)
            for workspace_id, ids in by_workspace.items():
                await self.indexer.delete(workspace_id, ids)
            removed += len(await self._list_absent(orphans))
        if removed:
            _log.warning("memory.orphaned_texts_removed", texts=removed)
        return removed

    async def _find(self) -> AsyncIterator[list[TextKey]]:
        after: TextKey | None = None
        while page := await self.texts.list_ids(after=after, limit=_PAGE_SIZE):
            if orphans := await self._list_absent(page):
                yield orphans
            after = page[-1]

    async def _list_absent(self, keys: Sequence[TextKey]) -> list[TextKey]:
        """Return those of *keys* that have no record."""

        def read(tx: Tx) -> frozenset[TextKey]:
            return frozenset(
                (workspace_id, memory_id)
                for workspace_id, group in itertools.groupby(sorted(keys), key=itemgetter(0))
                for memory_id in records.list_present(tx, workspace_id, [memory_id for _, memory_id in group])
            )

        present = await self.db.read(read) if keys else frozenset[TextKey]()
        return [key for key in keys if key not in present]
