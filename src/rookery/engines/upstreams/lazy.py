"""Connectors that are imported at first use. The MCP SDK is half of everything that a start would import."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rookery.kernel.imports import import_in_thread
from rookery.tools.models import AuthorizationRequest, Login, Server
from rookery.tools.ports import AuthorizationServers, Connector, UpstreamConnection


class LazyConnector:
    """A `Connector` that creates the real one with *load* at the first session."""

    def __init__(self, load: Callable[[], Connector]) -> None:
        self._load = load
        self._connector: Connector | None = None

    @asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[UpstreamConnection]:
        """Open a session. The first one waits for the import, which runs in a thread and does not block the event loop."""
        if self._connector is None:
            self._connector = await import_in_thread(self._load)
            # Imported objects are never freed. Without this, every full garbage collection would visit them and block for 50 ms.
            gc.freeze()
        async with self._connector.connect(server, on_changed=on_changed, workspace_id=workspace_id, on_stderr=on_stderr) as connection:
            yield connection


class LazyAuthorities:
    """An `AuthorizationServers` that creates the real one with *load* at the first call."""

    def __init__(self, load: Callable[[], AuthorizationServers]) -> None:
        self._load = load
        self._loaded: AuthorizationServers | None = None

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        return await (await self._load_once()).begin(server, redirect_uri=redirect_uri, document=document)

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        return await (await self._load_once()).finish(server, start, code=code, issuer=issuer)

    async def renew(self, server: Server, login: Login) -> Login:
        return await (await self._load_once()).renew(server, login)

    async def _load_once(self) -> AuthorizationServers:
        if self._loaded is None:
            self._loaded = await import_in_thread(self._load)
        return self._loaded
