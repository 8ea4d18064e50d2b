"""Who wants to hear that what they see changed: sessions of the older era, and streams of the later one."""

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
from rookery.kernel.log_limits import FailureLog
from rookery.tools.catalogue import Catalogue
from rookery.tools.gateway.keys import Keys
from rookery.tools.gateway.views import View
from rookery.tools.gateway.visits import Context, Visit, connection_of, visit_of
from rookery.tools.gateway.watches import Watch, Watches, must_have_room
from rookery.tools.models import Offer, Server

_log = structlog.stdlib.get_logger("rookery.tools")

STREAMS_PER_KEY = 50
STREAMS_PER_WORKSPACE = 250
_NEEDS = "mcp:read"
_SEND_S = 5.0
_ROUND_S = 3.0
"""So often it is asked whether the keys of all who hear are still good."""


@dataclass(slots=True, eq=False)
class _Session:
    """
    A session of the older era; it is told on its own stream.

    Attributes:
        untold: What it is still to be told, each thing once: all of it says no more than "look again".
    """

    caller: Caller
    view: View
    connection: Connection
    watches: dict[str, Watch] = field(default_factory=dict[str, Watch])
    untold: dict[ServerEvent, None] = field(default_factory=dict[ServerEvent, None])
    is_being_told: bool = False
    watching: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Listening:
    """What one stream of the later era may hear, as the SDK's handler, its `end`, subscribes to it."""

    def __init__(self, caller: Caller, view: View) -> None:
        self.caller = caller
        self.view = view
        self.end = ListenHandler(self)
        self._listeners: list[Callable[[ServerEvent], None]] = []

    async def publish(self, event: ServerEvent) -> None:
        """Tell the stream."""
        self.tell(event)

    def tell(self, event: ServerEvent) -> None:
        """Tell the stream; it is filtered by what the client asked for."""
        for listener in self._listeners:
            listener(event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Take the stream's own end."""
        self._listeners.append(listener)
        return self._listeners.clear


class Changes:
    """
    Tells of changed lists.

    Attributes:
        end_session: Ends a session of the older era, by its id.
    """

    def __init__(self, catalogue: Catalogue, watches: Watches, keys: Keys) -> None:
        self.end_session: Callable[[str], Awaitable[None]] | None = None
        self._catalogue = catalogue
        self._watches = watches
        self._keys = keys
        self._rounds: asyncio.Task[None] | None = None
        self._sessions: set[_Session] = set()
        self._streams: set[_Listening] = set()
        self._telling: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to hear of changes."""
        self._catalogue.listeners.append(self._changed)
        self._rounds = asyncio.create_task(self._go_round(), name="gateway-keys")

    def hang_up(self) -> None:
        """End every stream as the protocol has it, so that its client knows that it was meant."""
        for stream in self._streams:
            stream.end.close()

    def close(self) -> None:
        """Hear no more."""
        self._catalogue.listeners.remove(self._changed)
        self.hang_up()
        if self._rounds is not None:
            self._rounds.cancel()
        for task in self._telling:
            task.cancel()

    def opened(self, ctx: Context) -> None:
        """Take note of a session that begins, until it ends."""
        visit = visit_of(ctx)
        session = _Session(visit.caller, visit.view, connection_of(ctx))
        self._sessions.add(session)
        session.connection.exit_stack.push_async_callback(self._ended, session)

    async def subscribe(self, visit: Visit, uri: str) -> None:
        """
        Tell a session of a resource's changes from now on.

        Raises:
            RookeryError: There is no such resource, or its server does not tell of it.
        """
        session = self._session(visit)
        async with session.watching:  # one after another, or many at once would all find room
            if uri not in session.watches:
                must_have_room(len(session.watches))
                session.watches[uri] = await self._watches.begin(visit, uri, lambda shown: self._tell(session, [ResourceUpdated(shown)]))

    async def unsubscribe(self, visit: Visit, uri: str) -> None:
        """Tell it no more."""
        watch = self._session(visit).watches.pop(uri, None)
        if watch is not None:
            await self._watches.end(watch)

    def _session(self, visit: Visit) -> _Session:
        connection = connection_of(visit.ctx)
        found = next((each for each in self._sessions if each.connection is connection), None)
        if found is None:
            raise MCPError(types.INVALID_REQUEST, "Subscriptions belong to a session, which begins with initialize.")
        return found

    async def _ended(self, session: _Session) -> None:
        self._sessions.discard(session)
        for watch in session.watches.values():
            await self._watches.end(watch)

    async def listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serve a stream of the later era until its client leaves."""
        visit = visit_of(ctx)
        if sum(each.caller.key_id == visit.caller.key_id for each in self._streams) >= STREAMS_PER_KEY:
            raise MCPError(types.INTERNAL_ERROR, f"This key listens on {STREAMS_PER_KEY} streams already.")
        if sum(each.caller.shown_workspace_id == visit.caller.shown_workspace_id for each in self._streams) >= STREAMS_PER_WORKSPACE:
            raise MCPError(types.INTERNAL_ERROR, f"The keys of this workspace listen on {STREAMS_PER_WORKSPACE} streams already.")
        stream = _Listening(visit.caller, visit.view)
        self._streams.add(stream)
        watches: list[Watch] = []
        try:
            for uri in dict.fromkeys(params.notifications.resource_subscriptions or ()):
                must_have_room(len(watches))
                watches.append(await self._watches.begin(visit, uri, lambda shown: stream.tell(ResourceUpdated(shown))))
            return await stream.end(ctx, params)
        except RookeryError as error:
            raise MCPError(types.INVALID_PARAMS, error.message, error.body()) from error
        finally:
            for watch in watches:
                self._telling.add(task := asyncio.create_task(self._watches.end(watch)))
                task.add_done_callback(self._telling.discard)
            self._streams.discard(stream)

    def _changed(self, server: Server, before: Offer | None, after: Offer | None) -> None:
        events = _events(before or Offer(), after or Offer())
        if not events:
            return
        for stream in tuple(self._streams):
            if self._concerns(stream.caller, stream.view, server):
                for event in events:
                    stream.tell(event)
        for session in tuple(self._sessions):
            if self._concerns(session.caller, session.view, server):
                self._tell(session, events)

    def _tell(self, session: _Session, events: list[ServerEvent]) -> None:
        session.untold.update(dict.fromkeys(events))
        if session.is_being_told:
            return
        session.is_being_told = True
        task = asyncio.create_task(_tell(session))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _go_round(self) -> None:
        failures = FailureLog(_log, "gateway.keys_not_read")
        while True:
            await asyncio.sleep(_ROUND_S)
            try:
                await self._look_at_keys()
            except Exception as error:  # noqa: BLE001 - the next round is another try, and without any a revoked key would hear for ever
                failures.report(error)

    async def _look_at_keys(self) -> None:
        """End what belongs to a key that would not be let in any more; a key that reaches other things now hears of those."""
        callers = {each.caller.key_id: each.caller for each in (*self._streams, *self._sessions)}
        now = {key_id: await self._keys.still(caller, _NEEDS) for key_id, caller in callers.items()}
        for stream in tuple(self._streams):
            caller = now.get(stream.caller.key_id, stream.caller)
            if caller is None or (caller.servers, caller.tools) != (stream.caller.servers, stream.caller.tools):
                stream.end.close()  # its client listens again, if it may, and to what it may
        for session in tuple(self._sessions):
            caller = now.get(session.caller.key_id, session.caller)
            if caller is None:
                await self._end(session)
                continue
            session.caller = caller
            for uri, watch in list(session.watches.items()):
                if not self._catalogue.is_seen_by(caller, watch.server):
                    del session.watches[uri]
                    await self._watches.end(watch)

    async def _end(self, session: _Session) -> None:
        self._sessions.discard(session)
        session_id = session.connection.session_id
        if session_id is not None and self.end_session is not None:
            await self.end_session(session_id)

    def _concerns(self, caller: Caller, view: View, server: Server) -> bool:
        if view.is_search:
            return False  # its two tools stay what they are
        if view.server_id not in {None, server.id}:
            return False
        return self._catalogue.is_seen_by(caller, server)


async def _tell(session: _Session) -> None:
    """Send it on the session's standing stream; a client that has none, or reads none, misses it."""
    connection = session.connection
    try:
        async with asyncio.timeout(_SEND_S):
            while session.untold:
                event = next(iter(session.untold))
                del session.untold[event]
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
        _log.info("gateway.not_told", reason="the client does not read")
    finally:
        session.untold.clear()
        session.is_being_told = False


def _events(before: Offer, after: Offer) -> list[ServerEvent]:
    events: list[ServerEvent] = []
    if before.tools != after.tools:
        events.append(ToolsListChanged())
    if (before.resources, before.templates) != (after.resources, after.templates):
        events.append(ResourcesListChanged())
    if before.prompts != after.prompts:
        events.append(PromptsListChanged())
    return events
