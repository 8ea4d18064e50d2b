"""Resources whose changes clients hear of: subscriptions of the older era's sessions, and of the later era's streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import mcp_types as types
import structlog
from mcp import MCPError

from rookery.kernel.errors import RookeryError
from rookery.tools.gateway.visits import Visit
from rookery.tools.models import Server
from rookery.tools.ports import OnUpdate
from rookery.tools.resources import Resources

_log = structlog.stdlib.get_logger("rookery.tools")

PER_CLIENT = 100
_AGAIN_S = (1.0, 5.0, 30.0)
"""After a server's session ended: how long until it is asked again; then given up."""


@dataclass(slots=True, eq=False)
class Watch:
    """
    One resource that one client hears of.

    Attributes:
        shown: Its uri as the client knows it.
        own: The server's own uri.
    """

    visit: Visit
    server: Server
    shown: str
    own: str
    on_update: OnUpdate
    again: asyncio.Task[None] | None = None


class Watches:
    """Asks servers to tell of resources; a server whose session ended is asked again."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources

    async def begin(self, visit: Visit, uri: str, tell: Callable[[str], None]) -> Watch:
        """
        Have *tell* called with *uri* whenever the resource changes.

        Raises:
            RookeryError: There is no such server for this key, or it does not tell of the resource.
        """
        resources, view = self._resources, visit.view
        if view.server_id is not None:
            server = resources.server(visit.caller, view.server_id)
            own = uri
        else:
            server = resources.server_of(visit.caller, uri)
            own = resources.own_uri(server, uri, visit.caller)

        def heard(updated: str | None) -> None:
            tell(uri)  # also when the session ended: what changed until it is open again would be missed
            if updated is None:
                watch.again = asyncio.create_task(self._begin_again(watch))

        watch = Watch(visit, server, uri, own, heard)
        await resources.watch(visit.caller, server, own, heard)
        return watch

    async def end(self, watch: Watch) -> None:
        """Hear of it no more."""
        if watch.again is not None:
            watch.again.cancel()
        try:
            await self._resources.watch(watch.visit.caller, watch.server, watch.own, watch.on_update, is_on=False)
        except RookeryError as error:
            _log.info("gateway.still_subscribed", server=watch.server.id, reason=error.message)

    async def _begin_again(self, watch: Watch) -> None:
        for delay_s in _AGAIN_S:
            await asyncio.sleep(delay_s)
            try:
                await self._resources.watch(watch.visit.caller, watch.server, watch.own, watch.on_update)
            except RookeryError as error:
                _log.info("gateway.not_subscribed", server=watch.server.id, reason=error.message)
            else:
                return


def must_have_room(count: int) -> None:
    """
    Do nothing if a client that hears of *count* resources may hear of another.

    Raises:
        MCPError: It may not.
    """
    if count >= PER_CLIENT:
        raise MCPError(types.INVALID_REQUEST, f"A client may subscribe to {PER_CLIENT} resources at once.")
