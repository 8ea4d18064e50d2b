"""Operations on call statistics and call records, under /api/agent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import ItemPage, Operation
from rookery.kernel.schema import PageQuery
from rookery.tools.calling.analytics import CallAnalytics, CallReport
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerNotFound, ToolNotFound
from rookery.tools.models import CallRecord, ToolCallFilter
from rookery.tools.schemas import (
    AnalyticsQuery,
    AnalyticsResponse,
    CallList,
    CallRangeQuery,
    CallRecordResponse,
    CallStatsGroup,
    CallStatsResponse,
    ToolAnalyticsQuery,
    ToolCallListQuery,
)

READ_SCOPE = "tools.read"

_operation = partial(Operation, method="GET", required_scope=READ_SCOPE, tags=("Analytics",))


@dataclass(frozen=True, slots=True)
class AnalyticsApi:
    """Reads call records. A key sees its workspace's calls of the servers and tools that it may use."""

    catalogue: Catalogue
    analytics: CallAnalytics

    def operations(self) -> list[Operation]:
        """Return the operations, with paths relative to the prefix."""
        return [
            _operation(path="/tools/analytics", handler=self.get_report, response_model=AnalyticsResponse,
                       operation_id="get_tool_analytics", summary="Show the number, errors and duration of tool calls"),
            _operation(path="/tools/analytics/{server_id}/{tool:path}", handler=self.get_tool, response_model=AnalyticsResponse,
                       operation_id="get_tool_analytics_by_day", summary="Show the calls of one tool by day",
                       errors=(PermissionDenied, ServerNotFound, ToolNotFound)),
            _operation(path="/tools/calls", handler=self.get_calls, response_model=CallList, operation_id="list_tool_calls",
                       summary="List tool calls"),
            _operation(path="/tools/calls/{id}", handler=self.get_call, response_model=CallRecordResponse, operation_id="get_tool_call",
                       summary="Show one tool call"),
        ]  # fmt: skip

    async def get_report(self, caller: Caller, query: AnalyticsQuery) -> AnalyticsResponse:
        """
        Return the number of calls, the error rate and the duration percentiles of tools.

        The range is free; the calls are grouped by tool, server, key, session or day.
        """
        filters = _to_filter(caller, query)
        report = await self.analytics.load_report(caller, filters, query.by, limit=query.limit)
        return _to_response(report, filters, query.by)

    async def get_tool(self, caller: Caller, server_id: str, tool: str, query: ToolAnalyticsQuery) -> AnalyticsResponse:
        """Return the number of calls, the error rate and the duration percentiles of one tool. A tool that does not exist is 404."""
        filters = _to_filter(caller, query, server=server_id, tool=tool)
        report = await self.analytics.load_report(caller, filters, query.by, limit=query.limit)
        if not report.total.calls and not await self.analytics.was_called(caller, server_id, tool):
            server = self.catalogue.get_server(caller, server_id)
            catalogue_tool = self.catalogue.find_tool(server, tool)
            if catalogue_tool is None or not self.catalogue.can_see_tool(caller, server, catalogue_tool):
                raise ToolNotFound(server_id, tool, [listed_tool.name for listed_tool in self.catalogue.list_tools(caller, server)])
        return _to_response(report, filters, query.by)

    async def get_calls(self, caller: Caller, query: ToolCallListQuery) -> ItemPage[CallRecord]:
        """List the tool calls of the workspace, newest first."""
        filters = _to_filter(caller, query)
        return ItemPage(*await self.analytics.list_calls(caller, filters, page=query.slice))

    async def get_call(self, caller: Caller, id: str) -> CallRecord:
        """Return the record of one tool call. Its arguments are included if the operator stores them."""
        return await self.analytics.get_call(caller, id)


def _to_filter(caller: Caller, query: CallRangeQuery, **path: str) -> ToolCallFilter:
    fields: dict[str, Any] = {**query.model_dump(exclude={"by", "limit", *PageQuery.model_fields}), **path}
    return ToolCallFilter(workspace_id=caller.workspace_id, **fields)


def _to_response(report: CallReport, filters: ToolCallFilter, by: str) -> AnalyticsResponse:
    return AnalyticsResponse(
        **dict(CallStatsResponse.model_validate(report.total, from_attributes=True)),
        since=filters.since,
        until=filters.until,
        server=filters.server,
        tool=filters.tool,
        by=by,
        group_count=report.group_count,
        data=[CallStatsGroup.model_validate(group, from_attributes=True) for group in report.groups],
    )
