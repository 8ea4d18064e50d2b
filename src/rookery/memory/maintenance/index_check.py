"""Comparison of the number of memories in each index with the number that the records mark as indexed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.ports import IndexName, TextIndex, VectorIndex
from rookery.memory.store import queries

MAX_COUNTS = 3
"""Counts per workspace before memories count as missing, because others may write meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexGap:
    """
    An index that holds fewer memories of a workspace than expected.

    Attributes:
        expected: Live memories that the records mark as indexed by the current embedding model.
        missing: The minimum number of them that the index lacks.
    """

    workspace_id: int
    index: IndexName
    expected: int
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexComparison:
    """The result of a comparison: the number of memories expected in each index, and the gaps."""

    expected: int
    gaps: tuple[IndexGap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCheck:
    """
    A read-only comparison of the indexes with the records. Safe while a server runs.

    Surplus memories in an index are not reported: memories that are being written or deleted are among them.
    """

    db: Database
    vectors: VectorIndex
    texts: TextIndex
    clock: Clock
    model: str

    async def compare(self) -> IndexComparison:
        """
        Compare both indexes of every workspace.

        Raises:
            EngineUnavailable: The record store or an index is down.
        """
        expected = await self._count_expected(None)
        gaps = list[IndexGap]()
        for workspace_id in sorted(expected):
            gaps += await self._find_gaps(workspace_id)
        return IndexComparison(expected=sum(expected.values()), gaps=tuple(gaps))

    async def _find_gaps(self, workspace_id: int) -> list[IndexGap]:
        """Return the smallest gaps of several counts. A memory that is replaced between two counts is missing in one count only."""
        smallest = await self._count_missing(workspace_id)
        for _ in range(MAX_COUNTS - 1):
            if not smallest:
                break
            recount = await self._count_missing(workspace_id)
            smallest = {
                name: min(gap, recount[name], key=lambda candidate: candidate.missing) for name, gap in smallest.items() if name in recount
            }
        return list(smallest.values())

    async def _count_missing(self, workspace_id: int) -> dict[IndexName, IndexGap]:
        before = (await self._count_expected(workspace_id)).get(workspace_id, 0)
        in_vectors, in_texts = await asyncio.gather(self.vectors.count(workspace_id), self.texts.count(workspace_id))
        # A memory is deleted from the records before the indexes, so the second count excludes memories deleted just now.
        expected = min(before, (await self._count_expected(workspace_id)).get(workspace_id, 0))
        counts: dict[IndexName, int] = {"vectors": in_vectors, "texts": in_texts}
        return {
            name: IndexGap(workspace_id=workspace_id, index=name, expected=expected, missing=expected - count)
            for name, count in counts.items()
            if count < expected
        }

    async def _count_expected(self, workspace_id: int | None) -> dict[int, int]:
        at = self.clock()
        return await self.db.read(lambda tx: queries.count_indexed(tx, at=at, model=self.model, workspace_id=workspace_id))
