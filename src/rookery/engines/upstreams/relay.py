"""A session with an upstream through the SDK's client, as a `Connection`: results as they came, errors as ours."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias, TypeVar, cast

import anyio
import mcp_types as types
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, RootModel, ValidationError

from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultInvalid, ResultTooLarge, UpstreamError, UpstreamRefused
from rookery.tools.models import Facts, JsonObject, Offer
from rookery.tools.ports import Asking, Method, OnProgress

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
_LIST_S = 30.0
_REASON_S = 0.5
_SESSION_GONE = ("Session not found", "Session terminated")
"""What legacy HTTP upstreams answer, with -32600, to a session that they forgot, without looking at the request."""

_ABOUT_US = types.Implementation(name="rookery", version="1.0.0")
_CHANGES = (types.ToolListChangedNotification, types.ResourceListChangedNotification, types.PromptListChangedNotification)

_REQUESTS: dict[Method, type[types.CallToolRequest | types.ReadResourceRequest | types.GetPromptRequest | types.CompleteRequest]] = {
    "tools/call": types.CallToolRequest,
    "resources/read": types.ReadResourceRequest,
    "prompts/get": types.GetPromptRequest,
    "completion/complete": types.CompleteRequest,
}

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


class Raw(RootModel[dict[str, object]]):
    """A result as it came; the session has already checked it against the negotiated revision of the protocol."""


class Relay:
    """One session; see `Connection`."""

    def __init__(self, client: Client, wire: Wire) -> None:
        self._client = client
        self._session = client.session
        self._wire = wire
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
        return await self._send(_REQUESTS[method].model_validate({"method": method, "params": params}), asking.on_progress)

    async def offer(self) -> Offer:
        """List everything; see `Connection`."""
        capabilities = self._client.server_capabilities
        tools = await self._pages(lambda page: self._session.list_tools(params=page), "tools")
        has_resources, has_prompts = capabilities.resources is not None, capabilities.prompts is not None
        return Offer(
            tools=tools,
            resources=await self._pages(lambda page: self._session.list_resources(params=page), "resources") if has_resources else (),
            templates=(
                await self._pages(lambda page: self._session.list_resource_templates(params=page), "resourceTemplates")
                if has_resources
                else ()
            ),
            prompts=await self._pages(lambda page: self._session.list_prompts(params=page), "prompts") if has_prompts else (),
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

    async def _send(self, request: types.ClientRequest, on_progress: OnProgress | None = None) -> JsonObject:
        try:
            return await self._translated(lambda: self._ask(request, on_progress))
        except UpstreamRefused as refused:
            if refused.number != types.HEADER_MISMATCH:
                raise
            # 2026-07-28 over HTTP: some arguments travel in headers too, which a listing teaches the session.
            await self.offer()
            return await self._translated(lambda: self._ask(request, on_progress))

    async def _ask(self, request: types.ClientRequest, on_progress: OnProgress | None) -> JsonObject:
        return (await self._session.send_request(request, Raw, progress_callback=_forwarding(on_progress))).root

    async def _pages(
        self, ask: Callable[[types.PaginatedRequestParams | None], Awaitable[BaseModel]], field: str
    ) -> tuple[JsonObject, ...]:
        """Return all pages; the listing's fields as they came, their nulls too."""
        found: list[JsonObject] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            try:
                async with asyncio.timeout(_LIST_S):
                    page = await self._translated(lambda params=params: ask(params))
            except UpstreamRefused as refused:
                if refused.number == types.METHOD_NOT_FOUND:
                    return ()
                raise
            except TimeoutError:
                raise ResultInvalid(f"The server did not list its {field} within {_LIST_S:g} seconds.") from None
            content = cast("dict[str, object]", page.model_dump(mode="json", by_alias=True, exclude_unset=True))
            found += cast("list[JsonObject]", content.get(field) or [])
            following = content.get("nextCursor")
            if not isinstance(following, str) or following == cursor:
                break
            cursor = following
        return tuple(found)

    async def _translated(self, ask: Callable[[], Awaitable[T]]) -> T:
        if self._wire.is_over():
            # The SDK would say "Connection closed", as of a request in flight; this one never left.
            self.lose()
            await _reason_known(self._wire)
        if self._closed.is_set():
            raise ConnectionLost(self._reason(), was_handled=False)
        try:
            return await ask()
        except Unsent as error:
            self.lose()
            await _reason_known(self._wire)
            raise ConnectionLost(self._reason(), was_handled=False) from error
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED and error.message == "Connection closed":
                self.lose()
                await _reason_known(self._wire)
                raise ConnectionLost(self._reason(), was_handled=True) from error
            raise self._as_ours(error) from error
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]
            where = "/".join(str(part) for part in problem["loc"])
            raise ResultInvalid(f"The server answered with an invalid result: {where}: {problem['msg']}") from error
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
        return UpstreamRefused(error.code, error.message)


def _forwarding(on_progress: OnProgress | None) -> ProgressFnT | None:
    if on_progress is None:
        return None

    async def forward(progress: float, total: float | None, message: str | None) -> None:
        await on_progress(progress, total, message)

    return forward


@contextlib.asynccontextmanager
async def open_relay(transport: Transport, wire: Wire, *, on_changed: Callable[[], None]) -> AsyncGenerator[Relay]:
    """
    Open a session over *transport*, speaking whichever revision the upstream does.

    Raises:
        ConnectFailed: The upstream is none, or speaks no revision of ours.
        ConnectionLost: On leaving: the transport itself broke, which ended the body.
    """

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            on_changed()

    client = Client(transport, mode="auto", message_handler=heard, client_info=_ABOUT_US, cache=None)
    entered = False
    try:
        async with client, anyio.create_task_group() as tasks:
            entered = True
            relay = Relay(client, wire)
            tasks.start_soon(_watch, relay, wire)
            if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
                tasks.start_soon(_listen, client, on_changed)
            try:
                yield relay
            finally:
                relay.lose()
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
