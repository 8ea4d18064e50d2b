"""The ledger of usage, to which every domain adds in the transaction of its own change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rookery.access.workspaces import lock_existing_tenants
from rookery.kernel.db import Tx
from rookery.usage.models import SERVER_TENANT, UsageEntry
from rookery.usage.store import ledger as store


class UsageLedger:
    """
    Sums of usage by day.

    Attributes:
        currency: The currency of the costs.
    """

    def __init__(self, currency: str) -> None:
        self.currency = currency
        self._flushes = list[Callable[[], Awaitable[None]]]()

    def add(self, tx: Tx, entry: UsageEntry) -> None:
        """Add *entry*. Its tenant is locked or has a row that *tx* has changed, so that it is not deleted at the same time."""
        store.add_entries(tx, [entry], currency=self.currency)

    def add_late(self, tx: Tx, entries: Sequence[UsageEntry]) -> None:
        """Add entries that waited in a buffer. Those of tenants that were deleted meanwhile are dropped."""
        tenants = lock_existing_tenants(tx, {entry.workspace_id for entry in entries}) | {SERVER_TENANT}
        store.add_entries(tx, [entry for entry in entries if entry.workspace_id in tenants], currency=self.currency)

    def flush_before_reports(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Call *flush*, which writes a buffer of entries, before each report."""
        self._flushes.append(flush)

    async def flush(self) -> None:
        """Write all buffers of this process."""
        for flush in self._flushes:
            await flush()
