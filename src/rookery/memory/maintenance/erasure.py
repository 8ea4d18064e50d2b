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
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.ports import ErasableStore
from rookery.memory.store import runs

ErasureKind = Literal["traces of what was deleted", "traces of what was cleaned"]
"""The second is settled once the indexes have been brought to the clean texts, too."""

DELETED_TEXT: ErasureKind = "traces of what was deleted"
CLEANED_TEXT: ErasureKind = "traces of what was cleaned"


class Erasure:
    """Settles what commands owe; *stores* are those that keep traces on this host's disk."""

    def __init__(self, *, db: Database, stores: Sequence[ErasableStore], clock: Clock) -> None:
        self._db = db
        self._stores = tuple(stores)
        self._clock = clock

    def add_pending(self, tx: Tx, kind: ErasureKind) -> None:
        """Note, in the transaction that deletes or replaces, that traces are left."""
        add_pending_erasure(tx, kind, clock=self._clock)

    async def list_pending(self) -> list[RunCheckpoint]:
        """Return what is owed, and since when."""
        return await self._db.read(
            lambda tx: [mark for debt in (DELETED_TEXT, CLEANED_TEXT) if (mark := runs.get_checkpoint(tx, debt)) is not None]
        )

    async def run(self, *, is_reindexed: bool = False) -> str | None:
        """
        Leave no traces, if any are owed; return why there still are some.

        Args:
            is_reindexed: The indexes have nothing any more of what was cleaned, so that this is settled too.
        """
        found = await self.list_pending()
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
        settled = [mark for mark in found if mark.name == DELETED_TEXT or is_reindexed]
        await self._db.write(lambda tx: _delete_pending(tx, settled))
        return None


def add_pending_erasure(tx: Tx, kind: ErasureKind, *, clock: Clock) -> None:
    """Do as `Erasing.owe`, for who has none."""
    runs.save_checkpoint(tx, RunCheckpoint(name=kind, workspace_id=None, cursor="", done=0, at=clock()))


def _delete_pending(tx: Tx, checkpoints: Sequence[RunCheckpoint]) -> None:
    for mark in checkpoints:
        now = runs.get_checkpoint(tx, mark.name)
        if now is not None and now.at == mark.at:  # else somebody deleted more meanwhile
            runs.delete_checkpoint(tx, mark.name)
