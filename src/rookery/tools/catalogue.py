"""Which servers, tools and resources there are, kept in the store and answered from memory: a list never waits (D-30 to D-33)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

import orjson
import structlog

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database
from rookery.kernel.errors import PermissionDenied, RookeryError
from rookery.tools.arguments import Arguments
from rookery.tools.errors import Disabled, ServerNotFound, UpstreamError
from rookery.tools.models import Address, Command, Health, JsonObject, Offer, Server, Snapshot
from rookery.tools.ports import Connection
from rookery.tools.roster import FileState, Roster
from rookery.tools.sessions import Sessions
from rookery.tools.store import catalogue as store
from rookery.tools.supervised import Session

_log = structlog.stdlib.get_logger("rookery.tools")

FIRST_LIST_S = 5.0
"""How long the first list of one server may wait (D-32)."""

_WATCH_S = 1.0
_TTL_S = 600.0
_UNKNOWN_TOOL_S = 10.0
"""A name that is not listed makes us look again, at most so often."""
_CLOSE_S = 5.0


class Tool:
    """One tool as its server tells of it, its schema compiled at its first call."""

    __slots__ = ("_arguments", "definition", "name", "needs")

    def __init__(self, definition: JsonObject, needs: str | None) -> None:
        self.name = str(definition.get("name", ""))
        self.definition = definition
        self.needs = needs
        self._arguments: Arguments | None = None

    @property
    def arguments(self) -> Arguments:
        """The compiled schema of its arguments."""
        if self._arguments is None:
            schema = self.definition.get("inputSchema")
            self._arguments = Arguments(schema if isinstance(schema, dict) else {})  # pyright: ignore[reportUnknownArgumentType] - an object of JSON
            if self._arguments.fault is not None:
                _log.warning("tools.schema_unusable", tool=self.name, error=self._arguments.fault)
        return self._arguments

    @property
    def is_read_only(self) -> bool:
        """Whether its server says that it changes nothing."""
        annotations = self.definition.get("annotations")
        return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True  # pyright: ignore[reportUnknownMemberType] - an object of JSON


@dataclass(slots=True)
class _Listed:
    snapshot: Snapshot
    tools: dict[str, Tool]
    refreshed: float


class Catalogue:
    """Every server and what it offers; `start` before use, `aclose` after."""

    def __init__(
        self,
        db: Database,
        sessions: Sessions,
        roster: Roster,
        *,
        clock: Clock = utc_now,
        ttl_s: float = _TTL_S,
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._roster = roster
        self._clock = clock
        self._ttl_s = ttl_s
        self._listed: dict[str, _Listed] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Read the file and what is stored; look at every server once, in the background."""
        kept = await self._db.read(store.snapshots)
        self._roster.read()
        for snapshot in kept:
            server = self._roster.servers.get(snapshot.server_key)
            if server is not None and snapshot.fingerprint == fingerprint(server):
                self._listed[server.key] = _Listed(snapshot, _index(snapshot.offer, {}), 0.0)
        self._sessions.listeners.opened.append(self._on_opened)
        self._sessions.listeners.changed.append(self._on_changed)
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._own(started), name="tools-catalogue")
        await started.wait()
        for server in self._roster.servers.values():
            self._refresh(server)

    async def aclose(self) -> None:
        """Stop watching and looking."""
        self._stopping.set()
        for task in self._refreshing.values():
            task.cancel()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._owner, _CLOSE_S)

    @property
    def file_state(self) -> FileState:
        """How the file does."""
        return self._roster.file_state

    # What operators may see.

    def all_servers(self) -> list[Server]:
        """Return every server of all that is switched on; those of workspaces are nobody else's business."""
        return [server for server in self._roster.servers.values() if server.enabled and server.owner is None]

    def is_listed(self, server_id: str, tool: str) -> bool:
        """Tell whether a server of all was seen to have such a tool: what callers ask for may be any word."""
        listed = self._listed.get(server_id)
        return listed is not None and tool in listed.tools

    # What callers may see.

    def servers(self, caller: Caller) -> list[Server]:
        """Return the servers that *caller* sees, in the order of the file, the built-in ones first."""
        return [
            server for server in self._roster.servers.values() if server.enabled and _may_see(caller, server) and _is_for(caller, server)
        ]

    def server(self, caller: Caller, server_id: str) -> Server:
        """
        Return one server for *caller*.

        Raises:
            ServerNotFound: There is none, or not in this workspace.
            PermissionDenied: The key's allow-lists leave it out.
            Disabled: It is switched off.
        """
        server = self._roster.find(server_id, caller.shown_workspace_id)
        if server is None or not _is_for(caller, server):
            raise ServerNotFound(server_id)
        if not _may_see(caller, server):
            raise PermissionDenied(server_id, f"This key does not reach the server {server_id!r}.")
        if not server.enabled:
            raise Disabled(f"The server {server_id!r} is switched off.")
        return server

    def tools(self, caller: Caller, server: Server) -> list[Tool]:
        """Return the tools of *server* that *caller* sees."""
        listed = self._listed.get(server.key)
        return [] if listed is None else [tool for tool in listed.tools.values() if self.may_see(caller, server, tool)]

    def offer(self, server: Server) -> Offer:
        """Return what *server* offered when last seen; nothing if it never was."""
        listed = self._listed.get(server.key)
        return Offer() if listed is None else listed.snapshot.offer

    def seen_at(self, server: Server) -> datetime | None:
        """Return when *server* was last seen; None if it never was."""
        listed = self._listed.get(server.key)
        return None if listed is None else listed.snapshot.seen_at

    def is_known(self, server: Server) -> bool:
        """Tell whether *server* was ever seen."""
        return server.key in self._listed

    def tool(self, server: Server, name: str) -> Tool | None:
        """Return a tool by its name, for whoever asks."""
        listed = self._listed.get(server.key)
        return None if listed is None else listed.tools.get(name)

    def may_see(self, caller: Caller, server: Server, tool: Tool) -> bool:
        """Tell whether *tool* is listed for *caller*."""
        if is_off(server, tool.name) or (tool.needs is not None and not caller.may(tool.needs)):
            return False
        return reaches(caller, server, tool.name)

    # How fresh it is.

    async def seen(self, server: Server) -> None:
        """Wait, 5 seconds at most, until a server that was never seen was looked at; refresh one that was, if it is due."""
        listed = self._listed.get(server.key)
        if listed is None:
            await self._looked(server)
        elif time.monotonic() - listed.refreshed > self._ttl_s:
            self._refresh(server)

    async def look_again(self, server: Server) -> None:
        """Ask *server* anew what it offers, for a name that it did not list; not more often than every 10 seconds."""
        listed = self._listed.get(server.key)
        if listed is None or time.monotonic() - listed.refreshed > _UNKNOWN_TOOL_S:
            await self._looked(server)

    async def _looked(self, server: Server) -> None:
        task = self._refresh(server)
        if task is not None:
            await asyncio.wait({task}, timeout=FIRST_LIST_S)

    def _on_opened(self, session: Session, connection: Connection) -> None:
        self._refresh(session.server, (session, connection))

    def _on_changed(self, server: Server) -> None:
        """Look again; a look that is under way may have been too early, so another follows it."""
        running = self._refreshing.get(server.key)
        if running is None:
            self._refresh(server)
        else:
            running.add_done_callback(lambda _: self._refresh(server))

    def _refresh(self, server: Server, opened: tuple[Session, Connection] | None = None) -> asyncio.Task[None] | None:
        running = self._refreshing.get(server.key)
        if running is not None:
            return running
        if self._tasks is None or self._stopping.is_set() or self._roster.servers.get(server.key) is not server:
            return None
        if server.fault is not None or not server.enabled:
            return None
        task = self._tasks.create_task(self._look(server, opened), name=f"tools-look-{server.key}")
        self._refreshing[server.key] = task

        def done(_: asyncio.Task[None]) -> None:
            if self._refreshing.get(server.key) is task:
                del self._refreshing[server.key]

        task.add_done_callback(done)
        return task

    async def _look(self, server: Server, opened: tuple[Session, Connection] | None) -> None:
        spare = None
        try:
            if opened is None:
                open_ones = [each for each in self._sessions.of(server.key) if each.is_open and not each.is_stopping]
                session = open_ones[0] if open_ones else self._sessions.spare(server)
                spare = None if open_ones else session
                opened = (session, await session.connection())
            session, connection = opened
            with session.hold():
                offer = await connection.offer()
            await self._keep(server, offer)
        except UpstreamError as error:
            if self._sessions.condition(server).health is Health.ONLINE:
                self._sessions.note(server, Health.DEGRADED, str(error))
            _log.warning("tools.not_listed", server=server.id, error=str(error))
        except RookeryError as error:
            _log.warning("tools.not_kept", server=server.id, error=error.message)
        except Exception:  # noqa: BLE001 - one upstream, whatever it does, must not end the platform
            _log.exception("tools.look_failed", server=server.id)
        finally:
            if spare is not None:
                self._sessions.release_spare(server)

    async def _keep(self, server: Server, offer: Offer) -> None:
        if self._roster.servers.get(server.key) is not server:
            return
        if self._sessions.condition(server).health is Health.DEGRADED:
            self._sessions.note(server, Health.ONLINE)
        old = self._listed.get(server.key)
        snapshot = Snapshot(server_key=server.key, fingerprint=fingerprint(server), offer=offer, seen_at=self._clock())
        known = {} if old is None else old.tools
        self._listed[server.key] = _Listed(snapshot, _index(offer, known), time.monotonic())
        if old is None or old.snapshot.offer != offer or old.snapshot.fingerprint != snapshot.fingerprint:
            await self._db.write(lambda tx: store.keep_snapshot(tx, snapshot))

    # The file.

    async def _own(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._watch(), name="tools-watch")
            started.set()
            await self._stopping.wait()

    async def _watch(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _WATCH_S)
            try:
                self._keep_up()
            except Exception:  # noqa: BLE001 - the next second is another try
                _log.exception("tools.watch_failed")

    def _keep_up(self) -> None:
        """Follow the roster, and look again at open servers that are due."""
        before = self._roster.servers
        if self._roster.keep_up():
            self._follow(before)
        due = time.monotonic() - self._ttl_s
        for server_id, listed in list(self._listed.items()):
            server = self._roster.servers.get(server_id)
            if server is not None and 0 < listed.refreshed < due and any(session.is_open for session in self._sessions.of(server.key)):
                self._refresh(server)

    def _follow(self, before: Mapping[str, Server]) -> None:
        """Let go of what the roster has no more, and look at what is new in it."""
        servers = self._roster.servers
        for key, old in before.items():
            if servers.get(key) is not old:
                self._sessions.retire(key)
        for key, listed in list(self._listed.items()):
            if key not in servers or listed.snapshot.fingerprint != fingerprint(servers[key]):
                del self._listed[key]
        for key, server in servers.items():
            if before.get(key) is not server:
                self._refresh(server)


def fingerprint(server: Server) -> str:
    """Return a digest of where a server is reached: what was seen elsewhere is not its offer. No secret goes into it."""
    target = server.target
    match target:
        case Command():
            parts: list[object] = ["stdio", target.command, target.args, sorted(target.env), target.cwd]
        case Address():
            parts = [target.kind, target.url, sorted(target.headers)]
        case _:
            parts = ["builtin", server.id]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


def is_off(server: Server, tool: str) -> bool:
    """Tell whether the operator left a tool out (D-33)."""
    rules = server.rules
    if rules.allow is not None and not any(fnmatchcase(tool, glob) for glob in rules.allow):
        return True
    return any(fnmatchcase(tool, glob) for glob in rules.deny)


def reaches(caller: Caller, server: Server, tool: str) -> bool:
    """Tell whether the key's own list of tools has this one (D-23)."""
    return caller.tools is None or any(fnmatchcase(f"{server.id}/{tool}", glob) for glob in caller.tools)


def _may_see(caller: Caller, server: Server) -> bool:
    if caller.servers is not None and server.id not in caller.servers:
        return False
    return caller.tools is None or any(fnmatchcase(server.id, glob.partition("/")[0]) for glob in caller.tools)


def _is_for(caller: Caller, server: Server) -> bool:
    if server.owner is not None:
        return server.owner == caller.shown_workspace_id
    return server.workspaces is None or caller.shown_workspace_id in server.workspaces


def _index(offer: Offer, known: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools by name; one that did not change stays the same object, its schema compiled."""
    found: dict[str, Tool] = {}
    for definition in offer.tools:
        name = str(definition.get("name", ""))
        old = known.get(name)
        needs = offer.needs.get(name)
        found[name] = old if old is not None and old.definition == definition and old.needs == needs else Tool(definition, needs)
    return found
