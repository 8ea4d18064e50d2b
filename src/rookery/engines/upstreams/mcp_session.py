"""
A session with an upstream through the SDK's client, as a `Connection`: results as they came, errors as ours.

The SDK negotiates, keeps the session and hears what comes; requests are stamped by it and handed to its dispatcher as they are,
without a model of each request and result on the way: a quarter of the CPU that a call of server-everything's echo takes here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from importlib import metadata
from typing import Protocol, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

import anyio
import mcp_types as types
import structlog
from anyio.abc import TaskGroup
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from rookery.engines.upstreams import roots as root_lists
from rookery.engines.upstreams.call_router import CallRouter
from rookery.tools.errors import ConnectFailed, ConnectionLost, InvalidResult, ResultTooLarge, UpstreamError, UpstreamErrorResponse
from rookery.tools.models import ConnectionInfo, JsonObject, Roots, ServerFeatures
from rookery.tools.ports import OnProgress, OnUpdate, RequestOptions, UpstreamMethod

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_MESSAGE_BYTES = 10 * 1024 * 1024 + 64 * 1024
"""A result of 10 MiB (D-34) and its envelope."""

TOO_LARGE_CODE = -32097
"""Our own JSON-RPC code: a transport's answer in the place of a result too large to read."""

UNSENT_CODE = -32096
"""Our own JSON-RPC code: a transport could not even deliver the request."""

BROKEN_CODE = -32095
"""Our own JSON-RPC code: this one request failed on its way there or back; the session may be fine."""

UNREADABLE_CODE = -32094
"""Our own JSON-RPC code: an answer came that is no JSON we can read."""

_MAX_PAGES = 100
_MAX_ROOTS_ROUNDS = 10
_LIST_TIMEOUT_S = 30.0
_REASON_WAIT_S = 0.5
_ROOTS_REQUEST_TIMEOUT_S = 1.0
"""How long the first call of a session waits for the server to ask for the caller's roots."""
_ROOTS_ANSWER_TIMEOUT_S = 30.0
_ROOTS_SETTLE_DELAY_S = 0.2
"""Servers look at the folders that they are given before they use them, and do not say when they have."""
_SESSION_LOST_MESSAGES = ("Session not found", "Session terminated")
"""What legacy HTTP upstreams answer, with -32600, to a session that they forgot, without looking at the request."""

_CAPABILITIES: JsonObject = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Of callers over HTTP: what a server of the later era asks of them is their answer, which they can come back to (D-34)."""

_CLIENT_INFO = types.Implementation(name="rookery", version=metadata.version("rookery"))
_CHANGE_NOTIFICATIONS = (types.ToolListChangedNotification, types.ResourceListChangedNotification, types.PromptListChangedNotification)

T = TypeVar("T")

Transport: TypeAlias = AbstractAsyncContextManager[TransportStreams]


class UnsentError(Exception):
    """A transport's word that a request surely did not leave: the SDK itself does not tell that from a loss in flight."""


class TransportState(Protocol):
    """What a transport knows beside its messages."""

    @property
    def pid(self) -> int | None:
        """The process at its other end, if we started it."""
        ...

    def get_end_reason(self) -> str:
        """Return what is known about the connection's end, for errors; empty if nothing is."""
        ...

    def is_ended(self) -> bool:
        """Tell whether it is known that nothing more can be sent."""
        ...

    async def wait_ended(self) -> None:
        """Return once no message can come any more; never, if that cannot be known."""
        ...


class RequestSender(Protocol):
    """Sends a request as it is; the SDK's dispatcher does."""

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """Return the result as it came."""
        ...


class McpSession:
    """One session; see `Connection`."""

    def __init__(
        self, client: Client, state: TransportState, router: CallRouter, tasks: TaskGroup, *, requests: RequestSender | None, roots: Roots
    ) -> None:
        self._client = client
        self._roots: Roots = roots
        self._capabilities = root_lists.set_roots_capability(_CAPABILITIES, roots)
        self._tasks = tasks
        self._session = client.session
        self._version = client.protocol_version
        self._is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        # The SDK shows neither; both are what its own `send_request` stands on.
        self._requests: RequestSender = requests or client.session._dispatcher  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._stamp = client.session._stamp  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._state = state
        self._router = router
        self._listen_scopes: dict[str, anyio.CancelScope] = {}
        self._subscription_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = asyncio.Event()
        about = client.server_info
        self._facts = ConnectionInfo(
            protocol_version=client.protocol_version,
            pid=state.pid,
            software="" if about is None else f"{about.name} {about.version}".strip(),
            capabilities=client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
        )

    @property
    def info(self) -> ConnectionInfo:
        """What the negotiation told; see `Connection`."""
        return self._facts

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Relay a request; see `Connection`."""
        if method in {"resources/subscribe", "resources/unsubscribe"}:
            return await self._handle_subscription(method, params, options)
        with self._router.serve_call(options):
            if not self._is_modern and self._router.needs_roots_request(options):
                await self._trigger_roots_request()
            try:
                return await self._map_errors(lambda: self._ask(method, params, options))
            except UpstreamErrorResponse as refused:
                if refused.number != types.HEADER_MISMATCH:
                    raise
                # 2026-07-28 over HTTP: some arguments travel in headers too, which a listing teaches the session.
                await self._list_all("tools/list", "tools")
                return await self._map_errors(lambda: self._ask(method, params, options))

    async def _trigger_roots_request(self) -> None:
        """Have a server of the older era ask for the caller's roots before the caller's first call; not all of them do."""
        if not self._router.roots_requested.is_set():
            with contextlib.suppress(MCPError, UnsentError, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
                await self._session.send_notification(types.RootsListChangedNotification())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._router.roots_requested.wait(), _ROOTS_REQUEST_TIMEOUT_S)
            await asyncio.wait_for(self._router.roots_answered.wait(), _ROOTS_ANSWER_TIMEOUT_S)
            await asyncio.sleep(_ROOTS_SETTLE_DELAY_S)
        self._router.roots_answered.set()

    async def _handle_subscription(self, method: UpstreamMethod, params: JsonObject, asking: RequestOptions) -> JsonObject:
        """Have one subscription upstream for all who hear of a resource; in the later era it is a stream of its own."""
        uri, on_update = str(params.get("uri")), asking.on_update
        if on_update is None:
            raise UpstreamErrorResponse(types.INVALID_PARAMS, "Nobody is there to hear of the resource.")
        # One change of a resource's subscription at a time: a key that leaves while it subscribes must not take it from the next one.
        async with self._subscription_locks.setdefault(uri, asyncio.Lock()):
            return await self._change_subscription(method, uri, on_update)

    async def _change_subscription(self, method: UpstreamMethod, uri: str, on_update: OnUpdate) -> JsonObject:
        is_on = method == "resources/subscribe"
        if not (self._router.subscribe if is_on else self._router.unsubscribe)(uri, on_update):
            return {}
        if self._is_modern:
            # Before the stream begins: who leaves at once must find it to end it.
            if is_on:
                self._listen_scopes[uri] = anyio.CancelScope()
                self._tasks.start_soon(self._listen_to_resource, uri, self._listen_scopes[uri])
            elif uri in self._listen_scopes:
                self._listen_scopes.pop(uri).cancel()
            return {}
        try:
            await self._map_errors(lambda: self._send_request(method, {"uri": uri}, {}, self._capabilities))
        except BaseException:
            if is_on:
                self._router.unsubscribe(uri, on_update)
            raise
        return {}

    async def _listen_to_resource(self, uri: str, scope: anyio.CancelScope) -> None:
        with scope, contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, ValidationError):
            async with self._client.listen(resource_subscriptions=[uri]) as changes:
                async for _ in changes:
                    if not self._router.notify_updated(uri):
                        return  # nobody hears any more

    async def list_features(self) -> ServerFeatures:
        """List everything; see `Connection`."""
        capabilities = self._client.server_capabilities
        has_resources, has_prompts = capabilities.resources is not None, capabilities.prompts is not None
        return ServerFeatures(
            tools=await self._list_all("tools/list", "tools"),
            resources=await self._list_all("resources/list", "resources") if has_resources else (),
            templates=await self._list_all("resources/templates/list", "resourceTemplates") if has_resources else (),
            prompts=await self._list_all("prompts/list", "prompts") if has_prompts else (),
            instructions=self._client.instructions,
        )

    async def wait_closed(self) -> str:
        """Wait for the end; see `Connection`."""
        await self._closed.wait()
        return self._end_reason()

    def mark_closed(self) -> None:
        """Note that the session is of no use any more."""
        self._closed.set()

    def _end_reason(self) -> str:
        return self._state.get_end_reason() or "The server closed the connection."

    async def _ask(self, method: UpstreamMethod, params: JsonObject, asking: RequestOptions) -> JsonObject:
        params = dict(params)
        opts: CallOptions = {}
        if asking.on_progress is not None:
            opts["on_progress"] = _to_progress_callback(asking.on_progress)
        if self._is_modern:
            meta = params["_meta"] = dict(cast("Mapping[str, object]", params.get("_meta") or {}))
            if asking.on_log is not None:
                meta.setdefault(types.LOG_LEVEL_META_KEY, "info")
        else:
            params.pop("inputResponses", None)
            params.pop("requestState", None)
        capabilities = (
            self._capabilities if asking.capabilities is None else root_lists.set_roots_capability(asking.capabilities, self._roots)
        )
        if self._is_modern:
            root_lists.add_own_answers(params, self._roots)
        for _ in range(_MAX_ROOTS_ROUNDS):
            result = await self._send_request(method, params, opts, capabilities)
            self._validate_result(method, result)
            result, answers = root_lists.split_requests(result, self._roots)
            if answers is None:
                return result
            # What the server asks can be answered here: its caller need not come again.
            params["inputResponses"] = answers
            params.pop("requestState", None)
            if isinstance(state := result.get("requestState"), str):
                params["requestState"] = state
        raise UpstreamErrorResponse(types.INTERNAL_ERROR, f"The server asked for its roots {_MAX_ROOTS_ROUNDS} times in one call.")

    async def _send_request(self, method: str, params: JsonObject, opts: CallOptions, capabilities: JsonObject) -> JsonObject:
        message: dict[str, object] = {"method": method, "params": params}
        self._stamp(message, opts)
        if self._is_modern:
            # The caller's, not ours: the server must not ask for what the caller's client cannot give.
            cast("JsonObject", params["_meta"])[types.CLIENT_CAPABILITIES_META_KEY] = capabilities
        return await self._requests.send_raw_request(method, params, opts)

    def _validate_result(self, method: str, result: JsonObject) -> None:
        of_the_protocol = _result_adapter(method, self._version)
        if of_the_protocol is not None:
            of_the_protocol.validate_python(result, by_name=False)

    async def _list_all(self, method: str, field: str) -> tuple[JsonObject, ...]:
        """Return all pages; each thing as it came. What is no such thing in the revision spoken costs itself alone."""
        found: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            try:
                async with asyncio.timeout(_LIST_TIMEOUT_S):
                    page = await self._map_errors(lambda params=params: self._send_request(method, params, {}, self._capabilities))
            except UpstreamErrorResponse as refused:
                if refused.number == types.METHOD_NOT_FOUND:
                    return ()
                raise
            except TimeoutError:
                raise InvalidResult(f"The server did not list its {field} within {_LIST_TIMEOUT_S:g} seconds.") from None
            found += self._filter_valid(method, field, page)
            following = page.get("nextCursor")
            if not isinstance(following, str) or following == cursor:
                break
            cursor = following
        return tuple(self._filter_header_tools(found) if field == "tools" and self._is_modern else found)

    def _filter_valid(self, method: str, field: str, page: JsonObject) -> list[JsonObject]:
        things = page.get(field)
        if not isinstance(things, list):
            raise InvalidResult(f"The server answered {method} without a list of {field}.")
        listed = cast("list[JsonObject]", things)
        try:
            self._validate_result(method, page)
        except ValidationError:
            good: list[JsonObject] = []
            for thing in listed:
                try:
                    self._validate_result(method, {**page, field: [thing]})
                except ValidationError as error:
                    name = str(cast("object", thing.get("name")))[:100] if isinstance(thing, dict) else ""  # pyright: ignore[reportUnnecessaryIsInstance] - it is what the upstream sent
                    _log.warning("tools.thing_left_out", what=field, name=name, reason=_describe_error(error))
                else:
                    good.append(thing)
            return good
        return listed

    def _filter_header_tools(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Teach the session which arguments travel in headers too, and leave out tools that name such ones wrongly (2026-07-28)."""
        listing = types.ListToolsResult.model_validate({"tools": tools}, by_name=False)
        kept = self._session._absorb_tool_listing(listing, complete=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no other way leads there
        names = {tool.name for tool in kept.tools}
        return [tool for tool in tools if tool.get("name") in names]

    async def _map_errors(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._state.is_ended():
            # The SDK would say "Connection closed", as of a request in flight; this one never left.
            await _wait_for_reason(self._state)
            self.mark_closed()
        if self._closed.is_set():
            raise ConnectionLost(self._end_reason(), was_handled=False)
        try:
            return await ask()
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
            raise InvalidResult(f"The server answered with an invalid result: {_describe_error(error)}") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError) as error:
            self.mark_closed()
            raise ConnectionLost(self._end_reason(), was_handled=False) from error

    def _map_error(self, error: MCPError) -> UpstreamError:
        if error.code == TOO_LARGE_CODE:
            return ResultTooLarge(error.message)
        if error.code == UNREADABLE_CODE:
            return InvalidResult(error.message)
        if error.code == UNSENT_CODE:
            self.mark_closed()
            return ConnectionLost(error.message, was_handled=False)
        if error.code == BROKEN_CODE or (error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")):
            return ConnectionLost(error.message, was_handled=True)
        if error.code == types.INVALID_REQUEST and error.message.startswith(_SESSION_LOST_MESSAGES):
            self.mark_closed()
            return ConnectionLost("The server forgot the session.", was_handled=False)
        return UpstreamErrorResponse(error.code, error.message, error.data)


@cache
def _result_adapter(method: str, version: str) -> TypeAdapter[object] | None:
    """Return what the protocol says of a result; None of a method that this revision does not have. The SDK's own check dumps it too."""
    surface = methods.SERVER_RESULTS.get((method, version))
    return None if surface is None else TypeAdapter(cast("type[object]", surface))


def _to_progress_callback(on_progress: OnProgress) -> ProgressFnT:
    async def forward(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return forward


def _describe_error(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


@contextlib.asynccontextmanager
async def open_session(
    transport: Transport, state: TransportState, *, on_changed: Callable[[], None], requests: RequestSender | None = None, roots: Roots = ()
) -> AsyncGenerator[McpSession]:
    """
    Open a session over *transport*, speaking whichever revision the upstream does.

    Args:
        requests: Takes what is asked through the session, in the place of the SDK's dispatcher.
        roots: The folders to announce.

    Raises:
        ConnectFailed: The upstream is none, or speaks no revision of ours.
        ConnectionLost: On leaving: the transport itself broke, which ended the body.
    """
    line = CallRouter(roots)

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGE_NOTIFICATIONS):
            on_changed()
        elif isinstance(message, types.LoggingMessageNotification):
            await line.forward_log(message.params.model_dump(mode="json", by_alias=True, exclude_unset=True))
        elif isinstance(message, types.ResourceUpdatedNotification):
            line.notify_updated(str(message.params.uri))

    client = Client(
        transport,
        mode="auto",
        message_handler=heard,
        client_info=_CLIENT_INFO,
        cache=None,
        elicitation_callback=line.elicit,
        sampling_callback=line.sample,
        list_roots_callback=line.list_roots if roots else None,
    )
    entered = False
    try:
        async with client, anyio.create_task_group() as tasks:
            entered = True
            relay = McpSession(client, state, line, tasks, requests=requests, roots=roots)
            tasks.start_soon(_mark_closed_on_end, relay, state)
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(_listen_for_changes, client, on_changed)
            try:
                yield relay
            finally:
                relay.mark_closed()
                line.end_subscriptions()
                tasks.cancel_scope.cancel()
    except ConnectFailed:
        raise
    except (Exception, BaseExceptionGroup) as error:  # whatever the SDK raises, alone or in groups, ends this session
        leaf = _root_cause(error)
        if isinstance(leaf, MCPError) and leaf.code == types.CONNECTION_CLOSED:
            await _wait_for_reason(state)
        text = state.get_end_reason() or str(leaf) or type(leaf).__name__
        raise (ConnectionLost(text, was_handled=True) if entered else ConnectFailed(text)) from error


async def _mark_closed_on_end(session: McpSession, state: TransportState) -> None:
    await state.wait_ended()
    session.mark_closed()


async def _listen_for_changes(client: Client, on_changed: Callable[[], None]) -> None:
    """Hear of changes in the stateless era, where they are told to those who ask for them alone."""
    capabilities = client.server_capabilities
    parts = (capabilities.tools, capabilities.resources, capabilities.prompts)
    tools, resources, prompts = (part is not None and bool(part.list_changed) for part in parts)
    if not (tools or resources or prompts):
        return
    # What is missed when this ends is found by the next refresh of the catalogue.
    with contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, ValidationError):
        listening = client.listen(tools_list_changed=tools, resources_list_changed=resources, prompts_list_changed=prompts)
        async with listening as changes:
            async for _ in changes:
                on_changed()


async def _wait_for_reason(state: TransportState) -> None:
    """Wait for why a connection ended: the exit of a process follows the end of its pipe by some milliseconds."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(state.wait_ended(), _REASON_WAIT_S)


def _root_cause(error: BaseException) -> BaseException:
    """Return the cause at the bottom of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    return error
