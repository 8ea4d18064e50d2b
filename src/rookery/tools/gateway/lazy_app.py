"""The gateway's ASGI app. It imports the MCP SDK at the first request, because that import is half of all start-up imports."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from rookery.kernel.imports import import_in_thread
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.catalogue_views import CatalogueViews
from rookery.tools.ports import GatewayKeyVerifier
from rookery.tools.resources import ResourceReader

if TYPE_CHECKING:
    from rookery.tools.gateway.protocol import ProtocolServer

_CLOSE_TIMEOUT_S = 5.0


class Gateway:
    """Serves MCP clients. Call `aclose` at shutdown."""

    def __init__(
        self, *, catalogue: Catalogue, calls: ToolRunner, resources: ResourceReader, search: ToolSearch, keys: GatewayKeyVerifier
    ) -> None:
        self.catalogue = catalogue
        self._keys = keys
        self._calls = calls
        self._resources = resources
        self._search = search
        self._views = CatalogueViews(catalogue, resources)
        self._owner: asyncio.Task[None] | None = None
        self._protocol: asyncio.Future[ProtocolServer] | None = None
        self._stopping = asyncio.Event()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one authenticated HTTP request. The first request waits for the import."""
        if self._protocol is None:
            self._protocol = asyncio.get_running_loop().create_future()
            self._owner = asyncio.create_task(self._run_protocol(self._protocol), name="tools-gateway")
        protocol = await asyncio.shield(self._protocol)
        await protocol.serve(scope, receive, send)

    def close_streams(self) -> None:
        """Close listening streams, so that shutdown waits only for running calls. Safe from any thread or signal handler."""
        if self._owner is not None:
            self._owner.get_loop().call_soon_threadsafe(self._close_streams)

    def _close_streams(self) -> None:
        if self._protocol is not None and self._protocol.done() and not self._protocol.cancelled():
            self._protocol.result().close_streams()

    async def aclose(self) -> None:
        """End all sessions and streams."""
        self._stopping.set()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._owner, _CLOSE_TIMEOUT_S)

    async def _run_protocol(self, ready: asyncio.Future[ProtocolServer]) -> None:
        """Own the SDK's tasks, which must be entered and left in the same task."""
        try:
            protocol = await import_in_thread(self._load)
            async with protocol.run():
                ready.set_result(protocol)
                await self._stopping.wait()
        finally:
            self._protocol = None
            if not ready.done():
                ready.cancel()

    def _load(self) -> ProtocolServer:
        from rookery.tools.gateway.change_notifications import ChangeNotifier, ResourceSubscriptions
        from rookery.tools.gateway.protocol import ProtocolServer
        from rookery.tools.gateway.search_mode import SearchModeTools

        return ProtocolServer(
            calls=self._calls,
            resources=self._resources,
            views=self._views,
            search_mode=SearchModeTools(self._views, self._search),
            notifier=ChangeNotifier(self.catalogue, ResourceSubscriptions(self._resources), self._keys),
        )
