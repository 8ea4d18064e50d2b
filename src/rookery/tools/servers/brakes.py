"""
The brakes (D-33): an operator stops a tool, a server, or all servers, for one workspace or for all.

What is stopped is known to every process by the next call that it makes: each asks the store, by one read of one row, whether
anything was stopped or started since it last looked (some microseconds beside SQLite; one round trip on PostgreSQL).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rookery.access.audit import PLATFORM_CHAIN, Audit, Subject
from rookery.access.models import Actor, Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.tools.errors import Disabled
from rookery.tools.models import Stop
from rookery.tools.store import servers as store

EVERYWHERE = 0
"""The number that no workspace has: a stop of it is one of all."""


class Brakes:
    """Everything that is stopped."""

    def __init__(self, db: Database, audit: Audit, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._clock = clock
        self._revision = -1
        self._stopped: Mapping[tuple[int, str, str], str] = {}
        self._reading = asyncio.Lock()

    async def must_be_free(self, caller: Caller, server_id: str, tool: str | None = None) -> None:
        """
        Do nothing if *caller* may use the server, and *tool* of it.

        Raises:
            Disabled: It, or something that it is part of, is stopped.
        """
        if await self._db.quick(_revision) != self._revision:
            await self._read()
        if not self._stopped:
            return
        for workspace_id in (EVERYWHERE, caller.shown_workspace_id):
            for key in ((workspace_id, "", ""), (workspace_id, server_id, ""), (workspace_id, server_id, tool or "")):
                reason = self._stopped.get(key)
                if reason is not None:
                    raise Disabled(_words(key[1], key[2], reason), server=server_id)

    async def stop(self, what: Stop, *, by: Actor) -> Stop:
        """Stop *what*, at once; what already was gets the new reason. Calls that run go on."""
        now = replace(what, stopped_at=self._clock())

        def work(tx: Tx) -> Stop:
            store.stop(tx, now)
            store.move_on(tx, store.STOPS)
            self._note(tx, by, now, is_stopped=True)
            return now

        return await self._db.write(work)

    async def start(self, what: Stop, *, by: Actor) -> bool:
        """Let *what* go on; false if it was not stopped, which it still may be as part of something."""

        def work(tx: Tx) -> bool:
            was = store.start(tx, what)
            if was:
                store.move_on(tx, store.STOPS)
                self._note(tx, by, what, is_stopped=False)
            return was

        return await self._db.write(work)

    async def stops(self) -> Sequence[Stop]:
        """Return all that is stopped, by workspace, server, tool."""
        return await self._db.read(store.stops)

    async def _read(self) -> None:
        async with self._reading:
            # The revision first: a stop that comes between is seen as a change by the next call.
            revision = await self._db.quick(_revision)
            if revision != self._revision:
                found = await self._db.read(store.stops)
                self._stopped = {(each.workspace_id, each.server_id, each.tool): each.reason for each in found}
                self._revision = revision

    def _note(self, tx: Tx, by: Actor, what: Stop, *, is_stopped: bool) -> None:
        named = "/".join(part for part in (what.server_id, what.tool) if part) or "*"
        state = {"stopped": is_stopped, "reason": what.reason} if is_stopped else {"stopped": is_stopped}
        chain = PLATFORM_CHAIN if what.workspace_id == EVERYWHERE else what.workspace_id
        action = "tools.stopped" if is_stopped else "tools.started"
        self._audit.note(
            tx, by, chain, action, Subject(kind="tools", id=named, name=named), before={"stopped": not is_stopped}, after=state
        )


def _revision(tx: Tx) -> int:
    return store.revision(tx, store.STOPS)


def _words(server_id: str, tool: str, reason: str) -> str:
    what = f"The tool {tool!r} of {server_id!r} is" if tool else f"The server {server_id!r} is" if server_id else "All tools are"
    return f"{what} stopped by the operator" + (f": {reason}" if reason else ".")
