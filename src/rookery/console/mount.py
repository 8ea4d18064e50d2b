"""
The place of the console in the server. Its first request imports and builds it.

The client and its models take 0.13 s of CPU to import, and a server that only programs use never needs them.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.console.ports import ConsolePorts

if TYPE_CHECKING:
    from rookery.console.application import BuildConsole

PREFIX = "/console"


class ConsoleMount:
    """
    The ASGI application under `/console`.

    Attributes:
        server: The server to which the pages send their calls. It is set once the server is complete.
    """

    def __init__(self, ports: ConsolePorts) -> None:
        self.server: ASGIApp | None = None
        self._ports = ports
        self._console: ASGIApp | None = None
        self._building = asyncio.Lock()

    def routes(self) -> list[Mount | Route]:
        """Return the routes of the console for the router of the server."""
        return [Route(PREFIX, _redirect_to_folder, methods=["GET"]), Mount(PREFIX, app=self)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        cast("dict[str, object]", scope["state"])["route"] = PREFIX
        console = self._console or await self._build()
        await console(scope, receive, send)

    async def _build(self) -> ASGIApp:
        async with self._building:
            if self._console is None:
                if self.server is None:
                    msg = "the console serves before its server is complete"
                    raise LookupError(msg)
                application = await asyncio.to_thread(import_module, "rookery.console.application")
                self._console = cast("BuildConsole", application.build)(self._ports, self.server)
            return self._console


async def _redirect_to_folder(request: Request) -> Response:
    """Redirect `/console` to `/console/`, from which the relative links of the pages start."""
    name = request.url.path.rpartition("/")[2]
    return Response(status_code=308, headers={"Location": f"{name}/"})
