"""Lists servers through their sessions, in the background, and stores the results."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import TypeAlias

import structlog

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.errors import RookeryError
from rookery.tools.call_options import CallOptions
from rookery.tools.errors import ConnectFailed, ConnectionLost, UpstreamError
from rookery.tools.feature_lists import FeatureChange, FeatureLists, fill_failed_lists
from rookery.tools.fingerprints import fingerprint
from rookery.tools.models import (
    MAX_FEATURES_PER_KIND,
    FeatureSnapshot,
    HealthStatus,
    Server,
    ServerFeatures,
    SessionIsolation,
    count_dropped_features,
    has_own_lists,
    has_workspace_sessions,
    limit_features,
)
from rookery.tools.ports import RequestOptions, UpstreamConnection
from rookery.tools.servers.header_forwarding import describe_caller_login, select_forwarded_headers
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.store import catalogue as store
from rookery.tools.supervision.session_pool import SessionPool, get_list_holder
from rookery.tools.supervision.upstream_session import UpstreamSession

MIN_INTERVAL_S = 1.0
"""Minimum seconds between lists that change notifications cause."""
MAX_INTERVAL_S = 300.0
"""Maximum of the doubled interval."""
_MANY_CHANGES = 10
_MANY_CHANGES_S = 60.0

_RETRY_DELAYS_S = (5.0, 30.0, 120.0, 600.0)
"""Delays before a server that could not be listed is retried, after the first failure, the second, and so on. The last one repeats."""
_DEMAND_INTERVAL_S = 10.0
"""Minimum seconds between attempts for such a server that clients trigger by listing tools."""
_UNKNOWN_TOOL_INTERVAL_S = 10.0
"""Minimum seconds between lists of an unused session that calls of unlisted tools trigger."""

_OWN_LIST_INTERVAL_S = 60.0
"""Seconds in which a holder's session is not listed again for what the default lacks, because it had nothing more."""
_INCOMPLETE_RETRY_S = 60.0
"""Seconds after which a session is listed again, one of whose lists failed."""
_MAX_TIMES = 5000
"""Limit on the stored times and paces of holders. Beyond it, the oldest are dropped."""


class ChangePacer:
    """
    The next list of one session that sends change notifications. Times are of a monotonic clock, in seconds.

    A notification that changes nothing doubles the interval, from 1 s to 5 minutes; a change resets it. Some servers announce a change
    whenever they are listed, and some alternate between two lists. So after ten changes within a minute, changes double an interval of
    their own, which halves when they become rare.
    """

    __slots__ = ("_changes", "_churn_s", "_idle_s", "_last_at", "is_scheduled")

    def __init__(self) -> None:
        self.is_scheduled = False
        """A list is scheduled, which includes all changes announced until then."""
        self._last_at = -math.inf
        self._idle_s = MIN_INTERVAL_S
        self._churn_s = MIN_INTERVAL_S
        self._changes: deque[float] = deque(maxlen=_MANY_CHANGES)

    def compute_start(self, now: float) -> float:
        """Return the time of the next list."""
        return max(self._last_at + max(self._idle_s, self._churn_s), now)

    def record_start(self, now: float) -> None:
        """Record the start of a list."""
        self.is_scheduled = False
        self._last_at = now

    def record_result(self, now: float, *, has_changed: bool) -> None:
        """Record what a list showed that a notification caused."""
        if not has_changed:
            self._idle_s = min(self._idle_s * 2, MAX_INTERVAL_S)
            return
        self._idle_s = MIN_INTERVAL_S
        is_churning = len(self._changes) == _MANY_CHANGES and now - self._changes[0] <= _MANY_CHANGES_S
        self._churn_s = min(self._churn_s * 2, MAX_INTERVAL_S) if is_churning else max(self._churn_s / 2, MIN_INTERVAL_S)
        self._changes.append(now)


_log = structlog.stdlib.get_logger("rookery.tools")


_RefreshKey: TypeAlias = tuple[str, str | None]
"""A server's key, and the holder whose session is listed. None: the default list."""


@dataclass(slots=True)
class Retry:
    """The next retry of a server that was never listed. Times are of the monotonic clock."""

    failures: int
    tried_at: float
    retry_at: float


class ListRefresher:
    """
    Lists servers in tasks of its own.

    Attributes:
        listeners: Called in the event loop with each change of what callers see.
        retries: Retries by server key, for servers that were tried and never listed.
    """

    def __init__(
        self,
        db: Database,
        sessions: SessionPool,
        registry: ServerRegistry,
        lists: FeatureLists,
        *,
        clock: Clock,
        first_list_timeout_s: float,
    ) -> None:
        self.listeners: list[Callable[[FeatureChange], None]] = []
        self.retries: dict[str, Retry] = {}
        self._db = db
        self._sessions = sessions
        self._registry = registry
        self._lists = lists
        self._clock = clock
        self._first_list_timeout_s = first_list_timeout_s
        self._tasks: asyncio.TaskGroup | None = None
        self._started: set[asyncio.Task[None]] = set()
        self._running: dict[_RefreshKey, asyncio.Task[None]] = {}
        self._pacers: dict[_RefreshKey, ChangePacer] = {}
        self._listed_at: dict[_RefreshKey, float] = {}
        self._incomplete: set[str] = set()
        """Keys of servers whose default list lacks what belongs to the holder of a session."""
        self._needs_caller: set[str] = set()
        """Keys of servers that can be listed only with the login of a caller."""

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start to follow the sessions, with *tasks* as the owner of all refreshes."""
        self._tasks = tasks
        self._sessions.open_listeners.append(self._on_opened)
        self._sessions.change_listeners.append(self._on_changed)

    def stop(self) -> None:
        """Cancel all refreshes and start no more."""
        self._tasks = None
        for task in tuple(self._started):
            task.cancel()

    def is_due(self, server: Server, holder: str | None, ttl_s: float) -> bool:
        """Return whether the last list that this process made is older than *ttl_s*, or that there is no such list."""
        return time.monotonic() - self._listed_at.get((server.key, holder), -math.inf) > ttl_s

    def is_incomplete(self, server: Server) -> bool:
        """Return whether the default list lacks what belongs to the holder of a session."""
        return server.key in self._incomplete

    def was_listed(self, server_key: str) -> bool:
        """Return whether this process has listed the server itself. Stored lists do not count."""
        return any(key == server_key for key, _ in self._listed_at)

    # Refreshes.

    def refresh(
        self,
        server: Server,
        session_and_connection: tuple[UpstreamSession, UpstreamConnection] | None = None,
        opener: RequestOptions | None = None,
    ) -> asyncio.Task[None] | None:
        """
        List a server in the background, in this session or any. Return the running task; None: it cannot be listed now.

        Args:
            opener: The caller with whose headers it is listed.
        """
        refresh_key = server.key, None if session_and_connection is None else _get_session_list_holder(session_and_connection[0], opener)
        running = self._running.get(refresh_key)
        if running is not None:
            return running
        if self._registry.servers.get(server.key) is not server or server.fault is not None or not server.enabled:
            return None
        task = self._start_task(server, self._list_features(server, session_and_connection, opener))
        if task is None:
            return None
        self._running[refresh_key] = task

        def on_done(_: asyncio.Task[None]) -> None:
            if self._running.get(refresh_key) is task:
                del self._running[refresh_key]

        task.add_done_callback(on_done)
        return task

    def refresh_open(self, ttl_s: float) -> None:
        """List the open sessions whose last list is older than *ttl_s*. Sessions with a default list are listed once."""
        for server in list(self._registry.servers.values()):
            for session in self._sessions.list_sessions(server.key):
                connection = session.current_connection
                holder = _get_session_list_holder(session, session.opener)
                if connection is not None and not session.is_stopping and self.is_due(server, holder, ttl_s):
                    self.refresh(server, (session, connection), session.opener)

    def refresh_missing(self, server: Server) -> None:
        """Retry a server that was never listed, unless a retry ran within the last 10 seconds."""
        retry = self.retries.get(server.key)
        if server.key not in self._needs_caller and (retry is None or time.monotonic() - retry.tried_at >= _DEMAND_INTERVAL_S):
            self.refresh(server)

    async def wait_listed(self, server: Server, caller: Caller | None, options: CallOptions) -> None:
        """Wait at most 5 seconds for the first list that a caller sees."""
        task = self._start_first_list(server, caller, options)
        if task is not None:
            with self._sessions.start_limit.prefer_for_call(server.key):
                await asyncio.wait({task}, timeout=self._first_list_timeout_s)

    async def wait_all_listed(self, servers: list[Server], caller: Caller, options: CallOptions) -> None:
        """Wait at most 5 seconds in all for servers that are being listed for the first time, and have not failed before."""
        tasks = {
            server.key: task
            for server in servers
            if server.key not in self.retries and (task := self._start_first_list(server, caller, options)) is not None
        }
        if tasks:
            with self._sessions.start_limit.prefer_for_list(list(tasks)):
                await asyncio.wait(set(tasks.values()), timeout=self._first_list_timeout_s)

    async def list_unknown_tool(self, server: Server, caller: Caller, options: CallOptions) -> None:
        """
        List the session of a caller who named an unlisted tool.

        A session without a call since its last list is listed every 10 seconds at most.
        """
        session = self._sessions.get_session(server, caller, options.session_id)
        holder = get_list_holder(server, caller, options.session_id)
        listed_at = self._listed_at.get((server.key, holder), -math.inf)
        is_current = time.monotonic() - listed_at <= _UNKNOWN_TOOL_INTERVAL_S and session.used_at <= listed_at
        if is_current and not self._lists.take_dropped(server.key, holder):
            return
        task = self._start_task(server, self._list_for_caller(server, caller, options))
        if task is not None:
            await asyncio.wait({task}, timeout=self._first_list_timeout_s)

    def forget(self, server_key: str) -> None:
        """Drop what is known about a server whose entry changed or was removed."""
        self._incomplete.discard(server_key)
        self._needs_caller.discard(server_key)
        self.retries.pop(server_key, None)
        for by_key in (self._pacers, self._listed_at):
            for key in [key for key in by_key if key[0] == server_key]:
                del by_key[key]

    def notify(self, change: FeatureChange) -> None:
        """Call the listeners."""
        for listener in self.listeners:
            listener(change)

    def _start_first_list(self, server: Server, caller: Caller | None, options: CallOptions) -> asyncio.Task[None] | None:
        """Start to list what *caller* sees if that was never done. Return the running task."""
        if caller is None:
            return self.refresh(server) if self._lists.find_default(server.key) is None else None
        holder = get_list_holder(server, caller, options.session_id)
        if holder is not None and self._lists.has_own(server.key, holder):
            return None
        default, was_dropped = self._lists.find_default(server.key), self._lists.take_dropped(server.key, holder)
        lacks_own = server.key in self._incomplete and self.is_due(server, holder, _OWN_LIST_INTERVAL_S)
        if default is not None and not was_dropped and not lacks_own:
            return None
        if server.fault is None and server.enabled and (default is not None or select_forwarded_headers(server, options.headers)):
            # What is missing belongs to the holder of a session, or is shown only with the caller's login.
            return self._start_task(server, self._list_for_caller(server, caller, options))
        return None if server.key in self._needs_caller else self.refresh(server)

    def _start_task(self, server: Server, listing: Coroutine[None, None, None]) -> asyncio.Task[None] | None:
        """Start a task that `stop` cancels. None: `start` was not called, or `stop` was."""
        if self._tasks is None:
            listing.close()
            return None
        task = self._tasks.create_task(listing, name=f"tools-list-{server.key}")
        self._started.add(task)
        task.add_done_callback(self._started.discard)
        return task

    async def _list_for_caller(self, server: Server, caller: Caller, options: CallOptions) -> None:
        """List the caller's own session, which is opened with the headers of the caller."""
        with contextlib.suppress(UpstreamError, RookeryError):
            session = self._sessions.get_session(server, caller, options.session_id)
            opener = options.to_request_options(server, caller, on_progress=None)
            task = self.refresh(server, (session, await session.get_connection(opener)), opener)
            if task is not None:
                await asyncio.wait({task})

    async def _list_features(
        self,
        server: Server,
        session_and_connection: tuple[UpstreamSession, UpstreamConnection] | None,
        opener: RequestOptions | None,
    ) -> None:
        spare = None
        try:
            if session_and_connection is None:
                open_sessions = [
                    session for session in self._sessions.list_sessions(server.key) if session.is_open and not session.is_stopping
                ]
                session = open_sessions[0] if open_sessions else self._sessions.get_spare(server)
                spare = None if open_sessions else session
                session_and_connection = (session, session.current_connection or await session.get_connection())
            session, connection = session_and_connection
            with session.keep_open():
                features = await connection.list_features(opener)
            await self._store(server, limit_features(features), session, opener)
            if dropped_count := count_dropped_features(features):
                _log.warning("tools.list_truncated", server=server.id, limit=MAX_FEATURES_PER_KIND, dropped=dropped_count)
        except UpstreamError as error:
            self._on_failure(server, error, None if session_and_connection is None else session_and_connection[0], opener)
        except RookeryError as error:
            self._schedule_retry(server)
            _log.warning("tools.list_not_stored", server=server.id, error=error.message)
        except Exception:  # noqa: BLE001 - no upstream may stop the platform
            self._schedule_retry(server)
            _log.exception("tools.listing_failed", server=server.id)
        finally:
            if spare is not None:
                self._sessions.release_spare(server)

    def _on_failure(self, server: Server, error: UpstreamError, session: UpstreamSession | None, opener: RequestOptions | None) -> None:
        if session is not None:
            self._note_listed(server, _get_session_list_holder(session, opener))
        if error.concerns_caller:
            # The server wants the login of a caller. Nothing is wrong with it, or with its entry.
            if opener is None or not opener.headers:
                self._needs_caller.add(server.key)
                self.retries.pop(server.key, None)
                if (
                    self._sessions.get_health_state(server).health is not HealthStatus.ONLINE
                    or self._lists.find_default(server.key) is None
                ):
                    self._sessions.record_health(server, HealthStatus.UNKNOWN, describe_caller_login(server))
            return
        # A broken session is recorded by its supervisor. The error text is shown only to the workspaces that the session serves.
        # A server that asks for a pause is healthy, and its last lists stay in use.
        is_pause = error.is_throttled and self._lists.find_default(server.key) is not None
        is_online = self._sessions.get_health_state(server).health is HealthStatus.ONLINE
        if is_online and not is_pause and not isinstance(error, ConnectFailed | ConnectionLost):
            owner = None if session is None else session.workspace_id
            self._sessions.record_health(server, HealthStatus.DEGRADED, str(error), workspace_id=owner)
        outdated = self._lists.drop_outdated(server.key)
        if outdated is not None:
            self.notify(FeatureChange(server=server, holder=None, before=outdated, after=None))
        self._schedule_retry(server)
        _log.warning("tools.not_listed", server=server.id, error=str(error))

    def _schedule_retry(self, server: Server) -> None:
        if self._lists.find_default(server.key) is not None or self._registry.servers.get(server.key) is not server:
            return
        before, now = self.retries.get(server.key), time.monotonic()
        failures = 0 if before is None else before.failures
        delay_s = _RETRY_DELAYS_S[min(failures, len(_RETRY_DELAYS_S) - 1)]
        self.retries[server.key] = Retry(failures + 1, now, now + delay_s)

    # Results.

    async def _store(self, server: Server, features: ServerFeatures, session: UpstreamSession, opener: RequestOptions | None) -> None:
        """Store *features* as the own list of the session's holder, or as the default."""
        if self._registry.servers.get(server.key) is not server:
            return
        holder = _get_session_list_holder(session, opener)
        self._note_listed(server, holder)
        self.retries.pop(server.key, None)
        if opener is None or not opener.headers:
            self._needs_caller.discard(server.key)
        if features.list_errors:
            asyncio.get_running_loop().call_later(_INCOMPLETE_RETRY_S, self._list_again, session, opener)
        self._record_health(server, features, session)
        before = self._lists.find(server.key, holder)
        features = fill_failed_lists(features, None if before is None else before.features)
        if holder is None:
            await self._store_default(server, features)
        else:
            own_workspace = session.workspace_id if session.workspace_id is not None or opener is None else opener.caller.workspace_id
            await self._store_own(server, features, holder, own_workspace)

    async def _store_default(self, server: Server, features: ServerFeatures, *, is_complete: bool = True) -> None:
        if server.auth is not None and has_workspace_sessions(server):
            # Tools can be listed with any login, but these resources belong to the account of that login.
            is_complete, features = False, replace(features, resources=())
        (self._incomplete.discard if is_complete else self._incomplete.add)(server.key)
        before = self._lists.find_default(server.key)
        snapshot = self._make_snapshot(server, features)
        self._lists.store_default(snapshot)
        if before is None or before.features != features or before.snapshot.fingerprint != snapshot.fingerprint:
            self.notify(FeatureChange(server=server, holder=None, before=None if before is None else before.features, after=features))
            if not features.list_errors:  # which are not stored: another process would take the failed list for an empty one
                await self._db.write(lambda tx: store.save_snapshot(tx, snapshot))

    async def _store_own(self, server: Server, features: ServerFeatures, holder: str, workspace_id: int | None) -> None:
        before = self._lists.find(server.key, holder)
        default = self._lists.find_default(server.key)
        self._lists.store_own(self._make_snapshot(server, features), holder, workspace_id)
        self.notify(FeatureChange(server=server, holder=holder, before=None if before is None else before.features, after=features))
        if (default is None or default.is_outdated) and not server.forward_headers and "tools" not in features.list_errors:
            # Other holders see at least the tools. Resources, prompts and templates may be those of an account.
            await self._store_default(
                server, ServerFeatures(tools=features.tools, instructions=features.instructions, info=features.info), is_complete=False
            )

    def _make_snapshot(self, server: Server, features: ServerFeatures) -> FeatureSnapshot:
        return FeatureSnapshot(server_key=server.key, fingerprint=fingerprint(server), features=features, seen_at=self._clock())

    def _record_health(self, server: Server, features: ServerFeatures, session: UpstreamSession) -> None:
        if features.list_errors:
            reasons = "; ".join(f"its {kind} could not be listed: {reason}" for kind, reason in features.list_errors.items())
            self._sessions.record_health(
                server, HealthStatus.DEGRADED, reasons[:1].upper() + reasons[1:], workspace_id=session.workspace_id
            )
            _log.warning("tools.list_incomplete", server=server.id, errors=dict(features.list_errors))
        elif self._sessions.get_health_state(server).health is HealthStatus.DEGRADED and not self._has_failed_session(server):
            self._sessions.record_health(server, HealthStatus.ONLINE)

    def _has_failed_session(self, server: Server) -> bool:
        """Return whether a session failed and was not reopened since. A list in the session of another workspace does not repair it."""
        return any(session.last_error for session in self._sessions.list_sessions(server.key))

    # Events of sessions.

    def _on_opened(self, session: UpstreamSession, connection: UpstreamConnection) -> None:
        self.refresh(session.server, (session, connection), session.opener)

    def _list_again(self, session: UpstreamSession, opener: RequestOptions | None) -> None:
        connection = session.current_connection
        if connection is not None and not session.is_stopping:
            self.refresh(session.server, (session, connection), opener)

    def _note_listed(self, server: Server, holder: str | None) -> None:
        self._listed_at.pop((server.key, holder), None)
        self._listed_at[server.key, holder] = time.monotonic()
        for times in (self._listed_at, self._pacers):
            while len(times) > _MAX_TIMES:
                del times[next(iter(times))]

    def _on_changed(self, session: UpstreamSession) -> None:
        """Schedule a list at the pace of `ChangePacer`. A running one may miss the change, so another follows it."""
        pacer = self._pacers.setdefault((session.server.key, _get_session_list_holder(session, session.opener)), ChangePacer())
        if not pacer.is_scheduled:
            pacer.is_scheduled = True
            loop = asyncio.get_running_loop()
            loop.call_at(pacer.compute_start(loop.time()), self._refresh_after_change, session, pacer)

    def _refresh_after_change(self, session: UpstreamSession, pacer: ChangePacer) -> None:
        server, holder = session.server, _get_session_list_holder(session, session.opener)
        running = self._running.get((server.key, holder))
        if running is not None:
            running.add_done_callback(lambda _: self._refresh_after_change(session, pacer))
            return
        loop = asyncio.get_running_loop()
        pacer.record_start(loop.time())
        connection = session.current_connection
        if connection is None:
            return  # opening the session lists it
        before = self._lists.find(server.key, holder)
        task = self.refresh(server, (session, connection), session.opener)
        if task is not None:

            def record(_: asyncio.Task[None]) -> None:
                after = self._lists.find(server.key, holder)
                has_changed = after is not None and (before is None or after.features != before.features)
                pacer.record_result(loop.time(), has_changed=has_changed)

            task.add_done_callback(record)


def _get_session_list_holder(session: UpstreamSession, opener: RequestOptions | None) -> str | None:
    """Return the holder whose own list a session shows with the headers of *opener*. None: the default list."""
    server = session.server
    if not server.forward_headers:
        return session.holder if has_own_lists(server) else None
    if opener is None or not opener.headers:
        return None
    return session.holder if server.isolation is SessionIsolation.PER_SESSION else get_list_holder(server, opener.caller, None)
