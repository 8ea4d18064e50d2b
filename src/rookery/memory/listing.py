"""Lists of memories by page, and of tags and scopes with counts; one visibility rule applies to all (D-43)."""

from __future__ import annotations

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.access_filter import build_access_filter
from rookery.memory.models import Memory, MemoryFilter, MemoryState, NameCount, OrgCount
from rookery.memory.store import queries


class Listing:
    """
    A reader of lists and counts of the memories that a caller may see.

    Args:
        model: The embedder's model. Memories indexed with another model are stale (D-54).
    """

    def __init__(self, *, db: Database, clock: Clock, model: str) -> None:
        self._db = db
        self._clock = clock
        self._model = model

    async def list_page(
        self, caller: Caller, memory_filter: MemoryFilter, *, state: MemoryState | None, limit: int, offset: int
    ) -> tuple[list[Memory], int]:
        """Return one page of memories, newest first, and their total number. With *state* None, all but archived ones."""
        access = build_access_filter(caller, memory_filter, at=self._clock(), is_list=True)
        return await self._db.read(lambda tx: queries.list_page(tx, access, state, model=self._model, limit=limit, offset=offset))

    async def count_tags(self, caller: Caller, memory_filter: MemoryFilter) -> list[NameCount]:
        """Return the tags with the number of memories that have them, most frequent first."""
        access = build_access_filter(caller, memory_filter, at=self._clock(), is_list=True)
        return await self._db.read(lambda tx: queries.count_tags(tx, access))

    async def count_scopes(self, caller: Caller, memory_filter: MemoryFilter) -> list[OrgCount]:
        """Return the orgs and their projects with the number of memories in each, largest first."""
        access = build_access_filter(caller, memory_filter, at=self._clock(), is_list=True)
        return await self._db.read(lambda tx: queries.count_scopes(tx, access))
