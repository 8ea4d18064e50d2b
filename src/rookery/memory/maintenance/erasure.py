"""
Erasure of deleted data from all files: free pages, logs, index segments and caches.

It rewrites whole indexes, so it does not run at each deletion but once, at the end of a command that must leave no trace. A pending
erasure is stored in the transaction of the deletion, so a killed command leaves it to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.memory.batch_runs import RunCheckpoint
from rookery.memory.maintenance.orphaned_texts import OrphanedTexts
from rookery.memory.ports import ErasableStore
from rookery.memory.store import maintenance
from rookery.memory.store.maintenance import CLEANED_TEXT, DELETED_TEXT, ErasureKind


class Erasure:
    """
    A runner of pending erasures.

    Args:
        stores: Those with files on this host's disk.
        orphans: The texts without a memory, which are removed before. None: they are not looked for.
    """

    def __init__(self, *, db: Database, stores: Sequence[ErasableStore], clock: Clock, orphans: OrphanedTexts | None = None) -> None:
        self._db = db
        self._orphans = orphans
        self._stores = tuple(stores)
        self._clock = clock

    def add_pending(self, tx: Tx, kind: ErasureKind) -> None:
        """Record a pending erasure, in the transaction that deletes or replaces data."""
        maintenance.add_pending_erasure(tx, kind, at=self._clock())

    async def list_pending(self) -> list[RunCheckpoint]:
        """Return the pending erasures, with the time since when they are pending."""
        return await self._db.read(
            lambda tx: [
                checkpoint for kind in (DELETED_TEXT, CLEANED_TEXT) if (checkpoint := maintenance.get_checkpoint(tx, kind)) is not None
            ]
        )

    async def run(self, *, is_reindexed: bool = False) -> str | None:
        """
        Run the pending erasures. Return the reason if some data remains, else None.

        Args:
            is_reindexed: The indexes no longer hold the texts that were cleaned, so their erasure is complete too.
        """
        checkpoints = await self.list_pending()
        if not checkpoints:
            return None
        reasons = list[str]()
        if self._orphans is not None:
            try:
                await self._orphans.remove()
            except OUTAGES as error:
                reasons.append(error.message)
        for store in self._stores:
            try:
                await store.erase()
            except OUTAGES as error:
                reasons.append(error.message)
        if reasons:
            return f"{'; '.join(reasons)} Deleted data is not yet erased from all files."
        erased = [checkpoint for checkpoint in checkpoints if checkpoint.name == DELETED_TEXT or is_reindexed]
        await self._db.write(lambda tx: _delete_pending(tx, erased))
        return None


def _delete_pending(tx: Tx, checkpoints: Sequence[RunCheckpoint]) -> None:
    for checkpoint in checkpoints:
        current = maintenance.get_checkpoint(tx, checkpoint.name)
        if current is not None and current.at == checkpoint.at:  # otherwise more was deleted meanwhile
            maintenance.delete_checkpoint(tx, checkpoint.name)
