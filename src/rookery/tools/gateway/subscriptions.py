"""Resources whose changes clients hear of: subscriptions of the older era's sessions, and of the later era's streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import mcp_types as types
import structlog
from mcp import MCPError

from rookery.kernel.errors import RookeryError
from rookery.tools.gateway.mcp_requests import McpRequest
from rookery.tools.models import Server
from rookery.tools.ports import OnUpdate
from rookery.tools.resources import ResourceReader

_log = structlog.stdlib.get_logger("rookery.tools")

MAX_SUBSCRIPTIONS_PER_CLIENT = 100
_RETRY_DELAYS_S = (1.0, 5.0, 30.0)
"""After a server's session ended: how long until it is asked again; then given up."""


@dataclass(slots=True, eq=False)
class ResourceSubscription:
    """
    One resource that one client hears of.

    Attributes:
        client_uri: Its uri as the client knows it.
        upstream_uri: The server's own uri.
    """

    mcp_request: McpRequest
    server: Server
    client_uri: str
    upstream_uri: str
    on_update: OnUpdate
    retry_task: asyncio.Task[None] | None = None


class ResourceSubscriptions:
    """Asks servers to tell of resources; a server whose session ended is asked again."""

    def __init__(self, resources: ResourceReader) -> None:
        self._resources = resources

    async def subscribe(self, mcp_request: McpRequest, uri: str, notify: Callable[[str], None]) -> ResourceSubscription:
        """
        Have *notify* called with *uri* whenever the resource changes.

        Raises:
            RookeryError: There is no such server for this key, or it does not tell of the resource.
        """
        resources, view = self._resources, mcp_request.view
        if view.server_id is not None:
            server = resources.get_server(mcp_request.caller, view.server_id)
            own = uri
        else:
            server = resources.find_server_by_uri(mcp_request.caller, uri)
            own = resources.to_upstream_uri(server, uri, mcp_request.caller)

        def heard(updated: str | None) -> None:
            notify(uri)  # also when the session ended: what changed until it is open again would be missed
            if updated is None:
                watch.retry_task = asyncio.create_task(self._resubscribe(watch))

        watch = ResourceSubscription(mcp_request, server, uri, own, heard)
        await resources.subscribe(mcp_request.caller, server, own, heard)
        return watch

    async def unsubscribe(self, watch: ResourceSubscription) -> None:
        """Hear of it no more."""
        if watch.retry_task is not None:
            watch.retry_task.cancel()
        try:
            await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update, is_on=False)
        except RookeryError as error:
            _log.info("gateway.still_subscribed", server=watch.server.id, reason=error.message)

    async def _resubscribe(self, watch: ResourceSubscription) -> None:
        for delay_s in _RETRY_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update)
            except RookeryError as error:
                _log.info("gateway.not_subscribed", server=watch.server.id, reason=error.message)
            else:
                return


def require_capacity(count: int) -> None:
    """
    Do nothing if a client that hears of *count* resources may hear of another.

    Raises:
        MCPError: It may not.
    """
    if count >= MAX_SUBSCRIPTIONS_PER_CLIENT:
        raise MCPError(types.INVALID_REQUEST, f"A client may subscribe to {MAX_SUBSCRIPTIONS_PER_CLIENT} resources at once.")
