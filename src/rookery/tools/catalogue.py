"""The catalogue of servers, tools and resources: stored, and served from memory, so that lists never wait."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

import structlog

from rookery.access.models import Caller
from rookery.kernel.cancellation import wait_until_set
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.logs import FailureLog
from rookery.tools.call_options import DEFAULT_CALL_OPTIONS, CallOptions
from rookery.tools.catalogue_tool import CatalogueTool, is_tool_allowed, is_tool_disabled
from rookery.tools.errors import ServerNotFound, ToolDisabled
from rookery.tools.feature_lists import MAX_OWN_LISTS, FeatureChange, FeatureList, FeatureLists
from rookery.tools.fingerprints import fingerprint, fingerprint_program, is_of_program, is_of_target
from rookery.tools.list_refresher import ListRefresher
from rookery.tools.models import (
    FeatureSnapshot,
    HealthStatus,
    Server,
    ServerFeatures,
    ServerStatus,
    SessionLifecycle,
    has_own_lists,
    has_workspace_sessions,
    limit_features,
)
from rookery.tools.servers.registry import ServerRegistry, ServersFileState, is_server_allowed, is_visible_to, require_server_allowed
from rookery.tools.store import catalogue as store
from rookery.tools.store import servers as revisions
from rookery.tools.supervision.session_pool import SessionPool, get_list_holder

_log = structlog.stdlib.get_logger("rookery.tools")

_WATCH_INTERVAL_S = 0.5
"""Seconds between checks for an edited file and for servers that another process added."""
_STORE_POLL_INTERVAL_S = 2.0
"""Seconds between reads of the store for features that another process listed."""
_CLOSE_TIMEOUT_S = 5.0


class Catalogue:
    """
    All servers and their features. Call `start` before use and `aclose` afterwards.

    Args:
        ttl_s: Seconds after which the features of a server in use are listed again.
        first_list_timeout_s: Seconds that a request waits for the first list of one server.
        refresh_added: Reads the servers that workspaces added. Returns whether any has changed.
        max_own_lists: Limit on the lists of single holders; see `feature_lists`.
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
        max_own_lists: int = MAX_OWN_LISTS,
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._registry = registry
        self._clock = clock
        self._ttl_s = ttl_s
        self._refresh_added = refresh_added
        self._is_lagging = False
        self._lists = FeatureLists(max_own=max_own_lists)
        self._refresher = ListRefresher(db, sessions, registry, self._lists, clock=clock, first_list_timeout_s=first_list_timeout_s)
        self._unconfirmed: list[Server] = []
        """Servers whose lists were read from the store at the start and not from the server since."""
        self._next_store_poll_at = 0.0
        self._revision = 0
        self._stored_times: dict[str, datetime] = {}
        """When the stored features of each server were listed, as of `_revision`."""
        self._postponed: set[str] = set()
        """Keys of servers whose stored features are used once this process has no session with them."""
        self._deprecated_at: dict[str, datetime] = {}
        self._has_noted_deprecations = False
        self._owner: asyncio.Task[None] | None = None
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
            if server is not None and is_of_target(snapshot.fingerprint, server):
                self._lists.store_default(snapshot)
            elif server is not None and is_of_program(snapshot.fingerprint, server) and server.fault is None:
                self._lists.store_default(snapshot)  # the entry was edited while Rookery was stopped
                self._lists.mark_outdated(server.key)
        await self._record_deprecations()
        self._registry.listeners.append(self._on_registry_change)
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._run_tasks(started), name="tools-catalogue")
        await started.wait()
        for server in self._registry.servers.values():
            if server.owner is not None:
                continue
            default = self._lists.find_default(server.key)
            if default is not None and not default.is_outdated and server.lifecycle is SessionLifecycle.LAZY:
                self._unconfirmed.append(server)
            else:
                self.refresh(server)

    async def aclose(self) -> None:
        """Stop the watcher and all refreshes."""
        self._stopping.set()
        self._refresher.stop()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._owner

    @property
    def listeners(self) -> list[Callable[[FeatureChange], None]]:
        """Called in the event loop with each change of what callers see."""
        return self._refresher.listeners

    @property
    def file_state(self) -> ServersFileState:
        return self._registry.file_state

    # For operators.

    def list_shared_servers(self) -> list[Server]:
        """Return the enabled servers that no single workspace owns."""
        return [server for server in self._registry.servers.values() if server.enabled and server.owner is None]

    def is_listed(self, server_id: str, tool: str) -> bool:
        """Return whether a server without an owner has listed this tool. Callers may pass arbitrary names."""
        default = self._lists.find_default(server_id)
        if default is not None and tool in default.tools:
            return True
        return any(tool in feature_list.tools for feature_list in self._lists.list_all(server_id))

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
        require_server_allowed(caller, server.id)
        if not server.enabled:
            raise ToolDisabled(f"The server {server_id!r} is disabled by the operator.")
        return server

    def find_server(self, caller: Caller, server_id: str) -> Server | None:
        """Return a server of the caller's workspace, including disabled servers and those that the key may not use."""
        return self._registry.find(server_id, caller)

    def list_tools(self, caller: Caller, server: Server, session_id: str | None = None) -> list[CatalogueTool]:
        """
        Return the tools of *server* that *caller* sees.

        Args:
            session_id: The agent session of the request. Servers with a session for each have lists for each.
        """
        feature_list = self._find(server, caller, session_id)
        return [] if feature_list is None else [tool for tool in feature_list.tools.values() if self.can_see_tool(caller, server, tool)]

    def list_task_tool_names(self, caller: Caller, server: Server) -> list[str]:
        """Return the names of the tools that *caller* would see if Rookery could run them as tasks."""
        feature_list = self._find(server, caller)
        return (
            []
            if feature_list is None
            else [name for name, tool in feature_list.tools.items() if tool.needs_task and is_tool_allowed(caller, server.id, name)]
        )

    def get_features(self, server: Server, caller: Caller | None = None, session_id: str | None = None) -> ServerFeatures:
        """
        Return the features of *server* as last listed; empty if it was never listed.

        If callers have sessions of their own, the features are those of *caller*'s session. Without a caller, or before this session
        differs, they are those of an unused session.
        """
        feature_list = self._find(server, caller, session_id)
        return ServerFeatures() if feature_list is None else feature_list.features

    def seen_at(self, server: Server, caller: Caller | None = None) -> datetime | None:
        """Return when *server* was last listed, or None if it never was."""
        feature_list = self._find(server, caller)
        return None if feature_list is None else feature_list.snapshot.seen_at

    def changed_at(self, server: Server, caller: Caller | None = None) -> datetime | None:
        """Return when the features of *server* last changed. Uses of the server do not affect it."""
        feature_list = self._find(server, caller)
        return None if feature_list is None else feature_list.changed_at

    def deprecated_at(self, server: Server) -> datetime:
        """Return since when a deprecated server has been deprecated."""
        return server.deprecated_at or self._deprecated_at.get(server.key) or self._clock()

    def is_known(self, server: Server, caller: Caller | None = None, session_id: str | None = None) -> bool:
        """Return whether *server* was ever listed, for *caller* if its sessions are those of single callers."""
        return self._find(server, caller, session_id) is not None

    def find_tool(self, server: Server, name: str, caller: Caller | None = None, session_id: str | None = None) -> CatalogueTool | None:
        """Return a tool by name, without access checks."""
        feature_list = self._find(server, caller, session_id)
        return None if feature_list is None else feature_list.tools.get(name)

    def concerns(self, change: FeatureChange, caller: Caller, session_id: str | None = None) -> bool:
        """Return whether *caller* sees the list that changed."""
        holder = get_list_holder(change.server, caller, session_id)
        if holder is None:
            return True
        return change.holder == holder if change.holder is not None else not self._lists.has_own(change.server.key, holder)

    def _find(self, server: Server, caller: Caller | None, session_id: str | None = None) -> FeatureList | None:
        holder = None if caller is None else get_list_holder(server, caller, session_id)
        return self._lists.find(server.key, holder)

    def _is_dropped(self, server: Server, caller: Caller, session_id: str | None) -> bool:
        """Return whether the caller's own list was dropped, so that the default is shown in its place."""
        return self._lists.is_dropped(server.key, get_list_holder(server, caller, session_id))

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

    async def wait_listed(self, server: Server, caller: Caller | None = None, options: CallOptions = DEFAULT_CALL_OPTIONS) -> None:
        """
        Wait at most 5 seconds for the first list of a server; refresh a list that is due, in the background.

        Args:
            caller: Waits for what only this caller sees too.
            options: The caller's headers and agent session, in which the list is made if it needs them.
        """
        await self._refresher.wait_listed(server, caller, options)
        default = self._lists.find_default(server.key)
        if default is not None and (
            default.is_outdated or (self._refresher.is_due(server, None, self._ttl_s) and not self._is_open(server.key))
        ):
            self._refresher.refresh(server)

    def is_current(self, server: Server, caller: Caller, session_id: str | None = None) -> bool:
        """Return whether `wait_listed` has nothing to do: the caller's list is known, complete, not due and not dropped."""
        feature_list = self._find(server, caller, session_id)
        if feature_list is None or feature_list.is_outdated or self._refresher.is_incomplete(server):
            return False
        is_due = self._refresher.is_due(server, None, self._ttl_s) and not self._is_open(server.key)
        return not is_due and not self._is_dropped(server, caller, session_id)

    async def wait_all_listed(self, caller: Caller, options: CallOptions) -> None:
        """Wait at most 5 seconds in all for the caller's servers that are being listed for the first time, or whose list was dropped."""
        missing = [
            server
            for server in self.list_servers(caller)
            if not self.is_known(server, caller, options.session_id) or self._is_dropped(server, caller, options.session_id)
        ]
        if missing:
            await self._refresher.wait_all_listed(missing, caller, options)

    def list_starting(self, caller: Caller) -> list[Server]:
        """Return the caller's servers that were never listed and have not failed."""
        return [
            server
            for server in self.list_servers(caller)
            if server.fault is None and server.key not in self._refresher.retries and not self.is_known(server, caller)
        ]

    def _is_open(self, server_key: str) -> bool:
        return any(session.is_open for session in self._sessions.list_sessions(server_key))

    def find_by_key(self, key: str) -> Server | None:
        """Return the current server with this key."""
        return self._registry.servers.get(key)

    def list_missing(self, caller: Caller) -> None:
        """Retry, in the background, the caller's servers that were never listed, unless a retry ran within the last 10 seconds."""
        for server in self.list_servers(caller):
            if self._lists.find_default(server.key) is None:
                self._refresher.refresh_missing(server)

    async def store_checked(self, server: Server, features: ServerFeatures) -> None:
        """Store the features that a check listed, if the server was never listed. Every process reads them from the store."""
        if self._lists.find_default(server.key) is not None or features.list_errors:
            return
        if server.auth is not None and has_workspace_sessions(server):
            features = ServerFeatures(tools=features.tools, instructions=features.instructions, info=features.info)
        new_snapshot = FeatureSnapshot(
            server_key=server.key, fingerprint=fingerprint(server), features=limit_features(features), seen_at=self._clock()
        )

        def save_if_new(tx: Tx) -> None:
            stored_snapshot = store.find_snapshot(tx, server.key)
            if stored_snapshot is None or not is_of_target(stored_snapshot.fingerprint, server):
                store.save_snapshot(tx, new_snapshot)

        await self._db.write(save_if_new)

    def is_offline(self, server: Server, caller: Caller) -> bool:
        """Return whether *server* was unreachable at the last attempt for the caller's workspace."""
        return self._sessions.get_health_state(server, caller.workspace_id).health in {HealthStatus.OFFLINE, HealthStatus.NEEDS_LOGIN}

    def get_last_error(self, caller: Caller, server_id: str) -> str:
        """Return why a server is unreachable for the caller's workspace, or has been starting for long; empty if it works."""
        server = self._registry.find(server_id, caller)
        return "" if server is None else self._sessions.get_shown_health(server, caller.workspace_id).last_error

    async def refresh_for_unknown_tool(self, server: Server, caller: Caller, options: CallOptions) -> None:
        """List the caller's session again because a call named an unlisted tool."""
        await self._refresher.list_unknown_tool(server, caller, options)

    def refresh(self, server: Server) -> asyncio.Task[None] | None:
        """List a server in the background. Return the running task; None: it cannot be listed now."""
        return self._refresher.refresh(server)

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

    async def _retry_missing(self) -> None:
        """List the servers whose retry is due, and take over lists that other processes stored."""
        now, retries = time.monotonic(), self._refresher.retries
        for key, retry in list(retries.items()):
            server = self._registry.servers.get(key)
            if server is None or self._lists.find_default(key) is not None:
                del retries[key]
            elif now >= retry.retry_at:
                self.refresh(server)
        if retries and now >= self._next_store_poll_at:
            self._next_store_poll_at = now + _STORE_POLL_INTERVAL_S
            missing = tuple(retries)
            with contextlib.suppress(RookeryError):  # the store is down; the next round retries
                for snapshot in await self._db.read(lambda tx: [store.find_snapshot(tx, key) for key in missing]):
                    if snapshot is not None:
                        self._use_stored_snapshot(snapshot)

    def _use_stored_snapshot(self, snapshot: FeatureSnapshot) -> None:
        server = self._registry.servers.get(snapshot.server_key)
        if server is None or self._lists.find_default(server.key) is not None or not is_of_target(snapshot.fingerprint, server):
            return
        self._lists.store_default(snapshot)
        self._refresher.notify(FeatureChange(server=server, holder=None, before=None, after=snapshot.features))
        self.refresh(server)

    async def _read_changed(self) -> None:
        """Use the changed lists that other processes stored. Without changes it costs one read by key."""
        # The revision is read first. Changes made meanwhile have a later revision and are read the next time.
        revision = await self._db.lookup(_get_revision)
        ended = {key for key in self._postponed if not self._is_open(key)}
        if revision == self._revision and not ended:
            return
        times = await self._db.read(store.list_seen_times)
        changed = tuple(
            key for key, _ in self._lists.iter_defaults() if key in ended or (key in times and self._stored_times.get(key) != times[key])
        )
        snapshots = await self._db.read(lambda tx: [store.find_snapshot(tx, key) for key in changed])
        self._postponed -= ended
        for snapshot in snapshots:
            if snapshot is not None:
                self._use_changed_snapshot(snapshot)
        self._revision, self._stored_times = revision, times

    def _use_changed_snapshot(self, snapshot: FeatureSnapshot) -> None:
        """Replace the default list of a server. While this process has a session with it, it receives its changes itself."""
        server, default = self._registry.servers.get(snapshot.server_key), self._lists.find_default(snapshot.server_key)
        if (
            server is None
            or default is None
            or not is_of_target(snapshot.fingerprint, server)
            or (snapshot.features == default.features and not default.is_outdated)
        ):
            return
        if not has_own_lists(server) and self._is_open(server.key):
            self._postponed.add(server.key)
            return
        self._lists.store_default(snapshot)
        self._refresher.notify(FeatureChange(server=server, holder=None, before=default.features, after=snapshot.features))

    # Background tasks.

    async def _run_tasks(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._refresher.start(tasks)
            tasks.create_task(self._watch(), name="tools-watch")
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
            if not self._refresher.was_listed(server.key):
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
        self._refresher.refresh_open(self._ttl_s)

    def _on_registry_change(self, before: Mapping[str, Server]) -> None:
        """Update the lists of removed and changed servers, and list the new ones."""
        servers = self._registry.servers
        for key, old in before.items():
            if servers.get(key) is not old:
                self._refresher.forget(key)
                self._sessions.drain(key)
                self._update_lists(old, servers.get(key))
        for key, server in servers.items():
            # Every process reads servers that workspaces added. The first process that receives a request for one lists it.
            if before.get(key) is not server and server.owner is None:
                self.refresh(server)

    def _update_lists(self, old: Server, new: Server | None) -> None:
        """Keep the lists of an entry with the same target. Those of another version of it are shown until the new one was listed."""
        features = self.get_features(old)
        if new is None or new.fault is not None or fingerprint_program(new) != fingerprint_program(old):
            self._lists.drop(old.key)
        elif fingerprint(new) != fingerprint(old):
            self._lists.mark_outdated(old.key)
        self._refresher.notify(FeatureChange(server=new or old, holder=None, before=features, after=None, is_edit=True))


def _get_revision(tx: Tx) -> int:
    return revisions.get_revision(tx, store.FEATURES_REVISION)
