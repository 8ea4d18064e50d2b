"""The gateway's ASGI app. It imports the MCP SDK at the first request, because that import is half of all start-up imports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from rookery.kernel.http.request_body import replay_body
from rookery.kernel.imports import import_in_thread
from rookery.kernel.server_group import ServerGroup
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.catalogue_views import CatalogueViews
from rookery.tools.gateway.client_forms import ClientForms
from rookery.tools.gateway.session_ids import ClientSessionIds
from rookery.tools.gateway_names import DEFAULT_NAME_LENGTH
from rookery.tools.ports import BuiltinServer, GatewayKeyVerifier
from rookery.tools.resources import ResourceReader

if TYPE_CHECKING:
    from rookery.tools.gateway.forwarding import RequestForwarder
    from rookery.tools.gateway.protocol import ProtocolServer

_CLOSE_TIMEOUT_S = 5.0


class Gateway:
    """Serves MCP clients. Call `aclose` at shutdown."""

    def __init__(
        self,
        *,
        catalogue: Catalogue,
        calls: ToolRunner,
        resources: ResourceReader,
        search: ToolSearch,
        keys: GatewayKeyVerifier,
        session_ids: ClientSessionIds,
        group: ServerGroup,
        builtins: Sequence[BuiltinServer] = (),
        max_name_length: int = DEFAULT_NAME_LENGTH,
    ) -> None:
        self.catalogue = catalogue
        self._group = group
        self._forwarder: RequestForwarder | None = None
        self._keys = keys
        self._session_ids = session_ids
        self._calls = calls
        self._resources = resources
        self._search = search
        self._forms = ClientForms(builtins)
        self._views = CatalogueViews(catalogue, resources, max_name_length)
        self._owner: asyncio.Task[None] | None = None
        self._protocol: asyncio.Future[ProtocolServer] | None = None
        self._stopping = asyncio.Event()

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, body: bytes | None = None) -> None:
        """
        Serve one authenticated HTTP request, here or in the process that has its session. The first request waits for the import.

        Args:
            body: The body that *receive* returns, if it has been read.
        """
        if self._group.count > 1:
            forwarder = await self._get_forwarder()
            owner = forwarder.find_owner(scope, body)
            if owner is not None:
                if await forwarder.forward(owner, scope, body, receive, send):
                    return
                receive = replay_body(body or b"", receive)  # the forwarder has read it, to notice that the client leaves
        await self._serve_here(scope, receive, send)

    async def serve_forwarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that another process of the server has forwarded to this one."""
        forwarder = await self._get_forwarder()
        await forwarder.serve_forwarded(scope, receive, send, self._serve_here)

    async def _get_forwarder(self) -> RequestForwarder:
        if self._forwarder is None:
            loaded = await import_in_thread(self._load_forwarder)
            self._forwarder = self._forwarder or loaded  # another request may have been faster
        return self._forwarder

    def _load_forwarder(self) -> RequestForwarder:
        from rookery.tools.gateway.forwarding import RequestForwarder

        return RequestForwarder(self._group, self._keys)

    async def _serve_here(self, scope: Scope, receive: Receive, send: Send) -> None:
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
        if self._forwarder is not None:
            await self._forwarder.aclose()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._owner

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
            forms=self._forms,
            notifier=ChangeNotifier(self.catalogue, ResourceSubscriptions(self._resources), self._keys),
            session_ids=self._session_ids,
            group=self._group,
        )
