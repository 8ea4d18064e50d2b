"""Routes of call statistics and call records (D-38), under /api/agent."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import Operation, document_route, json_response, page_response
from rookery.tools.call_stats import CallStats, ToolCallFilter
from rookery.tools.calling.analytics import CallAnalytics, CallReport
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerNotFound, ToolNotFound
from rookery.tools.models import CallRecord
from rookery.tools.schemas import (
    AnalyticsQuery,
    AnalyticsResponse,
    CallList,
    CallRangeQuery,
    CallStatsGroup,
    CallStatsResponse,
    LastError,
    ToolAnalyticsQuery,
    ToolCallListQuery,
)
from rookery.tools.serializers import to_call_response

READ_SCOPE = "tools.read"


@dataclass(frozen=True, slots=True)
class AnalyticsRoutes:
    """Reads call records. A key sees its workspace's calls of the servers and tools that it may use."""

    catalogue: Catalogue
    analytics: CallAnalytics

    def routes(self) -> list[Operation]:
        """Return the routes, with paths relative to the prefix."""
        tags = ("Analytics",)
        return [
            Operation(
                method="GET",
                path="/tools/analytics",
                handler=self.get_report,
                required_scope=READ_SCOPE,
                response_model=AnalyticsResponse,
                operation_id="get_tool_analytics",
                summary="Show the number, errors and duration of tool calls",
                tags=tags,
            ),
            Operation(
                method="GET",
                path="/tools/analytics/{server_id}/{tool:path}",
                handler=self.get_tool,
                required_scope=READ_SCOPE,
                response_model=AnalyticsResponse,
                operation_id="get_tool_analytics_by_day",
                summary="Show the calls of one tool by day",
                tags=tags,
            ),
            Operation(
                method="GET",
                path="/tools/calls",
                handler=self.get_calls,
                required_scope=READ_SCOPE,
                response_model=CallList,
                operation_id="list_tool_calls",
                summary="List tool calls",
                tags=tags,
            ),
        ]

    async def get_report(self, request: Request, query: AnalyticsQuery) -> Response:
        """
        Return the number of calls, the error rate and the duration percentiles of tools.

        The range is free; the calls are grouped by tool, server, key, session or day.
        """
        caller = get_caller(request)
        filters = _to_filter(caller, query, server=query.server, tool=query.tool)
        report = await self.analytics.load_report(caller, filters, query.by, limit=query.limit)
        return json_response(_to_response(report, filters, query.by))

    @document_route(errors=(PermissionDenied, ServerNotFound, ToolNotFound))
    async def get_tool(self, request: Request, server_id: str, tool: str, query: ToolAnalyticsQuery) -> Response:
        """Return the number of calls, the error rate and the duration percentiles of one tool. A tool that does not exist is 404."""
        caller = get_caller(request)
        filters = _to_filter(caller, query, server=server_id, tool=tool)
        report = await self.analytics.load_report(caller, filters, query.by, limit=query.limit)
        if not report.total.calls and not await self.analytics.was_called(caller, server_id, tool):
            server = self.catalogue.get_server(caller, server_id)
            catalogue_tool = self.catalogue.find_tool(server, tool)
            if catalogue_tool is None or not self.catalogue.can_see_tool(caller, server, catalogue_tool):
                raise ToolNotFound(server_id, tool, [listed_tool.name for listed_tool in self.catalogue.list_tools(caller, server)])
        return json_response(_to_response(report, filters, query.by))

    async def get_calls(self, request: Request, query: ToolCallListQuery) -> Response:
        """List the tool calls of the workspace, newest first."""
        caller = get_caller(request)
        filters = _to_filter(caller, query, server=query.server, tool=query.tool, code=query.code, success=query.success)
        rows, total = await self.analytics.list_calls(caller, filters, limit=query.per_page, offset=query.offset)
        return page_response(request, [to_call_response(row) for row in rows], query=query, total=total)


def _to_filter(
    caller: Caller, query: CallRangeQuery, *, server: str | None, tool: str | None, code: str | None = None, success: bool | None = None
) -> ToolCallFilter:
    return ToolCallFilter(
        workspace_id=caller.workspace_id,
        since=query.since,
        until=query.until,
        server=server,
        tool=tool,
        key_id=query.key_id,
        session_id=query.session_id,
        agent_id=query.agent_id,
        code=code,
        success=success,
    )


def _to_response(report: CallReport, filters: ToolCallFilter, by: str) -> AnalyticsResponse:
    return AnalyticsResponse(
        **dict(_to_stats(report.total)),
        since=filters.since,
        until=filters.until,
        server=filters.server,
        tool=filters.tool,
        by=by,
        group_count=report.group_count,
        data=[_to_group(group) for group in report.groups],
    )


def _to_group(stats: CallStats) -> CallStatsGroup:
    return CallStatsGroup(
        **dict(_to_stats(stats)),
        server=stats.server_id,
        tool=stats.tool,
        key_id=stats.key_id,
        key_kind=stats.key_kind,
        session_id=stats.session_id,
        day=stats.day,
    )


def _to_stats(stats: CallStats) -> CallStatsResponse:
    return CallStatsResponse(
        calls=stats.calls,
        errors=stats.errors,
        error_rate=round(stats.error_rate, 4),
        cached=stats.cached,
        p50_ms=_round(stats.p50_ms),
        p95_ms=_round(stats.p95_ms),
        p99_ms=_round(stats.p99_ms),
        max_ms=_round(stats.max_ms),
        last_called_at=stats.last_called_at,
        last_error=_to_last_error(stats.last_failure),
    )


def _round(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)


def _to_last_error(row: CallRecord | None) -> LastError | None:
    if row is None:
        return None
    return LastError(
        code=row.code or "", message=row.error, tool=row.tool, server=row.server_id, at=row.called_at, request_id=row.request_id
    )
