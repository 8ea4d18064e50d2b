"""
What is deleted for good is to be in no file any more: nor in a free page, a log, a segment of an index, a cache (D-41).

That costs the writing of whole indexes, so it is not done at each deletion but once, at the end of a command that was to leave no
trace. Whether it is owed stands in the records, in the transaction that deletes: a command that was killed leaves it to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.memory.ports import Traces
from rookery.memory.runs import Mark
from rookery.memory.store import runs

Debt = Literal["traces of what was deleted", "traces of what was cleaned"]
"""The second is settled once the indexes have been brought to the clean texts, too."""

DELETED: Debt = "traces of what was deleted"
CLEANED: Debt = "traces of what was cleaned"


class Erasing:
    """Settles what commands owe; *stores* are those that keep traces on this host's disk."""

    def __init__(self, *, db: Database, stores: Sequence[Traces], clock: Clock) -> None:
        self._db = db
        self._stores = tuple(stores)
        self._clock = clock

    def owe(self, tx: Tx, debt: Debt) -> None:
        """Note, in the transaction that deletes or replaces, that traces are left."""
        owe(tx, debt, clock=self._clock)

    async def owed(self) -> list[Mark]:
        """Return what is owed, and since when."""
        return await self._db.read(lambda tx: [mark for debt in (DELETED, CLEANED) if (mark := runs.one(tx, debt)) is not None])

    async def settle(self, *, is_reindexed: bool = False) -> str | None:
        """
        Leave no traces, if any are owed; return why there still are some.

        Args:
            is_reindexed: The indexes have nothing any more of what was cleaned, so that this is settled too.
        """
        found = await self.owed()
        if not found:
            return None
        reasons = list[str]()
        for store in self._stores:
            try:
                await store.erase()
            except OUTAGES as error:
                reasons.append(error.message)
        if reasons:
            return f"{'; '.join(reasons)} Traces of what was deleted are left in files."
        settled = [mark for mark in found if mark.name == DELETED or is_reindexed]
        await self._db.write(lambda tx: _settle(tx, settled))
        return None


def owe(tx: Tx, debt: Debt, *, clock: Clock) -> None:
    """Do as `Erasing.owe`, for who has none."""
    runs.keep(tx, Mark(name=debt, workspace_id=None, cursor="", done=0, at=clock()))


def _settle(tx: Tx, settled: Sequence[Mark]) -> None:
    for mark in settled:
        now = runs.one(tx, mark.name)
        if now is not None and now.at == mark.at:  # else somebody deleted more meanwhile
            runs.drop(tx, mark.name)
