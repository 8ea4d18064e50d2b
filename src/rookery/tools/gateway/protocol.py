"""The MCP server behind /mcp: its handlers parse a request, call one service and build the result."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from functools import partial
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
from rookery.kernel.server_group import ServerGroup
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
_ListItems = Callable[[Caller, GatewayView], Iterable[JsonObject]]

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_SESSIONS = 1000
MAX_SESSIONS_PER_KEY = 100
MAX_SESSIONS_PER_WORKSPACE = 250
_IDLE_TIMEOUT_S = 1800.0
_LIST_TTL_MS = 5000
_LIST_METHODS: tuple[CacheableMethod, ...] = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_WRITE_SCOPE = "mcp:write"


class ProtocolServer:
    """One MCP server for all paths and keys. The request alone determines what is served."""

    def __init__(
        self,
        *,
        calls: ToolRunner,
        resources: ResourceReader,
        views: CatalogueViews,
        search_mode: SearchModeTools,
        notifier: ChangeNotifier,
        group: ServerGroup,
    ) -> None:
        self._calls, self._resources, self._views = calls, resources, views
        self._search_mode, self._notifier = search_mode, notifier
        self._input_requests = InputRequestBroker(group)
        self._server = self._build_server()
        self._clients = ClientSessionManager(
            app=self._server,
            session_idle_timeout=_IDLE_TIMEOUT_S,
            max_sessions=MAX_SESSIONS,
            max_request_body_size=MAX_BODY_BYTES,
            # The edge middleware checks hosts; the route checks origins.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._clients.mark_owner = group.mark_owner

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        """Serve until the block ends. Enter and leave it in the same task."""
        self._notifier.end_session = self._clients.end_session
        self._notifier.start()
        try:
            async with self._clients.run():
                yield
        finally:
            self._notifier.close()
            await self._input_requests.aclose()

    def close_streams(self) -> None:
        """Close the streams that would otherwise stay open."""
        self._notifier.close_streams()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one authenticated HTTP request. Its state holds the caller and the view."""
        state = cast("Mapping[str, object]", scope["state"])
        caller = cast("Caller", state["caller"])
        # Whitespace around a header value is not part of it (RFC 9110, section 5.5). The parser leaves trailing whitespace.
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
            on_subscriptions_listen=self._notifier.listen,
        )
        for method, field, list_items in (
            ("tools/list", "tools", self._list_tools),
            ("resources/list", "resources", self._views.iter_resources),
            ("resources/templates/list", "resourceTemplates", self._views.iter_templates),
            ("prompts/list", "prompts", self._views.list_prompts),
        ):
            self._add_handler(server, method, types.PaginatedRequestParams, partial(self._list, method, field, list_items))
        self._add_handler(server, "tools/call", types.CallToolRequestParams, self._call_tool)
        self._add_handler(server, "resources/read", types.ReadResourceRequestParams, self._read_resource)
        self._add_handler(server, "resources/subscribe", types.SubscribeRequestParams, self._subscribe)
        self._add_handler(server, "resources/unsubscribe", types.UnsubscribeRequestParams, self._unsubscribe)
        self._add_handler(server, "prompts/get", types.GetPromptRequestParams, self._get_prompt)
        self._add_handler(server, "completion/complete", types.CompleteRequestParams, self._complete)
        self._add_handler(server, "logging/setLevel", types.SetLevelRequestParams, self._set_level)
        server.add_request_handler("server/discover", types.RequestParams, self._discover)
        server.middleware.append(self._handle_initialize)
        return server

    def _add_handler(
        self, server: Server[None], method: str, params: type[P], handler: Callable[[HandlerContext, P], Awaitable[JsonObject]]
    ) -> None:
        """Add a handler. Results of legacy servers lack `resultType`, which modern clients require."""

        async def complete(ctx: HandlerContext, typed: P) -> HandlerResult:
            result = await handler(ctx, typed)
            return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

        server.add_request_handler(method, params, complete)

    # Lists.

    async def _list(
        self, method: str, field: str, list_items: _ListItems, ctx: HandlerContext, params: types.PaginatedRequestParams
    ) -> JsonObject:
        del params
        mcp_request = await self._get_request(ctx)
        return _to_list_result(method, field, list_items(mcp_request.caller, mcp_request.view), ctx.protocol_version)

    def _list_tools(self, caller: Caller, view: GatewayView) -> Iterable[JsonObject]:
        self._views.list_missing(caller, view)
        explanation = self._views.explain_empty(caller, view)
        if explanation is not None:
            raise MCPError(types.INVALID_REQUEST, explanation)
        return SEARCH_MODE_TOOLS if view.is_search else self._views.list_tools(caller, view)

    async def _discover(self, ctx: HandlerContext, params: types.RequestParams) -> HandlerResult:
        del params
        mcp_request = await self._get_request(ctx)
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=self._server.get_capabilities(protocol_version=ctx.protocol_version),
            instructions=self._views.build_instructions(mcp_request.caller, mcp_request.view) or None,
        )

    async def _handle_initialize(self, ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
        """Add the caller's capabilities and instructions to the `initialize` result of a legacy client."""
        if ctx.method != "initialize":
            return await call_next(ctx)
        mcp_request = await self._get_request(ctx)
        self._notifier.add_session(ctx)
        result = await call_next(ctx)
        if not isinstance(result, dict):
            return result
        options = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        capabilities = self._server.get_capabilities(options).model_dump(mode="json", by_alias=True, exclude_none=True)
        return {
            **result,
            "capabilities": capabilities,
            "instructions": self._views.build_instructions(mcp_request.caller, mcp_request.view),
        }

    # Requests to servers.

    async def _call_tool(self, ctx: HandlerContext, params: types.CallToolRequestParams) -> JsonObject:
        mcp_request = await self._get_request(ctx)
        name, arguments = params.name, dict(params.arguments or {})
        try:
            if mcp_request.view.is_search and name == FIND_TOOL:
                return await self._search_mode.find_tools(mcp_request, arguments)
            mcp_request.caller.require_scope(_WRITE_SCOPE)
            if mcp_request.view.is_search:
                if name != CALL_TOOL:
                    raise MCPError(
                        types.INVALID_PARAMS,
                        f"Unknown tool {name!r}. Search mode has {FIND_TOOL} and {CALL_TOOL}; call {name!r} through {CALL_TOOL}.",
                    )
                name, arguments = parse_call(arguments)
            view = GatewayView(server_id=mcp_request.view.server_id)
            item = self._views.resolve_tool(mcp_request.caller, view, name)

            async def send(options: CallOptions) -> JsonObject:
                outcome = await self._calls.call(mcp_request.caller, item.server.id, item.name, arguments, options=options)
                return to_tool_result(outcome, rewrite_links=view.server_id is None)

            return await self._input_requests.run(mcp_request, send)
        except RookeryError as error:
            # In search mode the tool is call_tool, which exists: the name is one of its arguments, which the model can correct.
            return to_error_result(error, is_search=mcp_request.view.is_search)

    async def _read_resource(self, ctx: HandlerContext, params: types.ReadResourceRequestParams) -> JsonObject:
        mcp_request, uri, resources = await self._get_request(ctx), str(params.uri), self._resources

        async def send(options: CallOptions) -> JsonObject:
            if mcp_request.view.server_id is not None:
                return await resources.read_from_server(
                    mcp_request.caller, self._views.list_servers(mcp_request.caller, mcp_request.view)[0], uri, options=options
                )
            server = resources.find_server_by_uri(mcp_request.caller, uri)
            result = await resources.read_from_server(mcp_request.caller, server, uri, options=options)
            contents = cast("list[JsonObject] | None", result.get("contents"))
            return result if contents is None else {**result, "contents": [rewrite_uri(server.id, content) for content in contents]}

        with _map_errors(mcp_request, uri):
            return await self._input_requests.run(mcp_request, send)

    async def _subscribe(self, ctx: HandlerContext, params: types.SubscribeRequestParams) -> JsonObject:
        mcp_request, uri = await self._get_request(ctx), str(params.uri)
        with _map_errors(mcp_request, uri):
            await self._notifier.subscribe(mcp_request, uri)
        return {}

    async def _unsubscribe(self, ctx: HandlerContext, params: types.UnsubscribeRequestParams) -> JsonObject:
        await self._notifier.unsubscribe(await self._get_request(ctx), str(params.uri))
        return {}

    async def _get_prompt(self, ctx: HandlerContext, params: types.GetPromptRequestParams) -> JsonObject:
        mcp_request = await self._get_request(ctx)

        async def send(options: CallOptions) -> JsonObject:
            server, name = self._views.resolve_prompt(mcp_request.caller, mcp_request.view, params.name)
            result = await self._resources.get_prompt(mcp_request.caller, server, name, params.arguments or {}, options=options)
            return rewrite_result_uris(server.id, result) if mcp_request.view.server_id is None else result

        with _map_errors(mcp_request):
            return await self._input_requests.run(mcp_request, send)

    async def _complete(self, ctx: HandlerContext, params: types.CompleteRequestParams) -> JsonObject:
        mcp_request, raw, resources = await self._get_request(ctx), dict(ctx.params or {}), self._resources

        async def send(options: CallOptions) -> JsonObject:
            reference = params.ref
            if isinstance(reference, types.PromptReference):
                server, name = self._views.resolve_prompt(mcp_request.caller, mcp_request.view, reference.name)
                ref: JsonObject = {"type": "ref/prompt", "name": name}
            elif mcp_request.view.server_id is None:
                server = resources.find_server_by_uri(mcp_request.caller, reference.uri)
                ref = {"type": "ref/resource", "uri": resources.to_upstream_template(server, reference.uri)}
            else:
                server = self._views.list_servers(mcp_request.caller, mcp_request.view)[0]
                ref = {"type": "ref/resource", "uri": reference.uri}
            params_to_send = {name: value for name, value in raw.items() if name in {"argument", "context"}}
            return await resources.complete_argument(mcp_request.caller, server, {**params_to_send, "ref": ref}, options=options)

        with _map_errors(mcp_request):
            return await self._input_requests.run(mcp_request, send)

    async def _set_level(self, ctx: HandlerContext, params: types.SetLevelRequestParams) -> JsonObject:
        get_mcp_request(ctx).set_log_level(params.level)
        return {}

    async def _get_request(self, ctx: HandlerContext) -> McpRequest:
        mcp_request = get_mcp_request(ctx)
        with _map_errors(mcp_request):
            await self._views.wait_listed(mcp_request.caller, mcp_request.view)
        return mcp_request

    def _get_input_schema(self, gateway_name: str) -> JsonObject | None:
        """Return a tool's input schema. The SDK compares arguments that modern clients repeat in headers."""
        request_context = CURRENT_REQUEST.get()
        if request_context is None:
            return None
        caller, view = request_context.state.get("caller"), request_context.state.get(VIEW_STATE_KEY)
        if not isinstance(caller, Caller) or not isinstance(view, GatewayView):
            return None
        if view.is_search:
            return INPUT_SCHEMAS.get(gateway_name)
        try:
            return self._views.get_input_schema(caller, view, gateway_name)
        except RookeryError:
            return None  # the call itself reports the error


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
    """Return a list as one page, without items that the client's protocol revision does not support."""
    item_list = list(items)
    try:
        methods.serialize_server_result(method, version, {field: item_list, **_LIST_RESULT_FIELDS})
    except ValidationError:
        return {field: [item for item in item_list if _is_known_to_version(method, field, item, version)]}
    return {field: item_list}


def _is_known_to_version(method: str, field: str, item: JsonObject, version: str) -> bool:
    try:
        methods.serialize_server_result(method, version, {field: [item], **_LIST_RESULT_FIELDS})
    except ValidationError:
        return False
    return True


_LIST_RESULT_FIELDS: JsonObject = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""List fields that the modern era requires. The SDK adds them to the result."""


class ClientSessionManager(StreamableHTTPSessionManager):
    """
    A session manager that binds sessions to their key and path, and limits sessions per key and workspace.

    The limits are checked here and not in the `initialize` handler. By then the SDK has stored a session, and keeps it for
    half an hour even if the request is rejected.

    Attributes:
        mark_owner: Adds the number of this process to the id of a new session.
    """

    mark_owner: Callable[[str], str]

    async def end_session(self, session_id: str) -> None:
        """End a session whose key is no longer valid."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            await self._discard_session(session_id, transport)

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is not None:
            workspace, _, key = requestor["client_id"].partition("/")
            owners = [context["client_id"].partition("/") for context in self._session_owners.values()]
            if sum(owner[2] == key for owner in owners) >= MAX_SESSIONS_PER_KEY:
                raise TooManySessions(
                    f"This key has {MAX_SESSIONS_PER_KEY} open MCP sessions, the maximum. End one (DELETE) or let it idle out."
                )
            if sum(owner[0] == workspace for owner in owners) >= MAX_SESSIONS_PER_WORKSPACE:
                raise TooManySessions(
                    f"The keys of this workspace have {MAX_SESSIONS_PER_WORKSPACE} open MCP sessions, the maximum. End some (DELETE)."
                )
        transport = super()._admit_session(requestor)
        if transport is None:
            raise TooManySessions(f"Rookery has {MAX_SESSIONS} open MCP sessions, the maximum. Try again in 60 s.")
        self._mark_owner(transport)
        return transport

    def _mark_owner(self, transport: StreamableHTTPServerTransport) -> None:
        """Add the number of this process to the id that the SDK has given a new session."""
        random_id = transport.mcp_session_id
        assert random_id is not None  # noqa: S101 - only stateless transports have none
        session_id = self.mark_owner(random_id)
        if session_id == random_id:
            return
        transport.mcp_session_id = session_id
        self._server_instances[session_id] = self._server_instances.pop(random_id)
        if random_id in self._session_owners:
            self._session_owners[session_id] = self._session_owners.pop(random_id)


def build_user(caller: Caller, view: GatewayView) -> AuthenticatedUser:
    """Return the identity that binds a session to its key and path. Requests of other identities do not find the session."""
    owner = f"{caller.public_workspace_id}/{caller.key_id}"
    return AuthenticatedUser(AccessToken(token=caller.key_id, client_id=owner, scopes=[], subject=str(view)))
