"""The catalogue of servers, tools and resources: stored, and served from memory, so that lists never wait (D-30 to D-33)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib import metadata
from typing import TypeAlias

import orjson
import structlog

from rookery.access.models import Caller
from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotInAllowList, RookeryError
from rookery.kernel.logs import FailureLog
from rookery.tools.catalogue_tool import CatalogueTool, index_by_name, is_tool_allowed, is_tool_disabled
from rookery.tools.errors import ConnectFailed, ConnectionLost, ServerNotFound, ToolDisabled, UpstreamError
from rookery.tools.models import (
    MAX_FEATURES_PER_KIND,
    CommandTarget,
    FeatureSnapshot,
    HealthStatus,
    HttpTarget,
    JsonObject,
    Server,
    ServerFeatures,
    ServerStatus,
    SessionIsolation,
    SessionLifecycle,
    count_dropped_features,
    has_workspace_sessions,
    limit_features,
)
from rookery.tools.ports import UpstreamConnection
from rookery.tools.servers.registry import ServerRegistry, ServersFileState, is_server_allowed, is_visible_to
from rookery.tools.store import catalogue as store
from rookery.tools.store import servers as revisions
from rookery.tools.supervision.session_pool import SessionPool
from rookery.tools.supervision.upstream_session import UpstreamSession

_log = structlog.stdlib.get_logger("rookery.tools")

_WATCH_INTERVAL_S = 0.5
"""Seconds between checks for an edited file and for servers that another process added."""
_UNKNOWN_TOOL_INTERVAL_S = 10.0
"""Minimum seconds between refreshes of one server that a call of an unlisted tool triggers."""
_RETRY_DELAYS_S = (5.0, 30.0, 120.0, 600.0)
"""Delays before a server that could not be listed is retried, after the first failure, the second, and so on. The last one repeats."""
_DEMAND_INTERVAL_S = 10.0
"""Minimum seconds between attempts for such a server that clients trigger by listing tools."""
_STORE_POLL_INTERVAL_S = 2.0
"""Seconds between reads of the store for features that another process listed."""
_CLOSE_TIMEOUT_S = 5.0
_MAX_WORKSPACE_RESOURCE_LISTS = 1000
"""Limit on cached resource lists of single workspaces. Beyond it, the least recently updated list is dropped."""
_CHANGE_INTERVAL_S = 1.0
"""Minimum seconds between refreshes of one server that sends change notifications."""


_RefreshKey: TypeAlias = tuple[str, int | None]
"""A server's key, and the workspace whose session is listed. None: shared by all workspaces, or not yet assigned to one."""


@dataclass(slots=True)
class _CatalogueEntry:
    snapshot: FeatureSnapshot
    tools: dict[str, CatalogueTool]
    refreshed_at: float
    changed_at: datetime


@dataclass(slots=True)
class _Retry:
    """The next retry of a server that was never listed. Times are of the monotonic clock."""

    failures: int
    tried_at: float
    retry_at: float


class Catalogue:
    """
    All servers and their features. Call `start` before use and `aclose` afterwards.

    Args:
        ttl_s: Seconds after which the features of a server in use are listed again.
        first_list_timeout_s: Seconds that a request waits for the first list of one server (D-32).
        refresh_added: Reads the servers that workspaces added. Returns whether any has changed.
    """

    def __init__(
        self,
        db: Database,
        sessions: SessionPool,
        registry: ServerRegistry,
        *,
        clock: Clock = utc_now,
        ttl_s: float = 600.0,
        first_list_timeout_s: float = 5.0,
        refresh_added: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._registry = registry
        self._clock = clock
        self._ttl_s = ttl_s
        self._first_list_timeout_s = first_list_timeout_s
        self._refresh_added = refresh_added
        self._is_lagging = False
        self.listeners: list[Callable[[Server, ServerFeatures | None, ServerFeatures | None], None]] = []
        """Called when a server's features change, with the old and the new ones. None: the server was added, removed or edited."""
        self._entries: dict[str, _CatalogueEntry] = {}
        self._workspace_resources: dict[_RefreshKey, tuple[JsonObject, ...]] = {}
        self._without_shared_resources: set[str] = set()
        """Keys of servers whose resources are known only per workspace."""
        self._refreshing: dict[_RefreshKey, asyncio.Task[None]] = {}
        self._change_seen_at: dict[_RefreshKey, float] = {}
        self._retries: dict[str, _Retry] = {}
        """Retries by server key, for servers that were tried and never listed."""
        self._unconfirmed: list[Server] = []
        """Servers whose lists were read from the store at the start and not from the server since."""
        self._next_store_poll_at = 0.0
        self._revision = 0
        self._stored_times: dict[str, datetime] = {}
        """When the stored features of each server were listed, as of `_revision`."""
        self._deprecated_at: dict[str, datetime] = {}
        self._has_noted_deprecations = False
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """
        Read the file and the stored snapshots, and start to list the servers of the file in the background.

        Servers with a stored list are listed half a second later: that starts their processes and imports the SDK of the protocol,
        which would delay the first requests.
        """
        self._revision = await self._db.lookup(_get_revision)
        snapshots = await self._db.read(store.list_snapshots)
        self._stored_times = {snapshot.server_key: snapshot.seen_at for snapshot in snapshots}
        self._registry.load()
        if self._refresh_added is not None:
            await self._refresh_added()
        for snapshot in snapshots:
            server = self._registry.servers.get(snapshot.server_key)
            if server is not None and snapshot.fingerprint == fingerprint(server):
                self._entries[server.key] = _CatalogueEntry(snapshot, index_by_name(snapshot.features, {}), 0.0, snapshot.seen_at)
        await self._record_deprecations()
        self._sessions.open_listeners.append(self._on_opened)
        self._sessions.change_listeners.append(self._on_changed)
        self._registry.listeners.append(self._on_registry_change)
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._run_tasks(started), name="tools-catalogue")
        await started.wait()
        for server in self._registry.servers.values():
            if server.owner is not None:
                continue
            if server.key in self._entries and server.lifecycle is SessionLifecycle.LAZY:
                self._unconfirmed.append(server)
            else:
                self.refresh(server)

    async def aclose(self) -> None:
        """Stop the watcher and all refreshes."""
        self._stopping.set()
        for task in self._refreshing.values():
            task.cancel()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._owner

    @property
    def file_state(self) -> ServersFileState:
        """The state of the servers file."""
        return self._registry.file_state

    # For operators.

    def list_shared_servers(self) -> list[Server]:
        """Return the enabled servers that no single workspace owns."""
        return [server for server in self._registry.servers.values() if server.enabled and server.owner is None]

    def is_listed(self, server_id: str, tool: str) -> bool:
        """Return whether a server without an owner has listed this tool. Callers may pass arbitrary names."""
        entry = self._entries.get(server_id)
        return entry is not None and tool in entry.tools

    # For callers.

    def list_servers(self, caller: Caller) -> list[Server]:
        """Return the servers that *caller* sees, in the order of the file, built-in servers first."""
        return [server for server in self._registry.list_for(caller) if server.enabled and is_server_allowed(caller, server.id)]

    def is_visible_to(self, caller: Caller, server: Server) -> bool:
        """Return whether *caller* sees a server, even if the server was removed since."""
        return is_server_allowed(caller, server.id) and is_visible_to(caller, server)

    def get_server(self, caller: Caller, server_id: str) -> Server:
        """
        Return one server for *caller*.

        Raises:
            ServerNotFound: It does not exist, or not in this workspace.
            NotInAllowList: The key's allow-list excludes it.
            ToolDisabled: It is disabled.
        """
        server = self._registry.find(server_id, caller)
        if server is None:
            raise ServerNotFound(server_id, [visible.id for visible in self.list_servers(caller)])
        if not is_server_allowed(caller, server.id):
            raise NotInAllowList("servers", server_id, f"This key may only use some servers; {server_id!r} is not among them.")
        if not server.enabled:
            raise ToolDisabled(f"The server {server_id!r} is disabled by the operator.")
        return server

    def find_server(self, caller: Caller, server_id: str) -> Server | None:
        """Return a server of the caller's workspace, including disabled servers and those that the key may not use."""
        return self._registry.find(server_id, caller)

    def list_tools(self, caller: Caller, server: Server) -> list[CatalogueTool]:
        """Return the tools of *server* that *caller* sees."""
        entry = self._entries.get(server.key)
        return [] if entry is None else [tool for tool in entry.tools.values() if self.can_see_tool(caller, server, tool)]

    def list_task_tool_names(self, caller: Caller, server: Server) -> list[str]:
        """Return the names of the tools that *caller* would see if Rookery could run them as tasks."""
        entry = self._entries.get(server.key)
        return (
            []
            if entry is None
            else [name for name, tool in entry.tools.items() if tool.needs_task and is_tool_allowed(caller, server.id, name)]
        )

    def get_features(self, server: Server, caller: Caller | None = None) -> ServerFeatures:
        """
        Return the features of *server* as last listed; empty if it was never listed.

        If workspaces have sessions of their own, the resources are those of *caller*'s workspace. Without a caller, or before the
        workspace has a session, they are those of an unused session.
        """
        entry = self._entries.get(server.key)
        if entry is None:
            return ServerFeatures()
        own_resources = None if caller is None else self._workspace_resources.get((server.key, caller.workspace_id))
        return entry.snapshot.features if own_resources is None else replace(entry.snapshot.features, resources=own_resources)

    def seen_at(self, server: Server) -> datetime | None:
        """Return when *server* was last listed, or None if it never was."""
        entry = self._entries.get(server.key)
        return None if entry is None else entry.snapshot.seen_at

    def changed_at(self, server: Server) -> datetime | None:
        """Return when the features of *server* last changed. Uses of the server do not affect it."""
        entry = self._entries.get(server.key)
        return None if entry is None else entry.changed_at

    def deprecated_at(self, server: Server) -> datetime:
        """Return since when a deprecated server has been deprecated."""
        return server.deprecated_at or self._deprecated_at.get(server.key) or self._clock()

    def is_known(self, server: Server) -> bool:
        """Return whether *server* was ever listed."""
        return server.key in self._entries

    def find_tool(self, server: Server, name: str) -> CatalogueTool | None:
        """Return a tool by name, without access checks."""
        entry = self._entries.get(server.key)
        return None if entry is None else entry.tools.get(name)

    def can_see_tool(self, caller: Caller, server: Server, tool: CatalogueTool) -> bool:
        """Return whether *tool* is listed for *caller*."""
        if (
            tool.needs_task
            or is_tool_disabled(server, tool.name)
            or (tool.required_scope is not None and not caller.has_scope(tool.required_scope))
        ):
            return False
        return is_tool_allowed(caller, server.id, tool.name)

    # Refreshes.

    async def wait_listed(self, server: Server, caller: Caller | None = None) -> None:
        """
        Wait at most 5 seconds for the first list of a server; refresh a list that is due, in the background.

        Args:
            caller: Waits for the resources of this caller's workspace too.
        """
        entry = self._entries.get(server.key)
        if entry is None:
            await self._refresh_and_wait(server)
        elif time.monotonic() - entry.refreshed_at > self._ttl_s:
            self.refresh(server)
        if (
            caller is not None
            and server.key in self._without_shared_resources
            and (server.key, caller.workspace_id) not in self._workspace_resources
        ):
            await self._list_for_workspace(server, caller)

    async def _list_for_workspace(self, server: Server, caller: Caller) -> None:
        """List through the caller's own session. So far, only sessions of other workspaces with private resources were open."""
        with contextlib.suppress(UpstreamError, RookeryError, TimeoutError):
            async with asyncio.timeout(self._first_list_timeout_s):
                session = self._sessions.get_session(server, caller, None)
                task = self.refresh(server, (session, await session.get_connection()))
                if task is not None:
                    await asyncio.wait({task})

    def find_by_key(self, key: str) -> Server | None:
        """Return the current server with this key."""
        return self._registry.servers.get(key)

    def list_missing(self, caller: Caller) -> None:
        """Retry, in the background, the caller's servers that were never listed, unless a retry ran within the last 10 seconds."""
        now = time.monotonic()
        for server in self.list_servers(caller):
            if server.key in self._entries:
                continue
            retry = self._retries.get(server.key)
            if retry is None or now - retry.tried_at >= _DEMAND_INTERVAL_S:
                self.refresh(server)

    async def store_checked(self, server: Server, features: ServerFeatures) -> None:
        """Store the features that a check listed, if the server was never listed. Every process reads them from the store."""
        if server.key in self._entries:
            return
        if server.auth is not None and has_workspace_sessions(server):
            features = replace(features, resources=())
        new_snapshot = FeatureSnapshot(
            server_key=server.key, fingerprint=fingerprint(server), features=limit_features(features), seen_at=self._clock()
        )

        def save_if_new(tx: Tx) -> None:
            stored_snapshot = store.find_snapshot(tx, server.key)
            if stored_snapshot is None or stored_snapshot.fingerprint != new_snapshot.fingerprint:
                store.save_snapshot(tx, new_snapshot)

        await self._db.write(save_if_new)

    def is_offline(self, server: Server, caller: Caller) -> bool:
        """Return whether *server* was unreachable at the last attempt for the caller's workspace."""
        return self._sessions.get_health_state(server, caller.workspace_id).health in {HealthStatus.OFFLINE, HealthStatus.NEEDS_LOGIN}

    async def refresh_for_unknown_tool(self, server: Server) -> None:
        """List *server* again because a call named an unlisted tool; at most every 10 seconds."""
        entry = self._entries.get(server.key)
        if entry is None or time.monotonic() - entry.refreshed_at > _UNKNOWN_TOOL_INTERVAL_S:
            await self._refresh_and_wait(server)

    async def _refresh_and_wait(self, server: Server) -> None:
        task = self.refresh(server)
        if task is not None:
            await asyncio.wait({task}, timeout=self._first_list_timeout_s)

    def _on_opened(self, session: UpstreamSession, connection: UpstreamConnection) -> None:
        self.refresh(session.server, (session, connection))

    def _on_changed(self, session: UpstreamSession) -> None:
        """Schedule a refresh, at least 1 second after the last one. A running refresh may miss the change, so another follows it."""
        refresh_key = session.server.key, _get_workspace_id(session)
        last = self._change_seen_at.get(refresh_key, -math.inf)
        if last != math.inf:  # else a refresh is already scheduled and includes this change
            self._change_seen_at[refresh_key] = math.inf
            loop = asyncio.get_running_loop()
            loop.call_at(max(last + _CHANGE_INTERVAL_S, loop.time()), self._refresh_after_change, session)

    def _refresh_after_change(self, session: UpstreamSession) -> None:
        server, refresh_key = session.server, (session.server.key, _get_workspace_id(session))
        running = self._refreshing.get(refresh_key)
        if running is not None:
            running.add_done_callback(lambda _: self._refresh_after_change(session))
            return
        self._change_seen_at[refresh_key] = asyncio.get_running_loop().time()
        connection = session.current_connection
        self.refresh(server, None if connection is None else (session, connection))

    def refresh(
        self, server: Server, session_and_connection: tuple[UpstreamSession, UpstreamConnection] | None = None
    ) -> asyncio.Task[None] | None:
        """List a server in the background, in this session or any. Return the running task; None: it cannot be listed now."""
        refresh_key = server.key, None if session_and_connection is None else _get_workspace_id(session_and_connection[0])
        running = self._refreshing.get(refresh_key)
        if running is not None:
            return running
        if self._tasks is None or self._stopping.is_set() or self._registry.servers.get(server.key) is not server:
            return None
        if server.fault is not None or not server.enabled:
            return None
        task = self._tasks.create_task(self._list_features(server, session_and_connection), name=f"tools-look-{server.key}")
        self._refreshing[refresh_key] = task

        def on_done(_: asyncio.Task[None]) -> None:
            if self._refreshing.get(refresh_key) is task:
                del self._refreshing[refresh_key]

        task.add_done_callback(on_done)
        return task

    async def _list_features(self, server: Server, session_and_connection: tuple[UpstreamSession, UpstreamConnection] | None) -> None:
        spare = None
        try:
            if session_and_connection is None:
                open_sessions = [
                    session for session in self._sessions.list_sessions(server.key) if session.is_open and not session.is_stopping
                ]
                session = open_sessions[0] if open_sessions else self._sessions.get_spare(server)
                spare = None if open_sessions else session
                session_and_connection = (session, await session.get_connection())
            session, connection = session_and_connection
            with session.keep_open():
                features = await connection.list_features()
            await self._store(server, limit_features(features), _get_workspace_id(session))
            if dropped_count := count_dropped_features(features):
                _log.warning("tools.list_truncated", server=server.id, limit=MAX_FEATURES_PER_KIND, dropped=dropped_count)
        except UpstreamError as error:
            # A broken session is recorded by its supervisor. The error text is shown only to the workspaces that the session serves.
            if (
                not isinstance(error, ConnectFailed | ConnectionLost)
                and self._sessions.get_health_state(server).health is HealthStatus.ONLINE
            ):
                owner = None if session_and_connection is None else session_and_connection[0].workspace_id
                self._sessions.record_health(server, HealthStatus.DEGRADED, str(error), workspace_id=owner)
            self._schedule_retry(server)
            _log.warning("tools.not_listed", server=server.id, error=str(error))
        except RookeryError as error:
            self._schedule_retry(server)
            _log.warning("tools.list_not_stored", server=server.id, error=error.message)
        except Exception:  # noqa: BLE001 - no upstream may stop the platform
            self._schedule_retry(server)
            _log.exception("tools.listing_failed", server=server.id)
        finally:
            if spare is not None:
                self._sessions.release_spare(server)

    async def _record_deprecations(self) -> None:
        """Store when servers of the file became deprecated, so that later edits of the file do not move the date."""
        deprecated = {
            server.key
            for server in self._registry.servers.values()
            if server.owner is None and server.status is ServerStatus.DEPRECATED and server.deprecated_at is None
        }
        if deprecated != self._deprecated_at.keys() or not self._has_noted_deprecations:
            now = self._clock()
            with contextlib.suppress(RookeryError):  # the store is down; the next round retries
                self._deprecated_at = await self._db.write(lambda tx: store.update_deprecations(tx, deprecated, now))
                self._has_noted_deprecations = True

    def _schedule_retry(self, server: Server) -> None:
        if server.key in self._entries or self._registry.servers.get(server.key) is not server:
            return
        before, now = self._retries.get(server.key), time.monotonic()
        failures = 0 if before is None else before.failures
        delay_s = _RETRY_DELAYS_S[min(failures, len(_RETRY_DELAYS_S) - 1)]
        self._retries[server.key] = _Retry(failures + 1, now, now + delay_s)

    async def _retry_missing(self) -> None:
        """List the servers whose retry is due, and take over lists that other processes stored."""
        now = time.monotonic()
        for key, retry in list(self._retries.items()):
            server = self._registry.servers.get(key)
            if server is None or key in self._entries:
                del self._retries[key]
            elif now >= retry.retry_at:
                self.refresh(server)
        if self._retries and now >= self._next_store_poll_at:
            self._next_store_poll_at = now + _STORE_POLL_INTERVAL_S
            missing = tuple(self._retries)
            with contextlib.suppress(RookeryError):  # the store is down; the next round retries
                for snapshot in await self._db.read(lambda tx: [store.find_snapshot(tx, key) for key in missing]):
                    if snapshot is not None:
                        self._use_stored_snapshot(snapshot)

    def _use_stored_snapshot(self, snapshot: FeatureSnapshot) -> None:
        server = self._registry.servers.get(snapshot.server_key)
        if server is None or server.key in self._entries or snapshot.fingerprint != fingerprint(server):
            return
        self._entries[server.key] = _CatalogueEntry(snapshot, index_by_name(snapshot.features, {}), 0.0, snapshot.seen_at)
        self._notify_listeners(server, None, snapshot.features)
        self.refresh(server)

    async def _read_changed(self) -> None:
        """Use the changed lists that other processes stored. Without changes it costs one read by key."""
        # The revision is read first. Changes made meanwhile have a later revision and are read the next time.
        revision = await self._db.lookup(_get_revision)
        if revision == self._revision:
            return
        times = await self._db.read(store.list_seen_times)
        changed = tuple(key for key, seen_at in times.items() if key in self._entries and self._stored_times.get(key) != seen_at)
        for snapshot in await self._db.read(lambda tx: [store.find_snapshot(tx, key) for key in changed]):
            if snapshot is not None:
                self._use_changed_snapshot(snapshot)
        self._revision, self._stored_times = revision, times

    def _use_changed_snapshot(self, snapshot: FeatureSnapshot) -> None:
        """Replace the features of a server, unless this process has a session with it and so receives its changes itself."""
        server, entry = self._registry.servers.get(snapshot.server_key), self._entries.get(snapshot.server_key)
        if server is None or entry is None or snapshot.fingerprint != fingerprint(server) or snapshot.features == entry.snapshot.features:
            return
        if any(session.is_open for session in self._sessions.list_sessions(server.key)):
            return
        tools = index_by_name(snapshot.features, entry.tools)
        self._entries[server.key] = _CatalogueEntry(snapshot, tools, time.monotonic(), snapshot.seen_at)
        self._notify_listeners(server, entry.snapshot.features, snapshot.features)

    async def _store(self, server: Server, features: ServerFeatures, workspace_id: int | None) -> None:
        """Store *features*. Resources listed in a session of one workspace are stored for that workspace alone."""
        if self._registry.servers.get(server.key) is not server:
            return
        if workspace_id is not None:
            before = self.get_features(server)
            if server.isolation is SessionIsolation.PER_WORKSPACE:
                self._store_workspace_resources(server, workspace_id, features.resources)
            if server.key not in self._entries:
                self._without_shared_resources.add(server.key)
            features = replace(features, resources=before.resources)
        elif server.auth is not None and has_workspace_sessions(server):
            # Tools can be listed with any login, but these resources belong to the account of that login.
            self._without_shared_resources.add(server.key)
            features = replace(features, resources=())
        else:
            self._without_shared_resources.discard(server.key)
        if self._sessions.get_health_state(server).health is HealthStatus.DEGRADED and not self._has_failed_session(server):
            self._sessions.record_health(server, HealthStatus.ONLINE)
        old = self._entries.get(server.key)
        snapshot = FeatureSnapshot(server_key=server.key, fingerprint=fingerprint(server), features=features, seen_at=self._clock())
        old_tools = {} if old is None else old.tools
        is_same = old is not None and old.snapshot.features == features
        changed_at = old.changed_at if old is not None and is_same else snapshot.seen_at
        self._entries[server.key] = _CatalogueEntry(snapshot, index_by_name(features, old_tools), time.monotonic(), changed_at)
        if old is None or not is_same or old.snapshot.fingerprint != snapshot.fingerprint:
            self._notify_listeners(server, None if old is None else old.snapshot.features, features)
            await self._db.write(lambda tx: store.save_snapshot(tx, snapshot))

    def _has_failed_session(self, server: Server) -> bool:
        """Return whether a session failed and was not reopened since. A list in the session of another workspace does not repair it."""
        return any(session.last_error for session in self._sessions.list_sessions(server.key))

    def _store_workspace_resources(self, server: Server, workspace_id: int, resources: tuple[JsonObject, ...]) -> None:
        refresh_key = server.key, workspace_id
        before = self._workspace_resources.pop(refresh_key, ())
        self._workspace_resources[refresh_key] = resources
        while len(self._workspace_resources) > _MAX_WORKSPACE_RESOURCE_LISTS:
            self._workspace_resources.pop(next(iter(self._workspace_resources)))
        if before != resources:
            features = self.get_features(server)
            self._notify_listeners(server, replace(features, resources=before), replace(features, resources=resources))

    def _notify_listeners(self, server: Server, before: ServerFeatures | None, after: ServerFeatures | None) -> None:
        for listener in self.listeners:
            listener(server, before, after)

    # Background tasks.

    async def _run_tasks(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            self._tasks.create_task(self._watch(), name="tools-watch")
            started.set()
            await self._stopping.wait()

    async def _watch(self) -> None:
        failures = FailureLog(_log, "tools.watch_failed")
        while not self._stopping.is_set():
            await wait_until_set(self._stopping, timeout_s=_WATCH_INTERVAL_S)
            try:
                await self._refresh_all()
                self._confirm_stored()
            except Exception as error:  # noqa: BLE001 - the next round retries
                failures.report(error)

    def _confirm_stored(self) -> None:
        """List the servers whose lists were read from the store at the start, unless that was done since."""
        while self._unconfirmed:
            server = self._unconfirmed.pop()
            entry = self._entries.get(server.key)
            if entry is not None and entry.refreshed_at == 0:
                self.refresh(server)

    async def _refresh_all(self) -> None:
        """Reload the file and the servers that workspaces added, and refresh open servers that are due."""
        self._registry.reload_if_changed()
        await self._record_deprecations()
        if self._refresh_added is not None:
            try:
                await self._refresh_added()
                self._is_lagging = False
            except RookeryError as error:
                if not self._is_lagging:
                    _log.warning("tools.servers_not_read", error=error.message, effect="the servers read before stay in use")
                self._is_lagging = True
        await self._retry_missing()
        with contextlib.suppress(RookeryError):  # the store is down; the next round retries
            await self._read_changed()
        due = time.monotonic() - self._ttl_s
        for server_id, entry in list(self._entries.items()):
            server = self._registry.servers.get(server_id)
            if (
                server is not None
                and 0 < entry.refreshed_at < due
                and any(session.is_open for session in self._sessions.list_sessions(server.key))
            ):
                self.refresh(server)

    def _on_registry_change(self, before: Mapping[str, Server]) -> None:
        """Drop the state of removed and changed servers, and list the new ones."""
        servers = self._registry.servers
        for key, old in before.items():
            if servers.get(key) is not old:
                for refresh_key in [
                    cached_key for cached_key in (*self._change_seen_at, *self._workspace_resources) if cached_key[0] == key
                ]:
                    self._change_seen_at.pop(refresh_key, None)
                    self._workspace_resources.pop(refresh_key, None)
                self._without_shared_resources.discard(key)
                self._retries.pop(key, None)
                self._sessions.drain(key)
                self._notify_listeners(servers.get(key, old), self.get_features(old), None)
        for key, entry in list(self._entries.items()):
            if key not in servers or entry.snapshot.fingerprint != fingerprint(servers[key]):
                del self._entries[key]
        for key, server in servers.items():
            # Every process reads servers that workspaces added. The first process that receives a request for one lists it.
            if before.get(key) is not server and server.owner is None:
                self.refresh(server)


def _get_revision(tx: Tx) -> int:
    return revisions.get_revision(tx, store.FEATURES_REVISION)


def fingerprint(server: Server) -> str:
    """Return a digest of a server's target. Features of another target are not reused. Secrets are excluded."""
    target = server.target
    match target:
        case CommandTarget():
            parts: list[object] = ["stdio", target.command, target.args, sorted(target.env), target.cwd]
        case HttpTarget():
            parts = [target.kind, _redact_secrets(target.secrets, target.url), sorted(target.headers)]
        case _:
            parts = ["builtin", server.id, _get_own_version()]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


@cache  # reads a file
def _get_own_version() -> str:
    return metadata.version("rookery")


def _redact_secrets(secrets: Iterable[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…") if secret else text
    return text


def _get_workspace_id(session: UpstreamSession) -> int | None:
    """Return the workspace of a session whose features are private to it, else None."""
    return session.workspace_id if has_workspace_sessions(session.server) else None
