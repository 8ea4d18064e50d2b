"""Change notifications and resource subscriptions, for sessions of legacy clients and for streams of modern ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import mcp_types as types
import structlog
from mcp import MCPError
from mcp.server.connection import Connection
from mcp.server.subscriptions import ListenHandler
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.logs import FailureLog
from rookery.tools.catalogue import Catalogue
from rookery.tools.gateway.catalogue_views import GatewayView
from rookery.tools.gateway.mcp_requests import HandlerContext, McpRequest, get_client_connection, get_mcp_request
from rookery.tools.models import Server, ServerFeatures
from rookery.tools.ports import GatewayKeyVerifier, OnUpdate
from rookery.tools.resources import ResourceReader

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_SUBSCRIPTIONS_PER_CLIENT = 100
_RETRY_DELAYS_S = (1.0, 5.0, 30.0)
"""Delays before attempts to subscribe again after an upstream session ended. After the last one, the subscription is given up."""
MAX_STREAMS_PER_KEY = 50
MAX_STREAMS_PER_WORKSPACE = 250
_REQUIRED_SCOPE = "mcp:read"
_SEND_TIMEOUT_S = 5.0
_KEY_CHECK_INTERVAL_S = 3.0
"""Seconds between checks that the keys of all listeners are still valid."""


@dataclass(slots=True, eq=False)
class ResourceSubscription:
    """
    One client's subscription to one resource.

    Attributes:
        client_uri: The URI in the client's view.
        upstream_uri: The server's own URI.
    """

    mcp_request: McpRequest
    server: Server
    client_uri: str
    upstream_uri: str
    on_update: OnUpdate
    retry_task: asyncio.Task[None] | None = None


class ResourceSubscriptions:
    """Subscribes to resources of upstreams, and subscribes again if an upstream session ends."""

    def __init__(self, resources: ResourceReader) -> None:
        self._resources = resources

    async def subscribe(self, mcp_request: McpRequest, uri: str, notify: Callable[[str], None]) -> ResourceSubscription:
        """
        Call *notify* with *uri* whenever the resource changes.

        Raises:
            RookeryError: The server does not exist for this key, or does not support the subscription.
        """
        resources, view = self._resources, mcp_request.view
        if view.server_id is not None:
            server = resources.get_server(mcp_request.caller, view.server_id)
            upstream_uri = uri
        else:
            server = resources.find_server_by_uri(mcp_request.caller, uri)
            upstream_uri = resources.to_upstream_uri(server, uri, mcp_request.caller)

        def on_update(updated: str | None) -> None:
            notify(uri)  # also at the end of the session, because changes until the next subscription would be missed
            if updated is None:
                watch.retry_task = asyncio.create_task(self._resubscribe(watch))

        watch = ResourceSubscription(mcp_request, server, uri, upstream_uri, on_update)
        await resources.subscribe(mcp_request.caller, server, upstream_uri, on_update)
        return watch

    async def unsubscribe(self, watch: ResourceSubscription) -> None:
        """End the subscription. A failure is logged."""
        if watch.retry_task is not None:
            watch.retry_task.cancel()
        try:
            await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update, is_on=False)
        except RookeryError as error:
            _log.info("gateway.unsubscribe_failed", server=watch.server.id, reason=error.message)

    async def _resubscribe(self, watch: ResourceSubscription) -> None:
        for delay_s in _RETRY_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update)
            except RookeryError as error:
                _log.info("gateway.resubscribe_failed", server=watch.server.id, reason=error.message)
            else:
                return


def _require_capacity(count: int) -> None:
    if count >= MAX_SUBSCRIPTIONS_PER_CLIENT:
        raise MCPError(
            types.INVALID_REQUEST, f"A client may have at most {MAX_SUBSCRIPTIONS_PER_CLIENT} subscriptions; unsubscribe from one first."
        )


@dataclass(slots=True, eq=False)
class _LegacySession:
    """
    A session of a legacy client. Notifications go to its standing stream.

    Attributes:
        pending_events: Unsent events, without duplicates. An event only signals that the client should list again.
    """

    caller: Caller
    view: GatewayView
    connection: Connection
    subscriptions: dict[str, ResourceSubscription] = field(default_factory=dict[str, ResourceSubscription])
    pending_events: dict[ServerEvent, None] = field(default_factory=dict[ServerEvent, None])
    is_sending: bool = False
    subscription_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _EventStream:
    """The events of one stream of a modern client. The SDK's `ListenHandler` subscribes to it."""

    def __init__(self, caller: Caller, view: GatewayView) -> None:
        self.caller = caller
        self.view = view
        self.handler = ListenHandler(self)
        self._listeners: list[Callable[[ServerEvent], None]] = []

    async def publish(self, event: ServerEvent) -> None:
        """Send an event to the stream."""
        self.send(event)

    def send(self, event: ServerEvent) -> None:
        """Send an event to the stream. The handler drops events that the client did not subscribe to."""
        for listener in self._listeners:
            listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Add the stream's listener, and return a function that removes it."""
        self._listeners.append(listener)
        return self._listeners.clear


class ChangeNotifier:
    """
    Notifies MCP clients of changed lists and resources.

    Attributes:
        end_session: Ends a legacy session by its id.
    """

    def __init__(self, catalogue: Catalogue, subscriptions: ResourceSubscriptions, keys: GatewayKeyVerifier) -> None:
        self.end_session: Callable[[str], Awaitable[None]] | None = None
        self._catalogue = catalogue
        self._subscriptions = subscriptions
        self._keys = keys
        self._key_check_task: asyncio.Task[None] | None = None
        self._sessions: set[_LegacySession] = set()
        self._streams: set[_EventStream] = set()
        self._send_tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start to listen for changes of the catalogue."""
        self._catalogue.listeners.append(self._on_change)
        self._key_check_task = asyncio.create_task(self._run_key_checks(), name="gateway-keys")

    def close_streams(self) -> None:
        """End every stream with the protocol's final message, so that clients can distinguish it from a lost connection."""
        for stream in self._streams:
            stream.handler.close()

    def close(self) -> None:
        """Stop listening, end the streams and cancel the running tasks."""
        self._catalogue.listeners.remove(self._on_change)
        self.close_streams()
        if self._key_check_task is not None:
            self._key_check_task.cancel()
        for task in self._send_tasks:
            task.cancel()

    def add_session(self, ctx: HandlerContext) -> None:
        """Register a new session until it ends."""
        mcp_request = get_mcp_request(ctx)
        session = _LegacySession(mcp_request.caller, mcp_request.view, get_client_connection(ctx))
        self._sessions.add(session)
        session.connection.exit_stack.push_async_callback(self._on_session_end, session)

    async def subscribe(self, mcp_request: McpRequest, uri: str) -> None:
        """
        Subscribe a session to a resource.

        Raises:
            RookeryError: The resource does not exist, or its server does not support subscriptions.
        """
        session = self._get_session(mcp_request)
        async with session.subscription_lock:  # concurrent requests must not exceed the limit
            if uri not in session.subscriptions:
                _require_capacity(len(session.subscriptions))
                session.subscriptions[uri] = await self._subscriptions.subscribe(
                    mcp_request, uri, lambda updated_uri: self._queue_events(session, [ResourceUpdated(updated_uri)])
                )

    async def unsubscribe(self, mcp_request: McpRequest, uri: str) -> None:
        """Cancel a session's subscription to a resource. No effect without a subscription."""
        watch = self._get_session(mcp_request).subscriptions.pop(uri, None)
        if watch is not None:
            await self._subscriptions.unsubscribe(watch)

    def _get_session(self, mcp_request: McpRequest) -> _LegacySession:
        connection = get_client_connection(mcp_request.ctx)
        legacy_session = next((session for session in self._sessions if session.connection is connection), None)
        if legacy_session is None:
            raise MCPError(types.INVALID_REQUEST, "Subscriptions require a session. Send initialize first.")
        return legacy_session

    async def _on_session_end(self, session: _LegacySession) -> None:
        self._sessions.discard(session)
        for watch in session.subscriptions.values():
            await self._subscriptions.unsubscribe(watch)

    async def listen(self, ctx: HandlerContext, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serve a stream of a modern client until it disconnects."""
        mcp_request = get_mcp_request(ctx)
        if sum(stream.caller.key_id == mcp_request.caller.key_id for stream in self._streams) >= MAX_STREAMS_PER_KEY:
            raise MCPError(types.INTERNAL_ERROR, f"This key has {MAX_STREAMS_PER_KEY} open streams, the maximum. Close one first.")
        if (
            sum(stream.caller.public_workspace_id == mcp_request.caller.public_workspace_id for stream in self._streams)
            >= MAX_STREAMS_PER_WORKSPACE
        ):
            raise MCPError(
                types.INTERNAL_ERROR,
                f"The keys of this workspace have {MAX_STREAMS_PER_WORKSPACE} open streams, the maximum. Close one first.",
            )
        stream = _EventStream(mcp_request.caller, mcp_request.view)
        self._streams.add(stream)
        watches: list[ResourceSubscription] = []
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                _require_capacity(len(watches))
                watches.append(
                    await self._subscriptions.subscribe(mcp_request, uri, lambda updated_uri: stream.send(ResourceUpdated(updated_uri)))
                )
            return await stream.handler(ctx, params)
        except RookeryError as error:
            raise MCPError(types.INVALID_PARAMS, error.message, error.body()) from error
        finally:
            for watch in watches:
                self._send_tasks.add(task := asyncio.create_task(self._subscriptions.unsubscribe(watch)))
                task.add_done_callback(self._send_tasks.discard)
            self._streams.discard(stream)

    def _on_change(self, server: Server, before: ServerFeatures | None, after: ServerFeatures | None) -> None:
        events = _list_events(before or ServerFeatures(), after or ServerFeatures())
        if not events:
            return
        for stream in tuple(self._streams):
            if self._is_concerned(stream.caller, stream.view, server):
                for event in events:
                    stream.send(event)
        for session in tuple(self._sessions):
            if self._is_concerned(session.caller, session.view, server):
                self._queue_events(session, events)

    def _queue_events(self, session: _LegacySession, events: list[ServerEvent]) -> None:
        session.pending_events.update(dict.fromkeys(events))
        if session.is_sending:
            return
        session.is_sending = True
        task = asyncio.create_task(_send_events(session))
        self._send_tasks.add(task)
        task.add_done_callback(self._send_tasks.discard)

    async def _run_key_checks(self) -> None:
        failures = FailureLog(_log, "gateway.keys_not_read")
        while True:
            await asyncio.sleep(_KEY_CHECK_INTERVAL_S)
            try:
                await self._check_keys()
            except Exception as error:  # noqa: BLE001 - the next round retries; without it a revoked key would keep its streams
                failures.report(error)

    async def _check_keys(self) -> None:
        """End the sessions and streams of revoked keys, and apply changed rights to the others."""
        callers = {subscriber.caller.key_id: subscriber.caller for subscriber in (*self._streams, *self._sessions)}
        now = {key_id: await self._keys.refresh_caller(caller, _REQUIRED_SCOPE) for key_id, caller in callers.items()}
        for stream in tuple(self._streams):
            caller = now.get(stream.caller.key_id, stream.caller)
            if caller is None or (caller.servers, caller.tools) != (stream.caller.servers, stream.caller.tools):
                stream.handler.close()  # the client listens again with its new rights, if it still may
        for session in tuple(self._sessions):
            caller = now.get(session.caller.key_id, session.caller)
            if caller is None:
                await self._end_session(session)
                continue
            session.caller = caller
            for uri, watch in list(session.subscriptions.items()):
                if not self._catalogue.is_visible_to(caller, watch.server):
                    del session.subscriptions[uri]
                    await self._subscriptions.unsubscribe(watch)

    async def _end_session(self, session: _LegacySession) -> None:
        self._sessions.discard(session)
        session_id = session.connection.session_id
        if session_id is not None and self.end_session is not None:
            await self.end_session(session_id)

    def _is_concerned(self, caller: Caller, view: GatewayView, server: Server) -> bool:
        if view.is_search:
            return False  # the two tools of search mode never change
        if view.server_id not in {None, server.id}:
            return False
        return self._catalogue.is_visible_to(caller, server)


async def _send_events(session: _LegacySession) -> None:
    """Send the pending events on the session's standing stream. Without a stream or a reader they are lost."""
    connection = session.connection
    try:
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            while session.pending_events:
                event = next(iter(session.pending_events))
                del session.pending_events[event]
                match event:
                    case ToolsListChanged():
                        await connection.send_tool_list_changed()
                    case ResourcesListChanged():
                        await connection.send_resource_list_changed()
                    case PromptsListChanged():
                        await connection.send_prompt_list_changed()
                    case ResourceUpdated(uri=uri):
                        await connection.send_resource_updated(uri)
    except TimeoutError:
        _log.info("gateway.notifications_dropped", reason="the client does not read")
    finally:
        session.pending_events.clear()
        session.is_sending = False


def _list_events(before: ServerFeatures, after: ServerFeatures) -> list[ServerEvent]:
    events: list[ServerEvent] = []
    if before.tools != after.tools:
        events.append(ToolsListChanged())
    if (before.resources, before.templates) != (after.resources, after.templates):
        events.append(ResourcesListChanged())
    if before.prompts != after.prompts:
        events.append(PromptsListChanged())
    return events
