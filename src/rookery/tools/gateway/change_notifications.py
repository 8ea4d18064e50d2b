"""Change notifications and resource subscriptions, for sessions of legacy clients and for streams of modern ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import mcp_types as types
import structlog
from mcp import MCPError
from mcp.server.connection import Connection
from mcp.server.subscriptions import ListenHandler
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ServerEvent, ToolsListChanged
from starlette.requests import Request

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError
from rookery.kernel.logs import FailureLog
from rookery.tools.call_options import CallOptions
from rookery.tools.catalogue import Catalogue
from rookery.tools.feature_lists import FeatureChange
from rookery.tools.gateway.catalogue_views import GatewayView
from rookery.tools.gateway.limits import EvictionRefused, select_evicted
from rookery.tools.gateway.list_changes import CanSeeTool, ListChanges
from rookery.tools.gateway.mcp_requests import HandlerContext, McpRequest, get_client_connection, get_mcp_request, get_view
from rookery.tools.models import Server
from rookery.tools.ports import GatewayKeyVerifier, OnUpdate
from rookery.tools.resources import ResourceReader

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_SUBSCRIPTIONS_PER_CLIENT = 100
_RENEWAL_TIMEOUT_S = 5.0
"""Wait of the end of a subscription for a renewal of it that is under way."""
_RETRY_DELAYS_S = (1.0, 5.0, 30.0)
"""Delays before attempts to subscribe again after an upstream session ended. After the last one, the subscription is given up."""
MAX_STREAMS_PER_KEY = 50
MAX_STREAMS_PER_WORKSPACE = 250
_REQUIRED_SCOPE = "mcp:read"
_SEND_TIMEOUT_S = 5.0
_KEY_CHECK_INTERVAL_S = 1.0
"""Seconds between checks that the keys of all listeners are still valid."""


@dataclass(slots=True, eq=False)
class ResourceSubscription:
    """
    One client's subscription to one resource.

    Attributes:
        client_uri: The URI in the client's view.
        upstream_uri: The server's own URI.
        options: The headers of the client's last request about it. Every request for the subscription forwards them.
        is_renewing: A request that renews it is under way.
    """

    mcp_request: McpRequest
    server: Server
    client_uri: str
    upstream_uri: str
    on_update: OnUpdate
    options: CallOptions
    retry_task: asyncio.Task[None] | None = None
    is_renewing: bool = False


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
            target = await resources.uris.resolve(mcp_request.caller, uri, mcp_request.to_list_options())
            server, upstream_uri = target.server, target.candidates[0]

        def on_update(updated: str | None) -> None:
            notify(uri)  # also at the end of the session, because changes until the next subscription would be missed
            if updated is None:
                watch.retry_task = asyncio.create_task(self._resubscribe(watch))

        watch = ResourceSubscription(mcp_request, server, uri, upstream_uri, on_update, mcp_request.to_list_options())
        await resources.subscribe(mcp_request.caller, server, upstream_uri, on_update, options=watch.options)
        return watch

    async def unsubscribe(self, watch: ResourceSubscription) -> None:
        """End the subscription. A failure is logged."""
        if watch.retry_task is not None:
            if watch.is_renewing:  # else the server would keep a subscription whose answer nobody reads
                await asyncio.wait({watch.retry_task}, timeout=_RENEWAL_TIMEOUT_S)
            watch.retry_task.cancel()
        try:
            await self._resources.subscribe(
                watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update, is_on=False, options=watch.options
            )
        except RookeryError as error:
            _log.info("gateway.unsubscribe_failed", server=watch.server.id, reason=error.message)

    async def _resubscribe(self, watch: ResourceSubscription) -> None:
        for delay_s in _RETRY_DELAYS_S:
            await asyncio.sleep(delay_s)
            watch.is_renewing = True
            try:
                await self._resources.subscribe(
                    watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update, options=watch.options
                )
            except RookeryError as error:
                _log.info("gateway.resubscribe_failed", server=watch.server.id, reason=error.message)
            else:
                return
            finally:
                watch.is_renewing = False


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
    list_changes: ListChanges | None = None
    is_sending: bool = False
    subscription_lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class _EventStream:
    """The events of one stream of a modern client. The SDK's `ListenHandler` subscribes to it."""

    def __init__(self, caller: Caller, view: GatewayView) -> None:
        self.caller = caller
        self.view = view
        self.opened_at = time.monotonic()
        self.handler = ListenHandler(self)
        self.list_changes: ListChanges | None = None
        self._listeners: list[Callable[[ServerEvent], None]] = []

    async def publish(self, event: ServerEvent) -> None:
        self.send(event)

    def send(self, event: ServerEvent) -> None:
        """Send an event to the stream. The handler drops events that the client did not subscribe to."""
        for listener in self._listeners:
            listener(event)

    def send_all(self, events: list[ServerEvent]) -> None:
        """Send several events to the stream."""
        for event in events:
            self.send(event)

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
        self._add_session(mcp_request.caller, mcp_request.view, get_client_connection(ctx))

    def add_revived_session(self, request: Request, connection: Connection) -> None:
        """Register a session that *request* revives."""
        self._add_session(get_caller(request), get_view(request), connection)

    def announce_all(self, connection: Connection) -> None:
        """Announce all lists as changed to a client whose session was revived. Changes before that were not announced."""
        for session in self._sessions:
            if session.connection is connection and not session.view.is_search:
                self._queue_events(session, [ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()])

    def _add_session(self, caller: Caller, view: GatewayView, connection: Connection) -> None:
        session = _LegacySession(caller, view, connection)
        self._sessions.add(session)
        connection.exit_stack.push_async_callback(self._on_session_end, session)

    async def subscribe(self, mcp_request: McpRequest, uri: str) -> None:
        """
        Subscribe a session to a resource.

        Raises:
            RookeryError: The resource does not exist, or its server does not support subscriptions.
        """
        session = self._get_session(mcp_request)
        async with session.subscription_lock:  # concurrent requests must not exceed the limit
            if uri in session.subscriptions:
                session.subscriptions[uri].options = mcp_request.to_list_options()
            else:
                _require_capacity(len(session.subscriptions))
                session.subscriptions[uri] = await self._subscriptions.subscribe(
                    mcp_request, uri, lambda updated_uri: self._queue_events(session, [ResourceUpdated(updated_uri)])
                )

    async def unsubscribe(self, mcp_request: McpRequest, uri: str) -> None:
        """Cancel a session's subscription to a resource. No effect without a subscription."""
        watch = self._get_session(mcp_request).subscriptions.pop(uri, None)
        if watch is not None:
            watch.options = mcp_request.to_list_options()
            await self._subscriptions.unsubscribe(watch)

    def _get_session(self, mcp_request: McpRequest) -> _LegacySession:
        connection = get_client_connection(mcp_request.ctx)
        legacy_session = next((session for session in self._sessions if session.connection is connection), None)
        if legacy_session is None:
            raise MCPError(types.INVALID_REQUEST, "Subscriptions require a session. Send initialize first.")
        return legacy_session

    async def _on_session_end(self, session: _LegacySession) -> None:
        self._sessions.discard(session)
        if session.list_changes is not None:
            session.list_changes.close()
        for watch in session.subscriptions.values():
            await self._subscriptions.unsubscribe(watch)

    async def listen(self, ctx: HandlerContext, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serve a stream of a modern client until it disconnects."""
        mcp_request = get_mcp_request(ctx)
        self._make_room(mcp_request.caller)
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
            if stream.list_changes is not None:
                stream.list_changes.close()

    def _make_room(self, caller: Caller) -> None:
        """
        Close the oldest stream at each limit that is reached. Its client gets the final message of the protocol, and may listen again.

        Raises:
            MCPError: All these streams have been opened in the last minute.
        """
        of_key = [stream for stream in self._streams if stream.caller.key_id == caller.key_id]
        if len(of_key) >= MAX_STREAMS_PER_KEY:
            self._close_oldest(of_key, f"This key has {MAX_STREAMS_PER_KEY} open streams, the maximum.")
        of_workspace = [stream for stream in self._streams if stream.caller.public_workspace_id == caller.public_workspace_id]
        if len(of_workspace) >= MAX_STREAMS_PER_WORKSPACE:
            self._close_oldest(of_workspace, f"The keys of this workspace have {MAX_STREAMS_PER_WORKSPACE} open streams, the maximum.")

    def _close_oldest(self, streams: Iterable[_EventStream], problem: str) -> None:
        try:
            oldest = select_evicted({stream: stream.opened_at for stream in streams}, time.monotonic())
        except EvictionRefused as error:
            message = f"{problem} Close one, or try again in {error.retry_after_s} s."
            raise MCPError(types.INTERNAL_ERROR, message, {"retry_after": error.retry_after_s}) from error
        oldest.handler.close()
        self._streams.discard(oldest)

    def _on_change(self, change: FeatureChange) -> None:
        for stream in tuple(self._streams):
            if self._is_concerned(stream, change):
                if stream.list_changes is None:
                    stream.list_changes = ListChanges(self._build_filter(stream), stream.send_all)
                stream.list_changes.add(change)
        for session in tuple(self._sessions):
            if self._is_concerned(session, change):
                if session.list_changes is None:
                    session.list_changes = ListChanges(self._build_filter(session), partial(self._queue_events, session))
                session.list_changes.add(change)

    def _build_filter(self, client: _LegacySession | _EventStream) -> CanSeeTool:
        """Return the filter of the tools that a client sees. Its caller has the rights of now."""
        return lambda server, tool: self._catalogue.can_see_tool(client.caller, server, tool)

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

    def _is_concerned(self, client: _LegacySession | _EventStream, change: FeatureChange) -> bool:
        view, server = client.view, change.server
        if view.is_search:
            return False  # the tools of search mode never change
        if view.server_id not in {None, server.id}:
            return False
        return self._catalogue.is_visible_to(client.caller, server) and self._catalogue.concerns(change, client.caller, view.session_id)


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
