"""Figures over the calls that were made, and the calls themselves (D-38), under /api/agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import Route, describe, page, reply
from rookery.tools.calling.analytics import Analytics, Report
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerNotFound, ToolNotFound
from rookery.tools.models import CallRow
from rookery.tools.past_calls import CallFigures, Selection
from rookery.tools.portraits import call_shown
from rookery.tools.schemas import (
    AnalyticsAnswer,
    AnalyticsQuery,
    CallList,
    CallListQuery,
    FigureGroup,
    Figures,
    LastError,
    RangeQuery,
    ToolAnalyticsQuery,
)

READ = "tools.read"


@dataclass(frozen=True, slots=True)
class AnalyticsRoutes:
    """Reads rows; a key sees its workspace's calls of the servers and tools that it reaches."""

    catalogue: Catalogue
    analytics: Analytics

    def routes(self) -> list[Route]:
        """Return the table, paths relative to the prefix."""
        tags = ("Analytics",)
        return [
            Route(
                method="GET",
                path="/tools/analytics",
                handler=self.get_report,
                needs=READ,
                answers=AnalyticsAnswer,
                operation_id="get_tool_analytics",
                summary="Show the number, errors and duration of tool calls",
                tags=tags,
            ),
            Route(
                method="GET",
                path="/tools/analytics/{server_id}/{tool:path}",
                handler=self.get_tool,
                needs=READ,
                answers=AnalyticsAnswer,
                operation_id="get_tool_analytics_by_day",
                summary="Show the calls of one tool by day",
                tags=tags,
            ),
            Route(
                method="GET",
                path="/tools/calls",
                handler=self.get_calls,
                needs=READ,
                answers=CallList,
                operation_id="list_tool_calls",
                summary="List tool calls",
                tags=tags,
            ),
        ]

    async def get_report(self, request: Request, query: Annotated[AnalyticsQuery, Query()]) -> Response:
        """
        Return the number of calls, the error rate and the duration percentiles of tools.

        The range is free; the calls are grouped by tool, server, key, session or day.
        """
        caller = caller_of(request)
        chosen = _selection(caller, query, server=query.server, tool=query.tool)
        report = await self.analytics.report(caller, chosen, query.by, limit=query.limit)
        return reply(_answer(report, chosen, query.by))

    @describe(errors=(PermissionDenied, ServerNotFound, ToolNotFound))
    async def get_tool(self, request: Request, server_id: str, tool: str, query: Annotated[ToolAnalyticsQuery, Query()]) -> Response:
        """Return the number of calls, the error rate and the duration percentiles of one tool. A tool that does not exist is 404."""
        caller = caller_of(request)
        chosen = _selection(caller, query, server=server_id, tool=tool)
        report = await self.analytics.report(caller, chosen, query.by, limit=query.limit)
        if not report.total.calls and not await self.analytics.was_called(caller, server_id, tool):
            server = self.catalogue.server(caller, server_id)
            known = self.catalogue.tool(server, tool)
            if known is None or not self.catalogue.may_see(caller, server, known):
                raise ToolNotFound(server_id, tool)
        return reply(_answer(report, chosen, query.by))

    async def get_calls(self, request: Request, query: Annotated[CallListQuery, Query()]) -> Response:
        """List the tool calls of the workspace, newest first."""
        caller = caller_of(request)
        chosen = _selection(caller, query, server=query.server, tool=query.tool, code=query.code, success=query.success)
        rows, total = await self.analytics.calls(caller, chosen, limit=query.per_page, offset=query.offset)
        return page(request, [call_shown(row) for row in rows], query=query, total=total)


def _selection(
    caller: Caller, query: RangeQuery, *, server: str | None, tool: str | None, code: str | None = None, success: bool | None = None
) -> Selection:
    return Selection(
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


def _answer(report: Report, chosen: Selection, by: str) -> AnalyticsAnswer:
    return AnalyticsAnswer(
        **dict(_figures(report.total)),
        since=chosen.since,
        until=chosen.until,
        server=chosen.server,
        tool=chosen.tool,
        by=by,
        group_count=report.group_count,
        data=[_group(each) for each in report.groups],
    )


def _group(each: CallFigures) -> FigureGroup:
    return FigureGroup(
        **dict(_figures(each)),
        server=each.server_id,
        tool=each.tool,
        key_id=each.key_id,
        key_kind=each.key_kind,
        session_id=each.session_id,
        day=each.day,
    )


def _figures(each: CallFigures) -> Figures:
    return Figures(
        calls=each.calls,
        errors=each.errors,
        error_rate=round(each.error_rate, 4),
        cached=each.cached,
        p50_ms=_rounded(each.p50_ms),
        p95_ms=_rounded(each.p95_ms),
        p99_ms=_rounded(each.p99_ms),
        max_ms=_rounded(each.max_ms),
        last_called_at=each.last_called_at,
        last_error=_last_error(each.last_failure),
    )


def _rounded(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds, 3)


def _last_error(row: CallRow | None) -> LastError | None:
    if row is None:
        return None
    return LastError(
        code=row.code or "", message=row.error, tool=row.tool, server=row.server_id, at=row.called_at, request_id=row.request_id
    )
