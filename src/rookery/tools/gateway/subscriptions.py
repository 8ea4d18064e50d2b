"""Resource subscriptions of MCP clients: of legacy sessions and of modern streams."""

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
"""Delays before attempts to subscribe again after an upstream session ended. After the last one, the subscription is given up."""


@dataclass(slots=True, eq=False)
class ResourceSubscription:
    """
    One client's subscription to one resource.

    Attributes:
        client_uri: The URI in the client's view.
        upstream_uri: The server's own URI.
    """

    mcp_request: McpRequest
    server: Server
    client_uri: str
    upstream_uri: str
    on_update: OnUpdate
    retry_task: asyncio.Task[None] | None = None


class ResourceSubscriptions:
    """Subscribes to resources of upstreams, and subscribes again if an upstream session ends."""

    def __init__(self, resources: ResourceReader) -> None:
        self._resources = resources

    async def subscribe(self, mcp_request: McpRequest, uri: str, notify: Callable[[str], None]) -> ResourceSubscription:
        """
        Call *notify* with *uri* whenever the resource changes.

        Raises:
            RookeryError: The server does not exist for this key, or does not support the subscription.
        """
        resources, view = self._resources, mcp_request.view
        if view.server_id is not None:
            server = resources.get_server(mcp_request.caller, view.server_id)
            upstream_uri = uri
        else:
            server = resources.find_server_by_uri(mcp_request.caller, uri)
            upstream_uri = resources.to_upstream_uri(server, uri, mcp_request.caller)

        def on_update(updated: str | None) -> None:
            notify(uri)  # also at the end of the session, because changes until the next subscription would be missed
            if updated is None:
                watch.retry_task = asyncio.create_task(self._resubscribe(watch))

        watch = ResourceSubscription(mcp_request, server, uri, upstream_uri, on_update)
        await resources.subscribe(mcp_request.caller, server, upstream_uri, on_update)
        return watch

    async def unsubscribe(self, watch: ResourceSubscription) -> None:
        """End the subscription. A failure is logged."""
        if watch.retry_task is not None:
            watch.retry_task.cancel()
        try:
            await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update, is_on=False)
        except RookeryError as error:
            _log.info("gateway.unsubscribe_failed", server=watch.server.id, reason=error.message)

    async def _resubscribe(self, watch: ResourceSubscription) -> None:
        for delay_s in _RETRY_DELAYS_S:
            await asyncio.sleep(delay_s)
            try:
                await self._resources.subscribe(watch.mcp_request.caller, watch.server, watch.upstream_uri, watch.on_update)
            except RookeryError as error:
                _log.info("gateway.resubscribe_failed", server=watch.server.id, reason=error.message)
            else:
                return


def require_capacity(count: int) -> None:
    """
    Raise an error if a client with *count* subscriptions has reached the limit.

    Raises:
        MCPError: The limit is reached.
    """
    if count >= MAX_SUBSCRIPTIONS_PER_CLIENT:
        raise MCPError(
            types.INVALID_REQUEST, f"A client may have at most {MAX_SUBSCRIPTIONS_PER_CLIENT} subscriptions; unsubscribe from one first."
        )
