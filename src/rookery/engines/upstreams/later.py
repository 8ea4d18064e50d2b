"""A connector that is loaded when it is first asked for a session: the protocol's SDK is half of all that a start would import."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from rookery.tools.models import Server
from rookery.tools.ports import Connection, Connector


class Later:
    """Stands for the connector that *load* returns; see `Connector`."""

    def __init__(self, load: Callable[[], Connector]) -> None:
        self._load = load
        self._connector: Connector | None = None

    @asynccontextmanager
    async def connect(self, server: Server, *, on_changed: Callable[[], None]) -> AsyncGenerator[Connection]:
        """Open a session; the first one waits for the import, in a thread, so that nothing else does."""
        if self._connector is None:
            self._connector = await asyncio.to_thread(self._load)
        async with self._connector.connect(server, on_changed=on_changed) as connection:
            yield connection
