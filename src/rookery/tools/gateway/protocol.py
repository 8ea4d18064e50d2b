"""The protocol's own server behind /mcp: its handlers read a request, call one verb, shape the answer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.request_context import CURRENT_REQUEST
from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.errors import TooManySessions
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, CatalogueViews, GatewayView
from rookery.tools.gateway.change_notifications import ChangeNotifier
from rookery.tools.gateway.input_requests import InputRequestBroker
from rookery.tools.gateway.mcp_requests import HandlerContext, McpRequest, get_mcp_request
from rookery.tools.gateway.protocol_results import raise_protocol_error, rewrite_result_uris, rewrite_uri, to_error_result, to_tool_result
from rookery.tools.gateway.search_mode import CALL_TOOL, FIND_TOOL, INPUT_SCHEMAS, SEARCH_MODE_TOOLS, SearchModeTools, parse_call
from rookery.tools.models import JsonObject
from rookery.tools.resources import ResourceReader

P = TypeVar("P", bound=BaseModel)

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_SESSIONS_PER_KEY = 100
MAX_SESSIONS_PER_WORKSPACE = 250
_IDLE_TIMEOUT_S = 1800.0
_LIST_TTL_MS = 5000
_LIST_METHODS: tuple[CacheableMethod, ...] = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_WRITE_SCOPE = "mcp:write"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayServices:
    """What the gateway stands in front of."""

    calls: ToolRunner
    resources: ResourceReader
    views: CatalogueViews
    search_mode: SearchModeTools
    notifier: ChangeNotifier


class ProtocolServer:
    """One server for every address and key: what is served depends on the request alone."""

    def __init__(self, services: GatewayServices) -> None:
        self._services = services
        self._views = services.views
        self._input_requests = InputRequestBroker()
        self._server = self._build_server()
        self._clients = ClientSessionManager(
            app=self._server,
            session_idle_timeout=_IDLE_TIMEOUT_S,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=MAX_BODY_BYTES,
            # Hosts are the shell's business, origins the route's.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve until the block ends; entered and left by one task."""
        self._services.notifier.end_session = self._clients.end_session
        self._services.notifier.start()
        try:
            async with self._clients.run():
                yield
        finally:
            self._services.notifier.close()
            await self._input_requests.aclose()

    def close_streams(self) -> None:
        """End the streams that would never end by themselves."""
        self._services.notifier.close_streams()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request that the guard let in; its state has the caller and the view."""
        state = cast("Mapping[str, object]", scope["state"])
        caller = cast("Caller", state["caller"])
        # Whitespace around a value is none of it (RFC 9110, 5.5); the parser leaves some at the end.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        user = build_user(caller, cast("GatewayView", state[VIEW_STATE_KEY]))
        await self._clients.handle_request({**scope, "headers": headers, "user": user}, receive, send)

    def _build_server(self) -> Server[None]:
        hint = CacheHint(ttl_ms=_LIST_TTL_MS, scope="private")
        server: Server[None] = Server(
            "rookery",
            version=metadata.version("rookery"),
            title="Rookery",
            cache_hints={**dict.fromkeys(_LIST_METHODS, hint), "resources/read": CacheHint(ttl_ms=0, scope="private")},
            lifespan=_no_lifespan,
            get_tool_input_schema=self._get_input_schema,
            on_subscriptions_listen=self._services.notifier.listen,
        )
        page = types.PaginatedRequestParams
        self._add_handler(server, "tools/list", page, self._list_tools)
        self._add_handler(server, "tools/call", types.CallToolRequestParams, self._call_tool)
        self._add_handler(server, "resources/list", page, self._list_resources)
        self._add_handler(server, "resources/templates/list", page, self._list_templates)
        self._add_handler(server, "resources/read", types.ReadResourceRequestParams, self._read_resource)
        self._add_handler(server, "resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        self._add_handler(server, "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        self._add_handler(server, "prompts/list", page, self._list_prompts)
        self._add_handler(server, "prompts/get", types.GetPromptRequestParams, self._get_prompt)
        self._add_handler(server, "completion/complete", types.CompleteRequestParams, self._complete)
        self._add_handler(server, "logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_request_handler("server/discover", types.RequestParams, self._discover)
        server.middleware.append(self._handle_initialize)
        return server

    def _add_handler(
        self, server: Server[None], method: str, params: type[P], handler: Callable[[HandlerContext, P], Awaitable[JsonObject]]
    ) -> None:
        """Add a handler whose result may come from a server of the older era, which does not say that it is complete."""

        async def complete(ctx: HandlerContext, typed: P) -> HandlerResult:
            result = await handler(ctx, typed)
            return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

        server.add_request_handler(method, params, complete)

    # What there is.

    async def _list_tools(self, ctx: HandlerContext, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._get_request(ctx)
        self._views.list_missing(visit.caller, visit.view)
        nothing = self._views.explain_empty(visit.caller, visit.view)
        if nothing is not None:
            raise MCPError(types.INVALID_REQUEST, nothing)
        tools = SEARCH_MODE_TOOLS if visit.view.is_search else self._views.list_tools(visit.caller, visit.view)
        return _to_list_result("tools/list", "tools", tools, ctx.protocol_version)

    async def _list_resources(self, ctx: HandlerContext, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._get_request(ctx)
        return _to_list_result("resources/list", "resources", self._views.iter_resources(visit.caller, visit.view), ctx.protocol_version)

    async def _list_templates(self, ctx: HandlerContext, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._get_request(ctx)
        found = self._views.iter_templates(visit.caller, visit.view)
        return _to_list_result("resources/templates/list", "resourceTemplates", found, ctx.protocol_version)

    async def _list_prompts(self, ctx: HandlerContext, params: types.PaginatedRequestParams) -> JsonObject:
        del params
        visit = await self._get_request(ctx)
        return _to_list_result("prompts/list", "prompts", self._views.list_prompts(visit.caller, visit.view), ctx.protocol_version)

    async def _discover(self, ctx: HandlerContext, params: types.RequestParams) -> HandlerResult:
        del params
        visit = await self._get_request(ctx)
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self._server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=self._views.build_instructions(visit.caller, visit.view) or None,
        )

    async def _handle_initialize(self, ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
        """Tell a client of the older era, in the answer to its first message, what its key sees."""
        if ctx.method != "initialize":
            return await call_next(ctx)
        visit = await self._get_request(ctx)
        self._services.notifier.add_session(ctx)
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        told = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        capabilities = self._server.get_capabilities(told).model_dump(mode="json", by_alias=True, exclude_none=True)
        return {**result, "capabilities": capabilities, "instructions": self._views.build_instructions(visit.caller, visit.view)}

    # What is asked of servers.

    async def _call_tool(self, ctx: HandlerContext, params: types.CallToolRequestParams) -> JsonObject:
        visit = await self._get_request(ctx)
        name, arguments = params.name, dict(params.arguments or {})
        try:
            if visit.view.is_search and name == FIND_TOOL:
                return await self._services.search_mode.find_tools(visit, arguments)
            visit.caller.require_scope(_WRITE_SCOPE)
            if visit.view.is_search:
                if name != CALL_TOOL:
                    raise MCPError(
                        types.INVALID_PARAMS,
                        f"Unknown tool: there are {FIND_TOOL} and {CALL_TOOL} here; {name!r} may be called by {CALL_TOOL}.",
                    )
                name, arguments = parse_call(arguments)
            view = GatewayView(server_id=visit.view.server_id)
            named = self._views.resolve_tool(visit.caller, view, name)

            async def ask(manner: CallOptions) -> JsonObject:
                outcome = await self._services.calls.call(visit.caller, named.server.id, named.name, arguments, options=manner)
                return to_tool_result(outcome, rewrite_links=view.server_id is None)

            return await self._input_requests.run(visit, ask)
        except RookeryError as error:
            return to_error_result(error)

    async def _read_resource(self, ctx: HandlerContext, params: types.ReadResourceRequestParams) -> JsonObject:
        visit, uri, resources = await self._get_request(ctx), str(params.uri), self._services.resources

        async def ask(manner: CallOptions) -> JsonObject:
            if visit.view.server_id is not None:
                return await resources.read_from_server(
                    visit.caller, self._views.list_servers(visit.caller, visit.view)[0], uri, options=manner
                )
            server = resources.find_server_by_uri(visit.caller, uri)
            result = await resources.read_from_server(visit.caller, server, uri, options=manner)
            contents = cast("list[JsonObject] | None", result.get("contents"))
            return result if contents is None else {**result, "contents": [rewrite_uri(server.id, each) for each in contents]}

        with _map_errors(visit, uri):
            return await self._input_requests.run(visit, ask)

    async def _subscribe(self, ctx: HandlerContext, params: types.SubscribeRequestParams) -> JsonObject:
        visit, uri = await self._get_request(ctx), str(params.uri)
        with _map_errors(visit, uri):
            await self._services.notifier.subscribe(visit, uri)
        return {}

    async def _unsubscribe(self, ctx: HandlerContext, params: types.UnsubscribeRequestParams) -> JsonObject:
        await self._services.notifier.unsubscribe(await self._get_request(ctx), str(params.uri))
        return {}

    async def _get_prompt(self, ctx: HandlerContext, params: types.GetPromptRequestParams) -> JsonObject:
        visit = await self._get_request(ctx)

        async def ask(manner: CallOptions) -> JsonObject:
            server, name = self._views.resolve_prompt(visit.caller, visit.view, params.name)
            result = await self._services.resources.get_prompt(visit.caller, server, name, params.arguments or {}, options=manner)
            return rewrite_result_uris(server.id, result) if visit.view.server_id is None else result

        with _map_errors(visit):
            return await self._input_requests.run(visit, ask)

    async def _complete(self, ctx: HandlerContext, params: types.CompleteRequestParams) -> JsonObject:
        visit, raw, resources = await self._get_request(ctx), dict(ctx.params or {}), self._services.resources

        async def ask(manner: CallOptions) -> JsonObject:
            reference = params.ref
            if isinstance(reference, types.PromptReference):
                server, name = self._views.resolve_prompt(visit.caller, visit.view, reference.name)
                ref: JsonObject = {"type": "ref/prompt", "name": name}
            elif visit.view.server_id is None:
                server = resources.find_server_by_uri(visit.caller, reference.uri)
                ref = {"type": "ref/resource", "uri": resources.to_upstream_template(server, reference.uri)}
            else:
                server = self._views.list_servers(visit.caller, visit.view)[0]
                ref = {"type": "ref/resource", "uri": reference.uri}
            asked = {name: value for name, value in raw.items() if name in {"argument", "context"}}
            return await resources.complete_argument(visit.caller, server, {**asked, "ref": ref}, options=manner)

        with _map_errors(visit):
            return await self._input_requests.run(visit, ask)

    async def _set_level(self, ctx: HandlerContext, params: types.SetLevelRequestParams) -> JsonObject:
        get_mcp_request(ctx).set_log_level(params.level)
        return {}

    async def _get_request(self, ctx: HandlerContext) -> McpRequest:
        visit = get_mcp_request(ctx)
        with _map_errors(visit):
            await self._views.wait_listed(visit.caller, visit.view)
        return visit

    def _get_input_schema(self, gateway_name: str) -> JsonObject | None:
        """Return a tool's schema: in the later era some arguments stand in headers too, and both must say the same."""
        serving = CURRENT_REQUEST.get()
        if serving is None:
            return None
        caller, view = serving.state.get("caller"), serving.state.get(VIEW_STATE_KEY)
        if not isinstance(caller, Caller) or not isinstance(view, GatewayView):
            return None
        if view.is_search:
            return INPUT_SCHEMAS.get(gateway_name)
        try:
            return self._views.get_input_schema(caller, view, gateway_name)
        except RookeryError:
            return None  # the call itself will be told


@contextlib.asynccontextmanager
async def _no_lifespan(_: Server[None]) -> AsyncGenerator[None]:
    yield None


@contextlib.contextmanager
def _map_errors(mcp_request: McpRequest, uri: str | None = None) -> Generator[None]:
    try:
        yield
    except RookeryError as error:
        raise_protocol_error(error, is_modern=mcp_request.is_modern, uri=uri)


def _to_list_result(method: str, field: str, items: Iterable[JsonObject], version: str) -> JsonObject:
    """Return a list in one page; what the client's revision of the protocol does not know as such a thing is left out."""
    found = list(items)
    try:
        methods.serialize_server_result(method, version, {field: found, **_LIST_RESULT_FIELDS})
    except ValidationError:
        return {field: [each for each in found if _is_known_to_version(method, field, each, version)]}
    return {field: found}


def _is_known_to_version(method: str, field: str, item: JsonObject, version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, {field: [item], **_LIST_RESULT_FIELDS})
    except ValidationError:
        return False
    return True


_LIST_RESULT_FIELDS: JsonObject = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""What the later era wants in each list; the SDK adds it."""


class ClientSessionManager(StreamableHTTPSessionManager):
    """
    Binds a session to its key and address, and leaves room for others'.

    Here and not where `initialize` is handled: by then the SDK has a session, and keeps it for half an hour though it was refused.
    """

    async def end_session(self, session_id: str) -> None:
        """End a session whose key is no longer good."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is not None:
            workspace, _, key = requestor["client_id"].partition("/")
            owners = [each["client_id"].partition("/") for each in self._session_owners.values()]
            if sum(owner[2] == key for owner in owners) >= MAX_SESSIONS_PER_KEY:
                raise TooManySessions(f"This key has {MAX_SESSIONS_PER_KEY} MCP sessions open; end some (DELETE), or let them idle out.")
            if sum(owner[0] == workspace for owner in owners) >= MAX_SESSIONS_PER_WORKSPACE:
                raise TooManySessions(f"The keys of this workspace have {MAX_SESSIONS_PER_WORKSPACE} MCP sessions open; end some (DELETE).")
        transport = super()._admit_session(requestor)
        if transport is None:
            raise TooManySessions("Too many MCP sessions are open here; try again later.")
        return transport


def build_user(caller: Caller, view: GatewayView) -> AuthenticatedUser:
    """Return by what a session is bound to the key that opened it, and to the address: to any other it is not there."""
    owner = f"{caller.public_workspace_id}/{caller.key_id}"
    return AuthenticatedUser(AccessToken(token=caller.key_id, client_id=owner, scopes=[], subject=str(view)))
