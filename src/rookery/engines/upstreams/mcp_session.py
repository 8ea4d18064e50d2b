"""
An `UpstreamConnection` over the SDK's client. Results are returned unchanged, and errors are mapped to those of `rookery.tools`.

The SDK maintains the session and receives messages. Requests are stamped by it and passed to its dispatcher without a model of
request and result, which would take a quarter of the CPU time of a call (echo of server-everything).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cache
from http import HTTPStatus
from importlib import metadata
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import anyio
import mcp_types as types
import structlog
from anyio.abc import TaskGroup, TaskStatus
from mcp import ClientSession, MCPError
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from rookery.engines.upstreams import call_router, sdk
from rookery.engines.upstreams.call_router import CallRouter
from rookery.engines.upstreams.negotiation import Negotiation
from rookery.engines.upstreams.sdk import (
    BROKEN_CODE,
    STATUS_CODE,
    TOO_LARGE_CODE,
    UNREADABLE_CODE,
    UNSENT_CODE,
    RequestSender,
    Transport,
    TransportState,
    TransportStreams,
    UnsentError,
)
from rookery.kernel.cancellation import wait_until_set
from rookery.tools.errors import (
    ConnectFailed,
    ConnectionLost,
    InvalidResult,
    ResultTooLarge,
    UpstreamError,
    UpstreamErrorResponse,
    UpstreamStatusError,
)
from rookery.tools.gateway_names import select_extensions
from rookery.tools.models import (
    MAX_FEATURES_PER_KIND,
    ConnectionInfo,
    JsonObject,
    Roots,
    Server,
    ServerFeatures,
    ServerInfo,
    SessionIsolation,
)
from rookery.tools.ports import OnProgress, OnUpdate, RequestOptions, UpstreamMethod
from rookery.tools.server_info import build_server_info

_log = structlog.stdlib.get_logger("rookery.tools")

_MAX_PAGES = 100
_MAX_ROOTS_ROUNDS = 10
_LIST_TIMEOUT_S = 30.0
"""Time-out of all pages of the tools."""
_OTHER_LIST_TIMEOUT_S = 10.0
"""Time-out of all pages of another list. The tools are not shown before."""
_REASON_WAIT_S = 1.2
_ROOTS_REQUEST_TIMEOUT_S = 1.0
"""Wait of a session's first call for the server's request for roots."""
_ROOTS_ANSWER_TIMEOUT_S = 30.0
_ROOTS_SETTLE_DELAY_S = 0.2
"""Pause after roots were sent. Servers check the folders before they use them, and do not report when that is done."""
_SESSION_LOST_MESSAGES = ("Session not found", "Session terminated")
"""Messages with which HTTP servers of older protocol versions reject an unknown session (code -32600) without processing the request."""

_CAPABILITIES: JsonObject = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Capabilities of callers over HTTP. They receive requests of newer servers as a result, which they can answer in a second call."""

_CLIENT_INFO = types.Implementation(name="rookery", version=metadata.version("rookery"))
_CHANGE_NOTIFICATIONS = (types.ToolListChangedNotification, types.ResourceListChangedNotification, types.PromptListChangedNotification)

T = TypeVar("T")


class McpSession:
    """One session with a server; implements `UpstreamConnection`."""

    def __init__(
        self,
        session: ClientSession,
        state: TransportState,
        router: CallRouter,
        tasks: TaskGroup,
        *,
        requests: RequestSender | None,
        roots: Roots,
        extensions: Mapping[str, JsonObject] | None = None,
    ) -> None:
        self._roots: Roots = roots
        announced: JsonObject = {**_CAPABILITIES, "extensions": dict(extensions)} if extensions else _CAPABILITIES
        self._capabilities = call_router.set_roots_capability(announced, roots)
        self._tasks = tasks
        self._session = session
        self._version = session.protocol_version or ""
        self._server_capabilities = session.server_capabilities or types.ServerCapabilities()
        self._is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        self._requests = requests or sdk.get_request_sender(session)
        self._state = state
        self._router = router
        self._listen_scopes: dict[str, anyio.CancelScope] = {}
        self._subscription_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = asyncio.Event()
        about = session.server_info
        self._facts = ConnectionInfo(
            protocol_version=self._version,
            pid=state.pid,
            software="" if about is None else f"{about.name} {about.version}".strip(),
            capabilities=self._server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
        )

    @property
    def info(self) -> ConnectionInfo:
        """Facts from the negotiation."""
        return self._facts

    @property
    def has_subscribers(self) -> bool:
        """True while callers are subscribed to a resource."""
        return self._router.has_subscribers

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Send a request and return its result; see `UpstreamConnection`."""
        if method in {"resources/subscribe", "resources/unsubscribe"}:
            return await self._handle_subscription(method, params, options)
        with self._router.serve_call(options):
            if not self._is_modern and self._router.needs_roots_request(options):
                await self._trigger_roots_request()
            try:
                return await self._map_errors(lambda: self._ask(method, params, options))
            except UpstreamErrorResponse as error:
                if error.number != types.HEADER_MISMATCH:
                    raise
                # Protocol 2026-07-28 over HTTP sends some arguments in headers too. The session reads them from a list of tools.
                await self._list_all("tools/list", "tools")
                return await self._map_errors(lambda: self._ask(method, params, options))

    async def _trigger_roots_request(self) -> None:
        """Make a server of an older protocol version request the caller's roots before the caller's first call. Not all servers do."""
        if not self._router.roots_requested.is_set():
            with contextlib.suppress(MCPError, UnsentError, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
                await self._session.send_notification(types.RootsListChangedNotification())
        if await wait_until_set(self._router.roots_requested, timeout_s=_ROOTS_REQUEST_TIMEOUT_S) and await wait_until_set(
            self._router.roots_answered, timeout_s=_ROOTS_ANSWER_TIMEOUT_S
        ):
            await asyncio.sleep(_ROOTS_SETTLE_DELAY_S)
        self._router.roots_answered.set()

    async def _handle_subscription(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Share one subscription on the server between all subscribers of a resource. Newer protocol versions use a stream for it."""
        uri, on_update = str(params.get("uri")), options.on_update
        if on_update is None:
            raise UpstreamErrorResponse(types.INVALID_PARAMS, "The caller cannot receive updates of the resource.")
        # Serialise changes per resource: a key that leaves while it subscribes must not remove the next one's subscription.
        async with self._subscription_locks.setdefault(uri, asyncio.Lock()):
            return await self._change_subscription(method, uri, on_update)

    async def _change_subscription(self, method: UpstreamMethod, uri: str, on_update: OnUpdate) -> JsonObject:
        is_on = method == "resources/subscribe"
        if not (self._router.subscribe if is_on else self._router.unsubscribe)(uri, on_update):
            return {}
        if self._is_modern:
            if not is_on:
                if uri in self._listen_scopes:
                    self._listen_scopes.pop(uri).cancel()
                return {}
            try:
                await self._start_listening(uri)
            except BaseException:
                self._listen_scopes.pop(uri).cancel()
                self._router.unsubscribe(uri, on_update)
                raise
            return {}
        try:
            await self._map_errors(lambda: self._send_request(method, {"uri": uri}, {}, self._capabilities))
        except BaseException:
            if is_on:
                self._router.unsubscribe(uri, on_update)
            raise
        return {}

    async def _start_listening(self, uri: str) -> None:
        """Open the stream of changes of a resource, and return once the server has acknowledged it."""
        scope = self._listen_scopes[uri] = anyio.CancelScope()
        try:
            await self._tasks.start(self._listen_to_resource, uri, scope)
        except MCPError as error:
            raise self._map_error(error) from error
        except ValidationError as error:
            raise InvalidResult(f"The server returned an invalid result: {_describe_error(error)}") from error
        except (ListenNotSupportedError, SubscriptionLost) as error:
            raise UpstreamErrorResponse(types.INTERNAL_ERROR, str(error)) from error
        except RuntimeError as error:  # the session ended meanwhile
            raise ConnectionLost(self._end_reason(), was_handled=False) from error

    async def _listen_to_resource(self, uri: str, scope: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
        is_acknowledged = False
        with scope:
            try:
                async with listen(self._session, resource_subscriptions=[uri]) as changes:
                    task_status.started()
                    is_acknowledged = True
                    async for _ in changes:
                        if not self._router.notify_updated(uri):
                            return  # no subscriber is left
            except (SubscriptionLost, MCPError, ValidationError):
                if not is_acknowledged:
                    raise

    async def list_features(self, opener: RequestOptions | None = None) -> ServerFeatures:
        """List all features; see `UpstreamConnection`."""
        del opener
        capabilities, about = self._server_capabilities, self._session.server_info
        has_resources, has_prompts = capabilities.resources is not None, capabilities.prompts is not None
        lists: dict[str, tuple[JsonObject, ...]] = {}
        errors: dict[str, UpstreamError] = {}
        for kind, method, field, is_offered, limit_s in (
            ("tools", "tools/list", "tools", True, _LIST_TIMEOUT_S),
            ("resources", "resources/list", "resources", has_resources, _OTHER_LIST_TIMEOUT_S),
            ("templates", "resources/templates/list", "resourceTemplates", has_resources, _OTHER_LIST_TIMEOUT_S),
            ("prompts", "prompts/list", "prompts", has_prompts, _OTHER_LIST_TIMEOUT_S),
        ):
            if not is_offered:
                continue
            try:
                async with asyncio.timeout(limit_s):
                    lists[kind] = await self._list_all(method, field)
            except ConnectionLost:
                raise
            except TimeoutError:
                errors[kind] = InvalidResult(f"The server did not list its {field} within {limit_s:g} seconds.")
            except UpstreamError as error:
                if kind == "tools" or not error.concerns_caller:  # what this caller may not list is empty for it
                    errors[kind] = error
        problem = errors.get("tools")
        if errors and (not lists or (problem is not None and (problem.concerns_caller or problem.is_throttled))):
            raise next(iter(errors.values()))
        return ServerFeatures(
            tools=lists.get("tools", ()),
            resources=lists.get("resources", ()),
            templates=lists.get("templates", ()),
            prompts=lists.get("prompts", ()),
            instructions=self._session.instructions,
            info=ServerInfo()
            if about is None
            else build_server_info(about.title, about.description, [icon.src for icon in about.icons or ()]),
            list_errors={kind: str(error) for kind, error in errors.items()},
        )

    async def wait_closed(self) -> str:
        """Wait for the end and return its reason; see `UpstreamConnection`."""
        await self._closed.wait()
        return self._end_reason()

    def mark_closed(self) -> None:
        """Mark the session as unusable."""
        self._closed.set()

    def _end_reason(self) -> str:
        return self._state.get_end_reason() or (
            "The server closed the connection." if self._state.is_ended() else "The session was closed."
        )

    async def _ask(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        params = dict(params)
        opts: CallOptions = {}
        if options.on_progress is not None:
            opts["on_progress"] = _to_progress_callback(options.on_progress)
        if self._is_modern:
            meta = params["_meta"] = dict(cast("Mapping[str, object]", params.get("_meta") or {}))
            if options.on_log is not None:
                meta.setdefault(types.LOG_LEVEL_META_KEY, "info")
        else:
            params.pop("inputResponses", None)
            params.pop("requestState", None)
        capabilities = (
            self._capabilities if options.capabilities is None else call_router.set_roots_capability(options.capabilities, self._roots)
        )
        if self._is_modern:
            call_router.add_own_answers(params, self._roots)
        for _ in range(_MAX_ROOTS_ROUNDS):
            result = await self._send_request(method, params, opts, capabilities)
            self._validate_result(method, result)
            result, answers = call_router.split_requests(result, self._roots)
            if answers is None:
                return result
            # The server's requests can be answered here, without another call of the caller.
            params["inputResponses"] = answers
            params.pop("requestState", None)
            if isinstance(state := result.get("requestState"), str):
                params["requestState"] = state
        raise UpstreamErrorResponse(types.INTERNAL_ERROR, f"The server requested its roots {_MAX_ROOTS_ROUNDS} times in one call.")

    async def _send_request(self, method: str, params: JsonObject, opts: CallOptions, capabilities: JsonObject) -> JsonObject:
        message: dict[str, object] = {"method": method, "params": params}
        sdk.stamp_request(self._session, message, opts)
        if self._is_modern:
            # The caller's capabilities: the server must not request what the caller's client cannot do.
            cast("JsonObject", params["_meta"])[types.CLIENT_CAPABILITIES_META_KEY] = capabilities
        return await self._requests.send_raw_request(method, params, opts)

    def _validate_result(self, method: str, result: JsonObject) -> None:
        adapter = _result_adapter(method, self._version)
        if adapter is not None:
            adapter.validate_python(result, by_name=False)

    async def _list_all(self, method: str, field: str) -> tuple[JsonObject, ...]:
        """Return the items of all pages, unchanged. An item that is invalid in the negotiated protocol version is skipped."""
        items: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            try:
                page = await self._map_errors(lambda params=params: self._send_request(method, params, {}, self._capabilities))
            except UpstreamErrorResponse as error:
                if error.number == types.METHOD_NOT_FOUND:
                    return ()
                raise
            except UpstreamStatusError as error:
                if error.status == HTTPStatus.NOT_FOUND and field != "tools":
                    return ()  # how some servers say that they lack a method
                raise
            items += self._filter_valid(method, field, page)
            next_cursor = page.get("nextCursor")
            if not isinstance(next_cursor, str) or next_cursor == cursor or len(items) > MAX_FEATURES_PER_KIND:
                break
            cursor = next_cursor
        return tuple(self._filter_header_tools(items) if field == "tools" and self._is_modern else items)

    def _filter_valid(self, method: str, field: str, page: JsonObject) -> list[JsonObject]:
        value = page.get(field)
        if not isinstance(value, list):
            raise InvalidResult(f"The result of {method} has no list of {field}.")
        items = cast("list[JsonObject]", value)
        try:
            self._validate_result(method, page)
        except ValidationError:
            valid: list[JsonObject] = []
            for item in items:
                try:
                    self._validate_result(method, {**page, field: [item]})
                except ValidationError as error:
                    name = str(cast("object", item.get("name")))[:100] if isinstance(item, dict) else ""  # pyright: ignore[reportUnnecessaryIsInstance] - it is what the upstream sent
                    _log.warning("tools.invalid_item_skipped", list=field, name=name, reason=_describe_error(error))
                else:
                    valid.append(item)
            return valid
        return items

    def _filter_header_tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Register the arguments that are sent in headers too, and drop tools that declare them incorrectly (protocol 2026-07-28)."""
        listing = types.ListToolsResult.model_validate({"tools": tools}, by_name=False)
        names = {tool.name for tool in sdk.register_header_arguments(self._session, listing).tools}
        return [tool for tool in tools if tool.get("name") in names]

    async def _map_errors(self, send: Callable[[], Awaitable[T]]) -> T:
        if self._state.is_ended():
            # The SDK would report "Connection closed", as for a request in flight. This one was not sent.
            await _wait_for_reason(self._state)
            self.mark_closed()
        if self._closed.is_set():
            raise ConnectionLost(self._end_reason(), was_handled=False)
        try:
            return await send()
        except UnsentError as error:
            await _wait_for_reason(self._state)
            self.mark_closed()
            raise ConnectionLost(self._end_reason(), was_handled=False) from error
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED and error.message == "Connection closed":
                await _wait_for_reason(self._state)
                self.mark_closed()
                raise ConnectionLost(self._end_reason(), was_handled=True) from error
            raise self._map_error(error) from error
        except ValidationError as error:
            raise InvalidResult(f"The server returned an invalid result: {_describe_error(error)}") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError) as error:
            self.mark_closed()
            raise ConnectionLost(self._end_reason(), was_handled=False) from error

    def _map_error(self, error: MCPError) -> UpstreamError:
        if error.code == TOO_LARGE_CODE:
            return ResultTooLarge(error.message)
        if error.code == UNREADABLE_CODE:
            return InvalidResult(error.message)
        if error.code == STATUS_CODE:
            return sdk.to_status_error(error.message, error.data)
        if error.code == UNSENT_CODE:
            self.mark_closed()
            return ConnectionLost(error.message, was_handled=False)
        if error.code == BROKEN_CODE or (error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")):
            return ConnectionLost(error.message, was_handled=True)
        if error.code == types.INVALID_REQUEST and error.message.startswith(_SESSION_LOST_MESSAGES):
            self.mark_closed()
            return ConnectionLost("The session no longer exists on the server.", was_handled=False)
        return sdk.to_error_response(error)


@cache
def _result_adapter(method: str, version: str) -> TypeAdapter[object] | None:
    """
    Return the validator of a method's result; None if the protocol version lacks the method.

    The SDK's own check also serialises the result.
    """
    result_type = methods.SERVER_RESULTS.get((method, version))
    return None if result_type is None else TypeAdapter(cast("type[object]", result_type))


def _to_progress_callback(on_progress: OnProgress) -> ProgressFnT:
    async def forward(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return forward


def _describe_error(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


@contextlib.asynccontextmanager
async def open_session(
    transport: Transport,
    state: TransportState,
    *,
    on_changed: Callable[[], None],
    requests: RequestSender | None = None,
    roots: Roots = (),
    negotiation: Negotiation | None = None,
    extensions: Mapping[str, JsonObject] | None = None,
) -> AsyncGenerator[McpSession]:
    """
    Open a session over *transport* and negotiate its protocol version.

    Exceptions that the caller raises inside are not changed.

    Args:
        requests: Sends the requests of callers, instead of the SDK's dispatcher.
        roots: Folders to announce.
        negotiation: How to negotiate. None: with a server of unknown version.
        extensions: The extensions to announce, with their settings; see `find_extensions`.

    Raises:
        ConnectFailed: The other side is not an MCP server, or has no supported protocol version.
        ConnectionLost: The transport failed and ended the body; raised on exit.
    """
    router = CallRouter(roots)

    is_open = False
    callers_error: Exception | None = None
    try:
        async with transport as streams, _build_client(streams, router, on_changed, roots, extensions) as client:
            await (negotiation or Negotiation()).run(client)
            async with anyio.create_task_group() as tasks:
                is_open = True
                session = McpSession(client, state, router, tasks, requests=requests, roots=roots, extensions=extensions)
                tasks.start_soon(_mark_closed_on_end, session, state)
                if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                    tasks.start_soon(_listen_for_changes, client, on_changed)
                try:
                    yield session
                except Exception as error:  # noqa: BLE001 - raised again below
                    callers_error = error
                finally:
                    session.mark_closed()
                    router.end_subscriptions()
                    tasks.cancel_scope.cancel()
    except ConnectFailed:
        raise
    except (Exception, BaseExceptionGroup) as error:  # whatever the SDK raises, alone or in groups, ends this session
        cause = _root_cause(error)
        if isinstance(cause, UnsentError) or (isinstance(cause, MCPError) and cause.code == types.CONNECTION_CLOSED):
            await _wait_for_reason(state)
        if isinstance(cause, ConnectFailed) and not is_open:
            raise cause from error
        is_response = isinstance(cause, MCPError) and cause.code != types.CONNECTION_CLOSED
        text = (is_response and str(cause)) or state.get_end_reason() or str(cause) or type(cause).__name__
        if callers_error is None:
            raise (ConnectionLost(text, was_handled=True) if is_open else ConnectFailed(text)) from error
    if callers_error is not None:
        raise callers_error


def find_extensions(server: Server, opener: RequestOptions | None) -> Mapping[str, JsonObject]:
    """Return the extensions that a session announces: those of its caller's client, if it serves this key alone."""
    is_private = server.isolation in {SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION}
    return select_extensions(opener.capabilities) if is_private and opener is not None and opener.capabilities else {}


def _build_client(
    streams: TransportStreams,
    router: CallRouter,
    on_changed: Callable[[], None],
    roots: Roots,
    extensions: Mapping[str, JsonObject] | None,
) -> ClientSession:
    async def handle_message(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGE_NOTIFICATIONS):
            on_changed()
        elif isinstance(message, types.LoggingMessageNotification):
            await router.forward_log(message.params.model_dump(mode="json", by_alias=True, exclude_unset=True))
        elif isinstance(message, types.ResourceUpdatedNotification):
            router.notify_updated(str(message.params.uri))

    incoming, outgoing = streams
    return ClientSession(
        incoming,
        outgoing,
        message_handler=handle_message,
        client_info=_CLIENT_INFO,
        elicitation_callback=router.elicit,
        sampling_callback=router.sample,
        list_roots_callback=router.list_roots if roots else None,
        extensions=dict(extensions) if extensions else None,
    )


async def _mark_closed_on_end(session: McpSession, state: TransportState) -> None:
    await state.wait_ended()
    session.mark_closed()


async def _listen_for_changes(session: ClientSession, on_changed: Callable[[], None]) -> None:
    """Listen for changed lists. Newer protocol versions send them only to clients that subscribe."""
    capabilities = session.server_capabilities or types.ServerCapabilities()
    parts = (capabilities.tools, capabilities.resources, capabilities.prompts)
    tools, resources, prompts = (part is not None and bool(part.list_changed) for part in parts)
    if not (tools or resources or prompts):
        return
    # The next refresh of the catalogue finds changes that are missed after the stream ends.
    with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, ValidationError):
        listening = listen(session, tools_list_changed=tools, resources_list_changed=resources, prompts_list_changed=prompts)
        async with listening as changes:
            async for _ in changes:
                on_changed()


async def _wait_for_reason(state: TransportState) -> None:
    """Wait briefly for the reason of a connection's end: a process exits some milliseconds after its pipe closes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REASON_WAIT_S):
            await state.wait_ended()


def _root_cause(error: BaseException) -> BaseException:
    """Return the innermost exception of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    return error
