"""The protocol's own server behind /mcp: its handlers read a request, call one verb, shape the answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.request import CURRENT
from rookery.tools.calling.asked import Manner
from rookery.tools.calling.calls import Calls
from rookery.tools.gateway.answers import raise_error, refused_call, relinked, tool_result, with_uri
from rookery.tools.gateway.changes import Changes
from rookery.tools.gateway.clients import MOST, Clients, user_of
from rookery.tools.gateway.exchanges import Exchanges
from rookery.tools.gateway.finding import CALL, FIND, SCHEMAS, TOOLS, Finding, wanted
from rookery.tools.gateway.views import VIEW, View, Views
from rookery.tools.gateway.visits import Context, Visit, visit_of
from rookery.tools.models import JsonObject
from rookery.tools.resources import Resources

P = TypeVar("P", bound=BaseModel)

MAX_BODY = 4 * 1024 * 1024
_IDLE_S = 1800.0
_TTL_MS = 5000
_LISTS: tuple[CacheableMethod, ...] = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_WRITE = "mcp:write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """What the gateway stands in front of."""

    calls: Calls
    resources: Resources
    views: Views
    finding: Finding
    changes: Changes


class Protocol:
    """One server for every address and key: what is served depends on the request alone."""

    def __init__(self, behind: Behind) -> None:
        self._behind = behind
        self._views = behind.views
        self._exchanges = Exchanges()
        self._server = self._made()
        self._clients = Clients(
            app=self._server,
            session_idle_timeout=_IDLE_S,
            max_sessions=MOST,
            max_request_body_size=MAX_BODY,
            # Hosts are the shell's business, origins the route's.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve until the block ends; entered and left by one task."""
        self._behind.changes.end_session = self._clients.end
        self._behind.changes.start()
        try:
            async with self._clients.run():
                yield
        finally:
            self._behind.changes.close()
            await self._exchanges.aclose()

    def hang_up(self) -> None:
        """End the streams that would never end by themselves."""
        self._behind.changes.hang_up()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request that the guard let in; its state has the caller and the view."""
        state = cast("Mapping[str, object]", scope["state"])
        caller = cast("Caller", state["caller"])
        # Whitespace around a value is none of it (RFC 9110, 5.5); the parser leaves some at the end.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        user = user_of(caller, cast("View", state[VIEW]))
        await self._clients.handle_request({**scope, "headers": headers, "user": user}, receive, send)

    def _made(self) -> Server[None]:
        hint = CacheHint(ttl_ms=_TTL_MS, scope="private")
        server: Server[None] = Server(
            "rookery",
            version=metadata.version("rookery"),
            title="Rookery",
            cache_hints={**dict.fromkeys(_LISTS, hint), "resources/read": CacheHint(ttl_ms=0, scope="private")},
            lifespan=_no_lifespan,
            get_tool_input_schema=self._schema,
            on_subscriptions_listen=self._behind.changes.listen,
        )
        page = types.PaginatedRequestParams
        self._add(server, "tools/list", page, self._list_tools)
        self._add(server, "tools/call", types.CallToolRequestParams, self._call_tool)
        self._add(server, "resources/list", page, self._list_resources)
        self._add(server, "resources/templates/list", page, self._list_templates)
        self._add(server, "resources/read", types.ReadResourceRequestParams, self._read_resource)
        self._add(server, "resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        self._add(server, "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        self._add(server, "prompts/list", page, self._list_prompts)
        self._add(server, "prompts/get", types.GetPromptRequestParams, self._get_prompt)
        self._add(server, "completion/complete", types.CompleteRequestParams, self._complete)
        self._add(server, "logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_request_handler("server/discover", types.RequestParams, self._discover)
        server.middleware.append(self._greeting)
        return server

    def _add(self, server: Server[None], method: str, params: type[P], handler: Callable[[Context, P], Awaitable[JsonObject]]) -> None:
        """Add a handler whose result may come from a server of the older era, which does not say that it is complete."""

        async def complete(ctx: Context, typed: P) -> HandlerResult:
            result = await handler(ctx, typed)
            return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

        server.add_request_handler(method, params, complete)

    # What there is.

    async def _list_tools(self, ctx: Context, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._visit(ctx)
        self._views.list_missing(visit.caller, visit.view)
        nothing = self._views.why_nothing(visit.caller, visit.view)
        if nothing is not None:
            raise MCPError(types.INVALID_REQUEST, nothing)
        tools = TOOLS if visit.view.is_search else self._views.tools(visit.caller, visit.view)
        return _listed("tools/list", "tools", tools, ctx.protocol_version)

    async def _list_resources(self, ctx: Context, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._visit(ctx)
        return _listed("resources/list", "resources", self._views.resources(visit.caller, visit.view), ctx.protocol_version)

    async def _list_templates(self, ctx: Context, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._visit(ctx)
        found = self._views.templates(visit.caller, visit.view)
        return _listed("resources/templates/list", "resourceTemplates", found, ctx.protocol_version)

    async def _list_prompts(self, ctx: Context, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._visit(ctx)
        return _listed("prompts/list", "prompts", self._views.prompts(visit.caller, visit.view), ctx.protocol_version)

    async def _discover(self, ctx: Context, params: types.RequestParams) -> HandlerResult:
        del params
        visit = await self._visit(ctx)
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self._server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=self._views.instructions(visit.caller, visit.view) or None,
        )

    async def _greeting(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Tell a client of the older era, in the answer to its first message, what its key sees."""
        if ctx.method != "initialize":
            return await call_next(ctx)
        visit = await self._visit(ctx)
        self._behind.changes.opened(ctx)
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        told = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        capabilities = self._server.get_capabilities(told).model_dump(mode="json", by_alias=True, exclude_none=True)
        return {**result, "capabilities": capabilities, "instructions": self._views.instructions(visit.caller, visit.view)}

    # What is asked of servers.

    async def _call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> JsonObject:
        visit = await self._visit(ctx)
        name, arguments = params.name, dict(params.arguments or {})
        try:
            if visit.view.is_search and name == FIND:
                return await self._behind.finding.find(visit, arguments)
            visit.caller.must(_WRITE)
            if visit.view.is_search:
                if name != CALL:
                    raise MCPError(
                        types.INVALID_PARAMS, f"Unknown tool: there are {FIND} and {CALL} here; {name!r} may be called by {CALL}."
                    )
                name, arguments = wanted(arguments)
            view = View(server_id=visit.view.server_id)
            named = self._views.tool(visit.caller, view, name)

            async def ask(manner: Manner) -> JsonObject:
                outcome = await self._behind.calls.call(visit.caller, named.server.id, named.name, arguments, manner=manner)
                return tool_result(outcome, relink=view.server_id is None)

            return await self._exchanges.run(visit, ask)
        except RookeryError as error:
            return refused_call(error)

    async def _read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> JsonObject:
        visit, uri, resources = await self._visit(ctx), str(params.uri), self._behind.resources

        async def ask(manner: Manner) -> JsonObject:
            if visit.view.server_id is not None:
                return await resources.read_of(visit.caller, self._views.servers(visit.caller, visit.view)[0], uri, manner=manner)
            server = resources.server_of(visit.caller, uri)
            result = await resources.read_of(visit.caller, server, uri, manner=manner)
            contents = cast("list[JsonObject] | None", result.get("contents"))
            return result if contents is None else {**result, "contents": [with_uri(server.id, each) for each in contents]}

        with _errors(visit, uri):
            return await self._exchanges.run(visit, ask)

    async def _subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> JsonObject:
        visit, uri = await self._visit(ctx), str(params.uri)
        with _errors(visit, uri):
            await self._behind.changes.subscribe(visit, uri)
        return {}

    async def _unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> JsonObject:
        await self._behind.changes.unsubscribe(await self._visit(ctx), str(params.uri))
        return {}

    async def _get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> JsonObject:
        visit = await self._visit(ctx)

        async def ask(manner: Manner) -> JsonObject:
            server, name = self._views.prompt(visit.caller, visit.view, params.name)
            result = await self._behind.resources.prompt(visit.caller, server, name, params.arguments or {}, manner=manner)
            return relinked(server.id, result) if visit.view.server_id is None else result

        with _errors(visit):
            return await self._exchanges.run(visit, ask)

    async def _complete(self, ctx: Context, params: types.CompleteRequestParams) -> JsonObject:
        visit, raw, resources = await self._visit(ctx), dict(ctx.params or {}), self._behind.resources

        async def ask(manner: Manner) -> JsonObject:
            reference = params.ref
            if isinstance(reference, types.PromptReference):
                server, name = self._views.prompt(visit.caller, visit.view, reference.name)
                ref: JsonObject = {"type": "ref/prompt", "name": name}
            elif visit.view.server_id is None:
                server = resources.server_of(visit.caller, reference.uri)
                ref = {"type": "ref/resource", "uri": resources.own_template(server, reference.uri)}
            else:
                server = self._views.servers(visit.caller, visit.view)[0]
                ref = {"type": "ref/resource", "uri": reference.uri}
            asked = {name: value for name, value in raw.items() if name in {"argument", "context"}}
            return await resources.complete(visit.caller, server, {**asked, "ref": ref}, manner=manner)

        with _errors(visit):
            return await self._exchanges.run(visit, ask)

    async def _set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> JsonObject:
        visit_of(ctx).set_level(params.level)
        return {}

    async def _visit(self, ctx: Context) -> Visit:
        visit = visit_of(ctx)
        with _errors(visit):
            await self._views.ready(visit.caller, visit.view)
        return visit

    def _schema(self, shown: str) -> JsonObject | None:
        """Return a tool's schema: in the later era some arguments stand in headers too, and both must say the same."""
        serving = CURRENT.get()
        if serving is None:
            return None
        caller, view = serving.state.get("caller"), serving.state.get(VIEW)
        if not isinstance(caller, Caller) or not isinstance(view, View):
            return None
        if view.is_search:
            return SCHEMAS.get(shown)
        try:
            return self._views.schema(caller, view, shown)
        except RookeryError:
            return None  # the call itself will be told


@contextlib.asynccontextmanager
async def _no_lifespan(_: Server[None]) -> AsyncGenerator[None]:
    yield None


@contextlib.contextmanager
def _errors(visit: Visit, uri: str | None = None) -> Generator[None]:
    try:
        yield
    except RookeryError as error:
        raise_error(error, is_modern=visit.is_modern, uri=uri)


def _listed(method: str, field: str, things: Iterable[JsonObject], version: str) -> JsonObject:
    """Return a list in one page; what the client's revision of the protocol does not know as such a thing is left out."""
    found = list(things)
    try:
        methods.serialize_server_result(method, version, {field: found, **_CACHED})
    except ValidationError:
        return {field: [each for each in found if _fits(method, field, each, version)]}
    return {field: found}


def _fits(method: str, field: str, thing: JsonObject, version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, {field: [thing], **_CACHED})
    except ValidationError:
        return False
    return True


_CACHED: JsonObject = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""What the later era wants in each list; the SDK adds it."""
