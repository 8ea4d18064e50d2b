"""The operation of usage: the report of what keys, agents, models and tools used, and of its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.access.scopes import ALL_WORKSPACES_SCOPE
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import ItemPage, Operation
from rookery.kernel.http.responses import CSV_MEDIA_TYPE, stream_csv_response, wants_csv
from rookery.usage.models import UsageDimension
from rookery.usage.reports import UsageReports
from rookery.usage.schemas import UsageReportQuery, UsageReportResponse
from rookery.usage.serializers import Fields, list_fields, serialize_group, serialize_sums, to_csv_row

READ_SCOPE = "usage:read"
_ALL = "all"


@dataclass(frozen=True, slots=True)
class UsageApi:
    """The report over HTTP."""

    reports: UsageReports
    clock: Clock

    def operations(self) -> Sequence[Operation]:
        """Return the operation."""
        return [
            Operation(method="GET", path="/usage", handler=self.get_usage, present=_present, required_scope=READ_SCOPE, tags=("Usage",),
                      response_model=UsageReportResponse, errors=(NotFound,), operation_id="get_usage",
                      summary="Add up usage and its cost", media_types=(CSV_MEDIA_TYPE,), response_headers=("Content-Disposition",)),
        ]  # fmt: skip

    async def get_usage(self, caller: Caller, query: UsageReportQuery, request: Request) -> Response | ItemPage[Fields]:
        """
        Add up calls, tokens and cost of generations, judge calls, embeddings, sessions of agents, and tool calls.

        `kind` tells them apart. The tokens of `session` are those that agents report; everything else is counted by Rookery. Days are in
        UTC. The newest day or month is first, then the highest cost.
        """
        days, by = query.to_range(self.clock()), frozenset[UsageDimension](query.by)
        filters = query.to_filter(await self._select_tenants(caller, query.workspace), days)
        if wants_csv(request, query.format):
            rows = (to_csv_row(usage, by) async for usage in self.reports.iter_groups(filters, by, caller=caller))
            return stream_csv_response(rows, list_fields(by), file_name=f"usage-{days.since}-{days.until}.csv")
        report = await self.reports.load(filters, by, page=query.slice, caller=caller)
        page = report.groups.with_items([serialize_group(usage, by) for usage in report.groups.items])
        totals = [serialize_sums(total) for total in report.totals]
        return ItemPage(*page, summary={"since": days.since.isoformat(), "until": days.until.isoformat(), "totals": totals})

    async def _select_tenants(self, caller: Caller, workspace: str | None) -> list[int] | None:
        """Return the tenants of the report; None: all. A key without platform:workspaces sees its own tenant."""
        if workspace is None or workspace == str(caller.public_workspace_id):
            return [caller.workspace_id]
        if workspace == _ALL:
            caller.require_scope(ALL_WORKSPACES_SCOPE)
            return None
        if not caller.has_scope(ALL_WORKSPACES_SCOPE):
            raise NotFound("workspace", workspace)
        await self.reports.require_workspace(int(workspace))
        return [int(workspace)]


def _present(_: Caller, fields: Fields) -> Fields:
    return fields
