"""Reports of usage: sums by day, key, agent, model and more, for one workspace or, for the operator, for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, replace

from rookery.access.models import Caller
from rookery.access.workspaces import find_tenant_names, require_workspace
from rookery.kernel import globs
from rookery.kernel.db import Database, Tx
from rookery.kernel.pages import ListPage, PageSlice
from rookery.usage.ledger import UsageLedger
from rookery.usage.models import LedgerFilter, NamedUsage, UsageDimension, UsageGroup
from rookery.usage.ports import UsagePorts, UsedBudget
from rookery.usage.store import reports as store

_BATCH_SIZE = 2_000
_MAX_CONCURRENT_REPORTS = 2
"""Limit on concurrent reports. One over many rows takes a part of a second, and must not delay other reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """
    A page of a report.

    Attributes:
        totals: The sums of all pages, one for each currency.
    """

    groups: ListPage[NamedUsage]
    totals: Sequence[UsageGroup]


class UsageReports:
    """Adds up the ledger. What this process has not written yet is written first."""

    def __init__(self, db: Database, ledger: UsageLedger, ports: UsagePorts) -> None:
        self._db = db
        self._ledger = ledger
        self._ports = ports
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT_REPORTS)

    @property
    def currency(self) -> str:
        return self._ledger.currency

    async def load(
        self, filters: LedgerFilter, by: Collection[UsageDimension], *, page: PageSlice, caller: Caller | None = None
    ) -> UsageReport:
        """
        Return a page of the report.

        Args:
            caller: The caller whose key limits the tools of the report. None: all tools.
        """
        await self._ledger.flush()

        def read(tx: Tx) -> UsageReport:
            allowed = _restrict_tools(tx, filters, caller)
            groups = store.list_groups(tx, allowed, by, currency=self.currency, page=page)
            return UsageReport(
                groups=groups.with_items(self._add_names(tx, groups.items, by)),
                totals=store.list_totals(tx, allowed, currency=self.currency),
            )

        async with self._slots:
            return await self._db.read_from_replica(read)

    async def iter_groups(
        self, filters: LedgerFilter, by: Collection[UsageDimension], *, caller: Caller | None = None
    ) -> AsyncGenerator[NamedUsage]:
        """Yield all groups of the report in order, read in batches."""
        page: PageSlice | None = PageSlice(_BATCH_SIZE)
        while page is not None:
            report = await self.load(filters, by, page=page, caller=caller)
            for group in report.groups.items:
                yield group
            page = report.groups.following(_BATCH_SIZE)

    async def list_budgets(self, workspace_id: int) -> Sequence[UsedBudget]:
        """Return the budgets of a workspace and of its keys that have a limit, with what is used of them."""
        return await self._ports.list_budgets(workspace_id)

    async def require_workspace(self, workspace_id: int) -> None:
        """Raise NotFound unless the workspace exists."""
        await self._db.read(lambda tx: require_workspace(tx, workspace_id, lock=False))

    def _add_names(self, tx: Tx, groups: Sequence[UsageGroup], by: Collection[UsageDimension]) -> list[NamedUsage]:
        keys = sorted({group.key_id for group in groups if group.key_id}) if "key" in by else []
        key_names = self._ports.find_key_names(tx, keys)
        workspace_names = find_tenant_names(tx, {group.tenant for group in groups}) if "workspace" in by else {}
        return [NamedUsage(group, key_names.get(group.key_id), workspace_names.get(group.tenant)) for group in groups]


def _restrict_tools(tx: Tx, filters: LedgerFilter, caller: Caller | None) -> LedgerFilter:
    """Return *filters* limited to the tools that the key of *caller* may use."""
    if caller is None or (caller.servers is None and caller.tools is None):
        return filters
    return replace(filters, tools=frozenset(tool for tool in store.list_tools(tx, filters) if _is_allowed(caller, tool)))


def _is_allowed(caller: Caller, tool: str) -> bool:
    if caller.servers is not None and tool.partition("/")[0] not in caller.servers:
        return False
    return caller.tools is None or any(globs.matches(tool, glob) for glob in caller.tools)
