"""
The brakes (D-33): an operator stops a tool, a server, or all servers, for one workspace or for all.

What is stopped is known to every process by the next call that it makes: each asks the store, by one read of one row, whether
anything was stopped or started since it last looked (some microseconds beside SQLite; one round trip on PostgreSQL).
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


class KillSwitch:
    """Everything that is stopped."""

    def __init__(self, db: Database, audit: AuditLog, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._revision = -1
        self._reasons: Mapping[tuple[int, str, str], str] = {}
        self._read_lock = asyncio.Lock()

    async def require_enabled(self, caller: Caller, server_id: str, tool: str | None = None) -> None:
        """
        Do nothing if *caller* may use the server, and *tool* of it.

        Raises:
            Disabled: It, or something that it is part of, is stopped.
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
        """Stop *save_stop*, at once; what already was gets the new reason. Calls that run go on."""
        now = replace(stop, stopped_at=self._clock())

        def work(tx: Tx) -> ToolStop:
            store.save_stop(tx, now)
            store.increment_revision(tx, store.STOPS_REVISION)
            self._audit_change(tx, actor, now, is_stopped=True)
            return now

        return await self._db.write(work)

    async def start(self, stop: ToolStop, *, actor: Actor) -> bool:
        """Let *save_stop* go on; false if it was not stopped, which it still may be as part of something."""

        def work(tx: Tx) -> bool:
            was = store.delete_stop(tx, stop)
            if was:
                store.increment_revision(tx, store.STOPS_REVISION)
                self._audit_change(tx, actor, stop, is_stopped=False)
            return was

        return await self._db.write(work)

    async def list_stops(self) -> Sequence[ToolStop]:
        """Return all that is stopped, by workspace, server, tool."""
        return await self._db.read(store.list_stops)

    async def _read(self) -> None:
        async with self._read_lock:
            # The revision first: a stop that comes between is seen as a change by the next call.
            revision = await self._db.lookup(_get_revision)
            if revision != self._revision:
                found = await self._db.read(store.list_stops)
                self._reasons = {(each.workspace_id, each.server_id, each.tool): each.reason for each in found}
                self._revision = revision

    def _audit_change(self, tx: Tx, actor: Actor, stop: ToolStop, *, is_stopped: bool) -> None:
        named = "/".join(part for part in (stop.server_id, stop.tool) if part) or "*"
        state = {"stopped": is_stopped, "reason": stop.reason} if is_stopped else {"stopped": is_stopped}
        chain = PLATFORM_CHAIN if stop.workspace_id == ALL_WORKSPACES else stop.workspace_id
        action = "tools.stopped" if is_stopped else "tools.started"
        self._audit.record(
            tx, actor, chain, action, AuditSubject(kind="tools", id=named, name=named), before={"stopped": not is_stopped}, after=state
        )


def _get_revision(tx: Tx) -> int:
    return store.get_revision(tx, store.STOPS_REVISION)


def _describe_stop(server_id: str, tool: str, reason: str) -> str:
    what = f"The tool {tool!r} of {server_id!r} is" if tool else f"The server {server_id!r} is" if server_id else "All tools are"
    return f"{what} stopped by the operator" + (f": {reason}" if reason else ".")
