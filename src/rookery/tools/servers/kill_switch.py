"""
The kill switch: an operator stops a tool, a server or all servers, for one workspace or for all.

A stop applies to every process from its next call on. Each call compares the revision of stops by one read of one row (some
microseconds on SQLite, one round trip on PostgreSQL), and reads the stops again if it changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.models import Actor, Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.tools.errors import ToolDisabled
from rookery.tools.models import ALL_WORKSPACES, ToolStop
from rookery.tools.store import servers as store
from rookery.tools.store.servers import STOPS


class KillSwitch:
    """All stops of tools and servers."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._revision = -1
        self._reasons: Mapping[tuple[int, str, str], str] = {}
        self._read_lock = asyncio.Lock()

    async def require_enabled(self, caller: Caller, server_id: str, tool: str | None = None) -> None:
        """
        Raise an error if the server, or *tool* of it, is stopped for *caller*.

        Raises:
            ToolDisabled: The tool, its server or all tools are stopped.
        """
        if await self._db.lookup(_get_revision) != self._revision:
            await self._read()
        if not self._reasons:
            return
        for workspace_id in (ALL_WORKSPACES, caller.public_workspace_id):
            for key in ((workspace_id, "", ""), (workspace_id, server_id, ""), (workspace_id, server_id, tool or "")):
                reason = self._reasons.get(key)
                if reason is not None:
                    raise ToolDisabled(_describe_stop(key[1], key[2], reason), server=server_id)

    async def stop(self, stop: ToolStop, *, actor: Actor) -> ToolStop:
        """Apply a stop at once. An existing stop gets the new reason. Running calls continue."""
        now = replace(stop, stopped_at=self._clock())

        def work(tx: Tx) -> ToolStop:
            STOPS.save(tx, now)
            store.increment_revision(tx, store.STOPS_REVISION)
            self._audit_change(tx, actor, now, is_stopped=True)
            return now

        return await self._db.write(work)

    async def start(self, stop: ToolStop, *, actor: Actor) -> bool:
        """Remove a stop. Return False if it did not exist. A broader stop may still apply."""

        def work(tx: Tx) -> bool:
            was_stopped = STOPS.delete(tx, stop.workspace_id, server_id=stop.server_id, tool=stop.tool) == 1
            if was_stopped:
                store.increment_revision(tx, store.STOPS_REVISION)
                self._audit_change(tx, actor, stop, is_stopped=False)
            return was_stopped

        return await self._db.write(work)

    async def list_stops(self) -> Sequence[ToolStop]:
        """Return all stops, ordered by workspace, server and tool."""
        return await self._db.read(store.list_stops)

    async def _read(self) -> None:
        async with self._read_lock:
            # The revision is read first. A stop made meanwhile has a later revision and is read by the next call.
            revision = await self._db.lookup(_get_revision)
            if revision != self._revision:
                stops = await self._db.read(store.list_stops)
                self._reasons = {(stop.workspace_id, stop.server_id, stop.tool): stop.reason for stop in stops}
                self._revision = revision

    def _audit_change(self, tx: Tx, actor: Actor, stop: ToolStop, *, is_stopped: bool) -> None:
        name = "/".join(part for part in (stop.server_id, stop.tool) if part) or "*"
        state = {"stopped": is_stopped, "reason": stop.reason} if is_stopped else {"stopped": is_stopped}
        chain = PLATFORM_CHAIN if stop.workspace_id == ALL_WORKSPACES else stop.workspace_id
        action = "tools.stopped" if is_stopped else "tools.started"
        self._audit.record(
            tx, actor, chain, action, AuditSubject(kind="tools", id=name, name=name), before={"stopped": not is_stopped}, after=state
        )


def _get_revision(tx: Tx) -> int:
    return store.get_revision(tx, store.STOPS_REVISION)


def _describe_stop(server_id: str, tool: str, reason: str) -> str:
    subject = f"The tool {tool!r} of {server_id!r} is" if tool else f"The server {server_id!r} is" if server_id else "All tools are"
    return f"{subject} stopped by the operator" + (f": {reason}" if reason else ".")
