"""The log of tool calls, and one call with its replay."""

from __future__ import annotations

from starlette.responses import Response

from rookery.console.call_group import open_call_group
from rookery.console.routing import View
from rookery.console.views.tools import server_path, tool_path
from rookery.console.visit import PER_PAGE, PageLinks, Visit
from rookery_client.calls import UNSET

_CODES = (
    "tool_execution_error", "tool_timeout", "server_unavailable", "server_http_error", "result_too_large", "input_required",
    "invalid_arguments", "disabled", "rate_limited", "client_left",
)  # fmt: skip


async def list_calls(visit: Visit) -> Response:
    """Show the calls of the workspace, newest first."""
    success = {"ok": True, "failed": False}.get(visit.query("success"), UNSET)
    names = ("server", "tool", "code", "session", "since")
    server, tool, code, session, since = (visit.query(name) or UNSET for name in names)
    async with open_call_group() as group:
        listing = group.create_task(
            visit.client.analytics.list_tool_calls(
                server=server,
                tool=tool,
                code=code,
                session_id=session,
                success=success,
                since=since,
                page=visit.page_number,
                per_page=PER_PAGE,
            )
        )
        servers = group.create_task(visit.client.tools.list_servers()) if visit.can("mcp:read") else None
    calls = listing.result()
    return visit.render(
        "tools/calls.html",
        calls=calls.items,
        links=PageLinks.of(visit, calls),
        servers=[] if servers is None else [server.id for server in servers.result().servers],
        codes=_CODES,
        is_filtered=any(visit.query(name) for name in (*names, "success")),
    )


async def show_call(visit: Visit) -> Response:
    """Show one call: who called what, how long each part took, and how it ended."""
    call = await visit.client.analytics.get_tool_call(visit.path("call_id"))
    own_ms = None if call.upstream_ms is None else max(0.0, call.duration_exact_ms - call.upstream_ms)
    return visit.render("tools/call.html", call=call, own_ms=own_ms, server_path=server_path, tool_path=tool_path)


VIEWS = (
    View("GET", "/tools/calls", list_calls, "tools.read"),
    View("GET", "/tools/calls/{call_id}", show_call, "tools.read"),
)
