"""The tool servers: their list, and the page of one with its tools, sessions and figures; the log of their calls, and one call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import quote

from starlette.responses import Response

from rookery.console.day_charts import build_call_chart
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit, open_call_group
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

T = TypeVar("T")

ROUTE_NAMES = frozenset({"calls", "add"})
"""Paths below `tools/` that are no servers. The page of a server with such an id has an underscore before it, which no id has."""

_DAYS = 14
_TOOLS_PER_PAGE = 50
_MAX_ADDED = 100
_STATES = {"online": "good", "offline": "bad", "degraded": "warn", "needs_login": "warn", "unknown": "off", "paused": "off"}


@dataclass(frozen=True, slots=True)
class ServerRow:
    """A server in the list. *added*: the workspace added it. *calls*: the figures of its calls in the last two weeks."""

    id: str
    name: str
    tagline: str
    status: str
    health: str
    kind: str
    tool_count: int
    resource_count: int
    last_error: str | None
    added: models.AddedServer | None
    calls: models.FigureGroup | None


async def list_servers(visit: Visit) -> Response:
    """Show the servers that the key may use, and those of the workspace that are paused."""
    async with open_call_group() as group:
        listing = group.create_task(visit.client.tools.list_servers())
        adding = group.create_task(load_added(visit))
        counting = group.create_task(_load_figures(visit))
    listed, added, figures = listing.result(), adding.result(), counting.result()
    own = {server.id: server for server in added}
    calls = {group.server: group for group in figures.data} if figures is not None else {}
    rows = [_to_row(server, own.get(server.id), calls.get(server.id)) for server in listed.servers]
    listed_ids = {row.id for row in rows}
    rows += [_to_row(server, server, calls.get(server.id)) for server in added if server.id not in listed_ids]
    words, health = visit.query("q").lower(), visit.query("health")
    matches = [row for row in rows if words in f"{row.id} {row.name} {row.tagline}".lower() and health in {"", row.health}]
    number, per_page = visit.page_number, _TOOLS_PER_PAGE
    return visit.render(
        "tools/list.html",
        rows=matches[(number - 1) * per_page : number * per_page],
        links=PageLinks.at(visit, number, len(matches), per_page),
        total=len(rows),
        states=_STATES,
        healths=sorted({row.health for row in rows}),
        server_path=server_path,
    )


async def show_server(visit: Visit) -> Response:
    """Show one server: its tools, resources, prompts and sessions, what its calls did, and its registration."""
    server_id = visit.path("server_id").removeprefix("_")
    added = await load_registration(visit, server_id)
    if added is not None and not added.enabled:
        return visit.render("tools/paused.html", added=added)
    async with open_call_group() as group:
        showing = group.create_task(visit.client.tools.get_server(server_id))
        prompting = group.create_task(visit.client.tools.list_prompts(server_id))
        login = group.create_task(_load_login(visit, server_id, added))
        counting = group.create_task(_load_days(visit, server_id))
    server, prompts, days = showing.result(), prompting.result(), counting.result()
    words = visit.query("q").lower()
    tools = [tool for tool in server.tools if words in f"{tool.name} {tool.description or ''}".lower()]
    number = visit.page_number
    return visit.render(
        "tools/server.html",
        server=server,
        added=added,
        prompts=prompts.prompts[:_MAX_ADDED],
        prompt_count=prompts.count,
        resources=server.resources[:_MAX_ADDED],
        tools=tools[(number - 1) * _TOOLS_PER_PAGE : number * _TOOLS_PER_PAGE],
        links=PageLinks.at(visit, number, len(tools), _TOOLS_PER_PAGE),
        login=login.result(),
        days=days,
        chart=None if days is None else build_call_chart(days, datetime.now(UTC).date() - timedelta(days=_DAYS), _DAYS + 1),
        states=_STATES,
        here=server_path(server_id),
        read_annotations=read_annotations,
    )


def server_path(server_id: str) -> str:
    """Return the path of a server's page below `/console/`."""
    return f"tools/_{server_id}" if server_id in ROUTE_NAMES else f"tools/{server_id}"


def tool_path(server_id: str, tool: str) -> str:
    """Return the path of a tool's playground below `/console/`."""
    return f"{server_path(server_id)}/{quote(tool, safe='')}"


def read_annotations(tool: models.Tool) -> dict[str, bool]:
    """Return the hints of a tool that are booleans, such as readOnlyHint."""
    return {name: value for name, value in (tool.annotations or {}).items() if isinstance(value, bool)}


async def load_added(visit: Visit) -> Sequence[models.AddedServer]:
    """Return the servers that the workspace added; none if the key may not read them."""
    if not visit.can("servers:read"):
        return ()
    return (await visit.client.servers.list_added_servers(per_page=_MAX_ADDED)).items


async def load_registration(visit: Visit, server_id: str) -> models.AddedServer | None:
    """Return the settings of a server that the workspace added; None if it did not, or the key may not read them."""
    if not visit.can("servers:read"):
        return None
    return await _none_if_missing(lambda: visit.client.servers.get_added_server(server_id))


async def _load_figures(visit: Visit) -> models.Analytics | None:
    if not visit.can("tools.read"):
        return None
    since = datetime.now(UTC) - timedelta(days=_DAYS)
    return await visit.client.analytics.get_tool_analytics(since=since, by="server", limit=1000)


async def _load_days(visit: Visit, server_id: str) -> models.Analytics | None:
    if not visit.can("tools.read"):
        return None
    since = datetime.now(UTC) - timedelta(days=_DAYS)
    return await visit.client.analytics.get_tool_analytics(since=since, by="day", server=server_id, limit=_DAYS + 1)


async def _load_login(visit: Visit, server_id: str, added: models.AddedServer | None) -> models.Login | None:
    """Return the login at a server; None if it needs none, as far as the key may know."""
    if not visit.can("servers:read") or (added is not None and added.auth is None):
        return None
    return await _none_if_missing(lambda: visit.client.servers.get_server_login(server_id))


async def _none_if_missing(load: Callable[[], Awaitable[T]]) -> T | None:
    try:
        return await load()
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def _to_row(
    server: models.ServerSummary | models.AddedServer, added: models.AddedServer | None, calls: models.FigureGroup | None
) -> ServerRow:
    is_paused = added is not None and not added.enabled
    return ServerRow(
        id=server.id,
        name=server.name,
        tagline=server.tagline,
        status=server.status,
        health="paused" if is_paused else server.health,
        kind="this workspace" if added is not None else "installation",
        tool_count=server.tool_count,
        resource_count=server.resource_count,
        last_error=server.last_error,
        added=added,
        calls=calls,
    )


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
    View("GET", "/tools", list_servers, "mcp:read"),
    View("GET", "/tools/{server_id}", show_server, "mcp:read"),
)
