"""A connector that is loaded when it is first asked for a session: the protocol's SDK is half of all that a start would import."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rookery.kernel.imports import import_in_thread
from rookery.tools.models import AuthorizationRequest, Login, Server
from rookery.tools.ports import AuthorizationServers, Connector, UpstreamConnection


class LazyConnector:
    """Stands for the connector that *load* returns; see `Connector`."""

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
        """Open a session; the first one waits for the import, in a thread, so that nothing else does."""
        if self._connector is None:
            self._connector = await import_in_thread(self._load)
            # What was imported stays: every full look for garbage would walk all of it, 50 ms in which nobody is answered.
            gc.freeze()
        async with self._connector.connect(server, on_changed=on_changed, workspace_id=workspace_id, on_stderr=on_stderr) as connection:
            yield connection


class LazyAuthorities:
    """Stands for what *load* returns; see `AuthorizationServers`."""

    def __init__(self, load: Callable[[], AuthorizationServers]) -> None:
        self._load = load
        self._loaded: AuthorizationServers | None = None

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        """See `AuthorizationServers`."""
        return await (await self._load_once()).begin(server, redirect_uri=redirect_uri, document=document)

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        """See `AuthorizationServers`."""
        return await (await self._load_once()).finish(server, start, code=code, issuer=issuer)

    async def renew(self, server: Server, login: Login) -> Login:
        """See `AuthorizationServers`."""
        return await (await self._load_once()).renew(server, login)

    async def _load_once(self) -> AuthorizationServers:
        if self._loaded is None:
            self._loaded = await import_in_thread(self._load)
        return self._loaded
