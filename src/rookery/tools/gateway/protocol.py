"""
The MCP server behind /mcp: its handlers parse a request, call one service and build the result.

The revisions allow fields that none of them defines, such as a `category` in the annotations of a tool, and the SDK drops them: it
serialises each result by its models. They are added again afterwards. Clients send arguments of prompts as null because they are not set,
where the protocol allows only texts.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import TypeVar, cast

import mcp_types as types
from mcp import MCPError
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from starlette.types import Receive, Scope, Send

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.http.event_stream import CALL_KEEP_ALIVE_INTERVAL_S, KEEP_ALIVE_INTERVAL_S, send_comments
from rookery.kernel.request_context import CURRENT_REQUEST
from rookery.kernel.server_group import ServerGroup
from rookery.tools.arguments import drop_nulls
from rookery.tools.call_options import CallOptions
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, CatalogueViews, GatewayView
from rookery.tools.gateway.change_notifications import ChangeNotifier
from rookery.tools.gateway.client_forms import ClientForms
from rookery.tools.gateway.client_sessions import ClientSessionManager, build_user
from rookery.tools.gateway.input_requests import InputRequestBroker
from rookery.tools.gateway.mcp_requests import HandlerContext, McpRequest, get_mcp_request
from rookery.tools.gateway.protocol_results import (
    LinkRenamer,
    build_failure_result,
    raise_protocol_error,
    rename_result_links,
    to_error_result,
    to_tool_result,
)
from rookery.tools.gateway.search_mode import (
    CALL_READ_ONLY_TOOL,
    CALL_TOOL,
    CALLING_TOOLS,
    FIND_TOOL,
    INPUT_SCHEMAS,
    SEARCH_MODE_TOOLS,
    SearchModeTools,
    parse_call,
)
from rookery.tools.gateway.session_ids import ClientSessionIds
from rookery.tools.models import JsonObject
from rookery.tools.models import Server as ToolServer
from rookery.tools.resources import ResourceReader
from rookery.tools.server_info import INSTRUCTIONS_TEMPLATE

_REVISION_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope", "nextCursor"})
"""Fields of a result that only some revisions define. The SDK removes them for clients of the others."""
_OPAQUE_FIELDS = frozenset({"inputSchema", "outputSchema", "structuredContent"})
"""Fields with any JSON. The SDK drops the nulls at their top, such as `"default": null`."""

_results: ContextVar[list[JsonObject] | None] = ContextVar("rookery_mcp_results", default=None)

P = TypeVar("P", bound=BaseModel)

_LIST_TTL_MS = 5000
_MAX_COMPLETIONS = 100
"""Limit of the protocol."""
_LIST_METHODS: tuple[CacheableMethod, ...] = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_WRITE_SCOPE = "mcp:write"

_LIST_RESULT_FIELDS: JsonObject = {"ttlMs": 0, "cacheScope": "private", "resultType": "complete"}
"""List fields that the modern era requires. The SDK adds them to the result."""


def record_result(result: JsonObject) -> None:
    """Record the result of the request that is being handled, as it is before it is serialised."""
    recorded = _results.get()
    if recorded is not None:
        recorded.append(result)


async def keep_unknown_fields(ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
    """Add the fields that the serialisation drops. It is a middleware of the SDK's server."""
    with _record_results() as recorded:
        result = await call_next(ctx)
    if not recorded or not isinstance(result, dict):
        return result
    original = recorded[-1]
    return cast("JsonObject", _restore(original, cast("JsonObject", result), _REVISION_FIELDS))


@contextmanager
def _record_results() -> Generator[list[JsonObject]]:
    recorded: list[JsonObject] = []
    token = _results.set(recorded)
    try:
        yield recorded
    finally:
        _results.reset(token)


def _restore(original: object, serialized: object, dropped: frozenset[str] = frozenset()) -> object:
    """
    Return *serialized* with the fields that only *original* has. A null there means that a field is absent.

    Args:
        dropped: Names of fields that were dropped on purpose.
    """
    if isinstance(original, list) and isinstance(serialized, list):
        items, others = cast("list[object]", serialized), cast("list[object]", original)
        return [_restore(other, item) for other, item in zip(others, items, strict=True)] if len(items) == len(others) else items
    if not isinstance(original, dict) or not isinstance(serialized, dict):
        return serialized
    before, after = cast("JsonObject", original), cast("JsonObject", serialized)
    if before == after:
        return after
    fields = {name: _restore_field(name, before[name], value) if name in before else value for name, value in after.items()}
    missing = {name: value for name, value in before.items() if name not in after and value is not None and name not in dropped}
    return {**fields, **missing}


def _restore_field(name: str, original: object, serialized: object) -> object:
    return original if name in _OPAQUE_FIELDS else _restore(original, serialized)


async def drop_unset_arguments(ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
    """Remove the nulls before the SDK validates the request. It is a middleware of the SDK's server."""
    if ctx.params is not None:
        if ctx.method == "prompts/get":
            ctx = replace(ctx, params=_without_nulls(ctx.params))
        elif ctx.method == "completion/complete" and isinstance(context := ctx.params.get("context"), dict):
            ctx = replace(ctx, params={**ctx.params, "context": _without_nulls(cast("JsonObject", context))})
    return await call_next(ctx)


def _without_nulls(holder: Mapping[str, object]) -> JsonObject:
    return {**holder, "arguments": drop_nulls(holder["arguments"])} if isinstance(holder.get("arguments"), dict) else dict(holder)


_ListItems = Callable[[Caller, GatewayView], Iterable[JsonObject]]


class ProtocolServer:
    """One MCP server for all paths and keys. The request alone determines what is served."""

    def __init__(
        self,
        *,
        calls: ToolRunner,
        resources: ResourceReader,
        views: CatalogueViews,
        search_mode: SearchModeTools,
        forms: ClientForms,
        notifier: ChangeNotifier,
        session_ids: ClientSessionIds,
        group: ServerGroup,
    ) -> None:
        self._calls, self._resources, self._views = calls, resources, views
        self._search_mode, self._notifier, self._forms = search_mode, notifier, forms
        self._input_requests = InputRequestBroker(group)
        self._server = self._build_server()
        self._clients = ClientSessionManager(self._server, session_ids, group)
        self._clients.on_revival = self._notifier.add_revived_session
        self._clients.on_stream = self._notifier.announce_all

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
        interval_s = CALL_KEEP_ALIVE_INTERVAL_S if scope["method"] == "POST" else KEEP_ALIVE_INTERVAL_S
        async with send_comments(send, interval_s=interval_s) as send_commented:
            await self._clients.handle_request({**scope, "headers": headers, "user": user}, receive, send_commented)

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
        server.middleware += [self._handle_initialize, drop_unset_arguments, keep_unknown_fields]
        return server

    def _add_handler(
        self, server: Server[None], method: str, params: type[P], handler: Callable[[HandlerContext, P], Awaitable[JsonObject]]
    ) -> None:
        """Add a handler. Results of legacy servers lack `resultType`, which modern clients require."""

        async def complete(ctx: HandlerContext, typed: P) -> HandlerResult:
            result = await handler(ctx, typed)
            record_result(result)
            return {"resultType": "complete", **result} if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else result

        server.add_request_handler(method, params, complete)

    # Lists.

    async def _list(
        self, method: str, field: str, list_items: _ListItems, ctx: HandlerContext, params: types.PaginatedRequestParams
    ) -> JsonObject:
        del params
        mcp_request = await self._get_request(ctx)
        await self._views.wait_all_listed(mcp_request.caller, mcp_request.view, mcp_request.to_list_options())
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
        name, arguments, calling_tool = params.name, dict(params.arguments or {}), ""
        try:
            if mcp_request.view.is_search and name == FIND_TOOL:
                await self._views.wait_all_listed(mcp_request.caller, mcp_request.view, mcp_request.to_list_options())
                return await self._search_mode.find_tools(mcp_request, arguments)
            mcp_request.caller.require_scope(_WRITE_SCOPE)
            if mcp_request.view.is_search:
                if name not in CALLING_TOOLS:
                    raise MCPError(
                        types.INVALID_PARAMS,
                        f"Unknown tool {name!r}. Search mode has {FIND_TOOL}, {CALL_TOOL} and {CALL_READ_ONLY_TOOL}; "
                        f"call {name!r} through {CALL_TOOL}.",
                    )
                calling_tool, (name, arguments) = name, parse_call(arguments)
            view = replace(mcp_request.view, is_search=False)
            item = self._views.resolve_tool(mcp_request.caller, view, name)
            if calling_tool == CALL_READ_ONLY_TOOL and not self._views.is_read_only(mcp_request.caller, view, item):
                text = (
                    f"{name} is not listed as read-only. Use a name that {FIND_TOOL} returned with readOnlyHint, or {CALL_TOOL}, "
                    "which the user may have to approve."
                )
                return build_failure_result(text, {"error": "not_read_only"})

            async def send(options: CallOptions) -> JsonObject:
                outcome = await self._calls.call(mcp_request.caller, item.server.id, item.name, arguments, options=options)
                result = to_tool_result(outcome, rename_link=self._build_link_renamer(mcp_request, outcome.server))
                return self._forms.adapt_result(outcome.server, outcome.tool, result, mcp_request.client_name)

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
            return await resources.read_any(mcp_request.caller, uri, options=options)

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
            rename_link = self._build_link_renamer(mcp_request, server)
            return result if rename_link is None else rename_result_links(server.id, result, rename_link)

        with _map_errors(mcp_request):
            return await self._input_requests.run(mcp_request, send)

    async def _complete(self, ctx: HandlerContext, params: types.CompleteRequestParams) -> JsonObject:
        mcp_request, raw, resources = await self._get_request(ctx), dict(ctx.params or {}), self._resources

        async def send(options: CallOptions) -> JsonObject:
            reference = params.ref
            if isinstance(reference, types.PromptReference):
                server, name = self._views.resolve_prompt(mcp_request.caller, mcp_request.view, reference.name)
                ref: JsonObject = {"type": "ref/prompt", "name": name}
            elif mcp_request.view.server_id is None and reference.uri == INSTRUCTIONS_TEMPLATE:
                ids = [
                    server_id
                    for server_id in self._views.list_instructed_ids(mcp_request.caller)
                    if server_id.startswith(params.argument.value)
                ]
                return {"completion": {"values": ids[:_MAX_COMPLETIONS], "total": len(ids), "hasMore": len(ids) > _MAX_COMPLETIONS}}
            elif mcp_request.view.server_id is None:
                target = await resources.uris.resolve_template(mcp_request.caller, reference.uri, options)
                server = target.server
                ref = {"type": "ref/resource", "uri": target.candidates[0]}
            else:
                server = self._views.list_servers(mcp_request.caller, mcp_request.view)[0]
                ref = {"type": "ref/resource", "uri": reference.uri}
            params_to_send = {name: value for name, value in raw.items() if name in {"argument", "context"}}
            return await resources.complete_argument(mcp_request.caller, server, {**params_to_send, "ref": ref}, options=options)

        with _map_errors(mcp_request):
            return await self._input_requests.run(mcp_request, send)

    def _build_link_renamer(self, mcp_request: McpRequest, server: ToolServer) -> LinkRenamer | None:
        """Return how links in results of *server* are named in this view. None: as the server names them."""
        if mcp_request.view.server_id is not None:
            return None
        return self._resources.uris.build_link_renamer(mcp_request.caller, server, mcp_request.view.session_id)

    async def _set_level(self, ctx: HandlerContext, params: types.SetLevelRequestParams) -> JsonObject:
        get_mcp_request(ctx).set_log_level(params.level)
        return {}

    async def _get_request(self, ctx: HandlerContext) -> McpRequest:
        mcp_request = get_mcp_request(ctx)
        if mcp_request.view.server_id is not None:
            with _map_errors(mcp_request):
                await self._views.wait_listed(mcp_request.caller, mcp_request.view, mcp_request.to_list_options)
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
