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
from rookery.engines.upstreams.line import Line
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultInvalid, ResultTooLarge, UpstreamError, UpstreamRefused
from rookery.tools.models import Facts, JsonObject, Offer, Roots
from rookery.tools.ports import Asking, Method, OnProgress, OnUpdate

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_MESSAGE = 10 * 1024 * 1024 + 64 * 1024
"""A result of 10 MiB (D-34) and its envelope."""

TOO_LARGE = -32097
"""Our own JSON-RPC code: a transport's answer in the place of a result too large to read."""

UNSENT = -32096
"""Our own JSON-RPC code: a transport could not even deliver the request."""

BROKEN = -32095
"""Our own JSON-RPC code: this one request failed on its way there or back; the session may be fine."""

UNREADABLE = -32094
"""Our own JSON-RPC code: an answer came that is no JSON we can read."""

_MAX_PAGES = 100
_MAX_ROOTS_ROUNDS = 10
_LIST_S = 30.0
_REASON_S = 0.5
_ROOTS_REQUEST_S = 1.0
"""How long the first call of a session waits for the server to ask for the caller's roots."""
_ROOTS_ANSWER_S = 30.0
_ROOTS_SETTLE_S = 0.2
"""Servers look at the folders that they are given before they use them, and do not say when they have."""
_SESSION_GONE = ("Session not found", "Session terminated")
"""What legacy HTTP upstreams answer, with -32600, to a session that they forgot, without looking at the request."""

_CAPABILITIES: JsonObject = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""Of callers over HTTP: what a server of the later era asks of them is their answer, which they can come back to (D-34)."""

_ABOUT_US = types.Implementation(name="rookery", version=metadata.version("rookery"))
_CHANGES = (types.ToolListChangedNotification, types.ResourceListChangedNotification, types.PromptListChangedNotification)

T = TypeVar("T")

Transport: TypeAlias = AbstractAsyncContextManager[TransportStreams]


class Unsent(Exception):
    """A transport's word that a request surely did not leave: the SDK itself does not tell that from a loss in flight."""


class Wire(Protocol):
    """What a transport knows beside its messages."""

    @property
    def pid(self) -> int | None:
        """The process at its other end, if we started it."""
        ...

    def why(self) -> str:
        """Return what is known about the connection's end, for errors; empty if nothing is."""
        ...

    def is_over(self) -> bool:
        """Tell whether it is known that nothing more can be sent."""
        ...

    async def wait_ended(self) -> None:
        """Return once no message can come any more; never, if that cannot be known."""
        ...


class Requests(Protocol):
    """Sends a request as it is; the SDK's dispatcher does."""

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """Return the result as it came."""
        ...


class Relay:
    """One session; see `Connection`."""

    def __init__(self, client: Client, wire: Wire, line: Line, tasks: TaskGroup, *, requests: Requests | None, roots: Roots) -> None:
        self._client = client
        self._roots: Roots = roots
        self._capabilities = root_lists.announce(_CAPABILITIES, roots)
        self._tasks = tasks
        self._session = client.session
        self._version = client.protocol_version
        self._is_modern = self._version in MODERN_PROTOCOL_VERSIONS
        # The SDK shows neither; both are what its own `send_request` stands on.
        self._requests: Requests = requests or client.session._dispatcher  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._stamp = client.session._stamp  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        self._wire = wire
        self._line = line
        self._listening: dict[str, anyio.CancelScope] = {}
        self._subscription_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._closed = asyncio.Event()
        about = client.server_info
        self._facts = Facts(
            era=client.protocol_version,
            pid=wire.pid,
            software="" if about is None else f"{about.name} {about.version}".strip(),
            capabilities=client.server_capabilities.model_dump(mode="json", by_alias=True, exclude_none=True),
        )

    @property
    def facts(self) -> Facts:
        """What the negotiation told; see `Connection`."""
        return self._facts

    async def ask(self, method: Method, params: JsonObject, asking: Asking) -> JsonObject:
        """Relay a request; see `Connection`."""
        if method in {"resources/subscribe", "resources/unsubscribe"}:
            return await self._watched(method, params, asking)
        with self._line.taken_by(asking):
            if not self._is_modern and self._line.must_request_roots(asking):
                await self._have_roots_requested()
            try:
                return await self._translated(lambda: self._ask(method, params, asking))
            except UpstreamRefused as refused:
                if refused.number != types.HEADER_MISMATCH:
                    raise
                # 2026-07-28 over HTTP: some arguments travel in headers too, which a listing teaches the session.
                await self._listed("tools/list", "tools")
                return await self._translated(lambda: self._ask(method, params, asking))

    async def _have_roots_requested(self) -> None:
        """Have a server of the older era ask for the caller's roots before the caller's first call; not all of them do."""
        if not self._line.roots_requested.is_set():
            with contextlib.suppress(MCPError, Unsent, anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError):
                await self._session.send_notification(types.RootsListChangedNotification())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._line.roots_requested.wait(), _ROOTS_REQUEST_S)
            await asyncio.wait_for(self._line.roots_answered.wait(), _ROOTS_ANSWER_S)
            await asyncio.sleep(_ROOTS_SETTLE_S)
        self._line.roots_answered.set()

    async def _watched(self, method: Method, params: JsonObject, asking: Asking) -> JsonObject:
        """Have one subscription upstream for all who hear of a resource; in the later era it is a stream of its own."""
        uri, on_update = str(params.get("uri")), asking.on_update
        if on_update is None:
            raise UpstreamRefused(types.INVALID_PARAMS, "Nobody is there to hear of the resource.")
        # One change of a resource's subscription at a time: a key that leaves while it subscribes must not take it from the next one.
        async with self._subscription_locks.setdefault(uri, asyncio.Lock()):
            return await self._change_subscription(method, uri, on_update)

    async def _change_subscription(self, method: Method, uri: str, on_update: OnUpdate) -> JsonObject:
        is_on = method == "resources/subscribe"
        if not (self._line.watch if is_on else self._line.unwatch)(uri, on_update):
            return {}
        if self._is_modern:
            # Before the stream begins: who leaves at once must find it to end it.
            if is_on:
                self._listening[uri] = anyio.CancelScope()
                self._tasks.start_soon(self._listen_to, uri, self._listening[uri])
            elif uri in self._listening:
                self._listening.pop(uri).cancel()
            return {}
        try:
            await self._translated(lambda: self._sent(method, {"uri": uri}, {}, self._capabilities))
        except BaseException:
            if is_on:
                self._line.unwatch(uri, on_update)
            raise
        return {}

    async def _listen_to(self, uri: str, scope: anyio.CancelScope) -> None:
        with scope, contextlib.suppress(ListenNotSupportedError, SubscriptionLost, MCPError, ValidationError):
            async with self._client.listen(resource_subscriptions=[uri]) as changes:
                async for _ in changes:
                    if not self._line.updated(uri):
                        return  # nobody hears any more

    async def offer(self) -> Offer:
        """List everything; see `Connection`."""
        capabilities = self._client.server_capabilities
        has_resources, has_prompts = capabilities.resources is not None, capabilities.prompts is not None
        return Offer(
            tools=await self._listed("tools/list", "tools"),
            resources=await self._listed("resources/list", "resources") if has_resources else (),
            templates=await self._listed("resources/templates/list", "resourceTemplates") if has_resources else (),
            prompts=await self._listed("prompts/list", "prompts") if has_prompts else (),
            instructions=self._client.instructions,
        )

    async def wait_closed(self) -> str:
        """Wait for the end; see `Connection`."""
        await self._closed.wait()
        return self._reason()

    def lose(self) -> None:
        """Note that the session is of no use any more."""
        self._closed.set()

    def _reason(self) -> str:
        return self._wire.why() or "The server closed the connection."

    async def _ask(self, method: Method, params: JsonObject, asking: Asking) -> JsonObject:
        params = dict(params)
        opts: CallOptions = {}
        if asking.on_progress is not None:
            opts["on_progress"] = _by_position(asking.on_progress)
        if self._is_modern:
            meta = params["_meta"] = dict(cast("Mapping[str, object]", params.get("_meta") or {}))
            if asking.on_log is not None:
                meta.setdefault(types.LOG_LEVEL_META_KEY, "info")
        else:
            params.pop("inputResponses", None)
            params.pop("requestState", None)
        capabilities = self._capabilities if asking.capabilities is None else root_lists.announce(asking.capabilities, self._roots)
        if self._is_modern:
            root_lists.add_own_answers(params, self._roots)
        for _ in range(_MAX_ROOTS_ROUNDS):
            result = await self._sent(method, params, opts, capabilities)
            self._must_be_of_the_protocol(method, result)
            result, answers = root_lists.split_requests(result, self._roots)
            if answers is None:
                return result
            # What the server asks can be answered here: its caller need not come again.
            params["inputResponses"] = answers
            params.pop("requestState", None)
            if isinstance(state := result.get("requestState"), str):
                params["requestState"] = state
        raise UpstreamRefused(types.INTERNAL_ERROR, f"The server asked for its roots {_MAX_ROOTS_ROUNDS} times in one call.")

    async def _sent(self, method: str, params: JsonObject, opts: CallOptions, capabilities: JsonObject) -> JsonObject:
        message: dict[str, object] = {"method": method, "params": params}
        self._stamp(message, opts)
        if self._is_modern:
            # The caller's, not ours: the server must not ask for what the caller's client cannot give.
            cast("JsonObject", params["_meta"])[types.CLIENT_CAPABILITIES_META_KEY] = capabilities
        return await self._requests.send_raw_request(method, params, opts)

    def _must_be_of_the_protocol(self, method: str, result: JsonObject) -> None:
        of_the_protocol = _result_of(method, self._version)
        if of_the_protocol is not None:
            of_the_protocol.validate_python(result, by_name=False)

    async def _listed(self, method: str, field: str) -> tuple[JsonObject, ...]:
        """Return all pages; each thing as it came. What is no such thing in the revision spoken costs itself alone."""
        found: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params: JsonObject = {} if cursor is None else {"cursor": cursor}
            try:
                async with asyncio.timeout(_LIST_S):
                    page = await self._translated(lambda params=params: self._sent(method, params, {}, self._capabilities))
            except UpstreamRefused as refused:
                if refused.number == types.METHOD_NOT_FOUND:
                    return ()
                raise
            except TimeoutError:
                raise ResultInvalid(f"The server did not list its {field} within {_LIST_S:g} seconds.") from None
            found += self._good(method, field, page)
            following = page.get("nextCursor")
            if not isinstance(following, str) or following == cursor:
                break
            cursor = following
        return tuple(self._without_bad_headers(found) if field == "tools" and self._is_modern else found)

    def _good(self, method: str, field: str, page: JsonObject) -> list[JsonObject]:
        things = page.get(field)
        if not isinstance(things, list):
            raise ResultInvalid(f"The server answered {method} without a list of {field}.")
        listed = cast("list[JsonObject]", things)
        try:
            self._must_be_of_the_protocol(method, page)
        except ValidationError:
            good: list[JsonObject] = []
            for thing in listed:
                try:
                    self._must_be_of_the_protocol(method, {**page, field: [thing]})
                except ValidationError as error:
                    name = str(cast("object", thing.get("name")))[:100] if isinstance(thing, dict) else ""  # pyright: ignore[reportUnnecessaryIsInstance] - it is what the upstream sent
                    _log.warning("tools.thing_left_out", what=field, name=name, reason=_problem(error))
                else:
                    good.append(thing)
            return good
        return listed

    def _without_bad_headers(self, tools: list[JsonObject]) -> list[JsonObject]:
        """Teach the session which arguments travel in headers too, and leave out tools that name such ones wrongly (2026-07-28)."""
        listing = types.ListToolsResult.model_validate({"tools": tools}, by_name=False)
        kept = self._session._absorb_tool_listing(listing, complete=True)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no other way leads there
        names = {tool.name for tool in kept.tools}
        return [tool for tool in tools if tool.get("name") in names]

    async def _translated(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._wire.is_over():
            # The SDK would say "Connection closed", as of a request in flight; this one never left.
            await _reason_known(self._wire)
            self.lose()
        if self._closed.is_set():
            raise ConnectionLost(self._reason(), was_handled=False)
        try:
            return await ask()
        except Unsent as error:
            await _reason_known(self._wire)
            self.lose()
            raise ConnectionLost(self._reason(), was_handled=False) from error
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED and error.message == "Connection closed":
                await _reason_known(self._wire)
                self.lose()
                raise ConnectionLost(self._reason(), was_handled=True) from error
            raise self._as_ours(error) from error
        except ValidationError as error:
            raise ResultInvalid(f"The server answered with an invalid result: {_problem(error)}") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, RuntimeError) as error:
            self.lose()
            raise ConnectionLost(self._reason(), was_handled=False) from error

    def _as_ours(self, error: MCPError) -> UpstreamError:
        if error.code == TOO_LARGE:
            return ResultTooLarge(error.message)
        if error.code == UNREADABLE:
            return ResultInvalid(error.message)
        if error.code == UNSENT:
            self.lose()
            return ConnectionLost(error.message, was_handled=False)
        if error.code == BROKEN or (error.code == types.CONNECTION_CLOSED and error.message.startswith("SSE stream")):
            return ConnectionLost(error.message, was_handled=True)
        if error.code == types.INVALID_REQUEST and error.message.startswith(_SESSION_GONE):
            self.lose()
            return ConnectionLost("The server forgot the session.", was_handled=False)
        return UpstreamRefused(error.code, error.message, error.data)


@cache
def _result_of(method: str, version: str) -> TypeAdapter[object] | None:
    """Return what the protocol says of a result; None of a method that this revision does not have. The SDK's own check dumps it too."""
    surface = methods.SERVER_RESULTS.get((method, version))
    return None if surface is None else TypeAdapter(cast("type[object]", surface))


def _by_position(on_progress: OnProgress) -> ProgressFnT:
    async def forward(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return forward


def _problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


@contextlib.asynccontextmanager
async def open_relay(
    transport: Transport, wire: Wire, *, on_changed: Callable[[], None], requests: Requests | None = None, roots: Roots = ()
) -> AsyncGenerator[Relay]:
    """
    Open a session over *transport*, speaking whichever revision the upstream does.

    Args:
        requests: Takes what is asked through the session, in the place of the SDK's dispatcher.
        roots: The folders to announce.

    Raises:
        ConnectFailed: The upstream is none, or speaks no revision of ours.
        ConnectionLost: On leaving: the transport itself broke, which ended the body.
    """
    line = Line(roots)

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            on_changed()
        elif isinstance(message, types.LoggingMessageNotification):
            await line.log(message.params.model_dump(mode="json", by_alias=True, exclude_unset=True))
        elif isinstance(message, types.ResourceUpdatedNotification):
            line.updated(str(message.params.uri))

    client = Client(
        transport,
        mode="auto",
        message_handler=heard,
        client_info=_ABOUT_US,
        cache=None,
        elicitation_callback=line.elicit,
        sampling_callback=line.sample,
        list_roots_callback=line.roots if roots else None,
    )
    entered = False
    try:
        async with client, anyio.create_task_group() as tasks:
            entered = True
            relay = Relay(client, wire, line, tasks, requests=requests, roots=roots)
            tasks.start_soon(_watch, relay, wire)
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(_listen, client, on_changed)
            try:
                yield relay
            finally:
                relay.lose()
                line.lost()
                tasks.cancel_scope.cancel()
    except ConnectFailed:
        raise
    except (Exception, BaseExceptionGroup) as error:  # whatever the SDK raises, alone or in groups, ends this session
        leaf = _leaf(error)
        if isinstance(leaf, MCPError) and leaf.code == types.CONNECTION_CLOSED:
            await _reason_known(wire)
        text = wire.why() or str(leaf) or type(leaf).__name__
        raise (ConnectionLost(text, was_handled=True) if entered else ConnectFailed(text)) from error


async def _watch(relay: Relay, wire: Wire) -> None:
    await wire.wait_ended()
    relay.lose()


async def _listen(client: Client, on_changed: Callable[[], None]) -> None:
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


async def _reason_known(wire: Wire) -> None:
    """Wait for why a connection ended: the exit of a process follows the end of its pipe by some milliseconds."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(wire.wait_ended(), _REASON_S)


def _leaf(error: BaseException) -> BaseException:
    """Return the cause at the bottom of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseException", error.exceptions[0])
    return error
