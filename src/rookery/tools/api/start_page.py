"""The operations `/` and `/favicon.ico`, for visitors of the bare host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.kernel.http import DocumentedResponse, Operation, Output
from rookery.kernel.http.unknown_paths import FAMILIES, list_resources
from rookery.kernel.schema import ResponseModel
from rookery.tools.api.pages import HtmlPages, wants_html

StatusProvider = Callable[[], Awaitable[str]]
"""Returns the status of the server, as `GET /readyz` reports it: `ok`, `degraded` or `unavailable`."""


class PathFamilyResponse(ResponseModel):
    """The paths with a common beginning."""

    path: Annotated[str, Field(description="The beginning of the paths.", examples=["/api/v1"])]
    description: str
    resources: Annotated[list[str], Field(description="The segments that follow it, such as `plans` for /api/agent/plans.")]


class StartResponse(ResponseModel):
    """The name, version and status of this server, with links to its routes."""

    name: Annotated[str, Field(description="The organization that runs this server (`ROOKERY_ORGANIZATION`).")]
    software: str = "rookery"
    version: Annotated[
        str | None, Field(description="The version of Rookery; null without a key if discovery requires one, as in production.")
    ]
    status: Annotated[str, Field(description="`ok`, `starting`, `degraded` or `unavailable`, as `GET /readyz` reports it.")]
    links: Annotated[dict[str, str], Field(description="URLs of this server's routes, by name.")]
    families: Annotated[list[PathFamilyResponse], Field(description="The paths of the API.")]


@dataclass(frozen=True, slots=True)
class StartPage:
    """
    The page at `/`.

    Attributes:
        organization: The organization that runs this server.
        version: The version of the package.
        is_public: Show the version without a key.
        has_docs: The API documentation is served.
        status: Returns the status of the server.
        has_console: A browser is led to the console.
        address: Returns the scheme and host for a path.
        paths: Returns the patterns of all paths of the server.
    """

    organization: str
    version: str
    is_public: bool
    has_docs: bool
    status: StatusProvider
    has_console: bool
    address: Callable[[str], str]
    paths: Callable[[], Iterable[str]]
    pages: HtmlPages = field(default_factory=HtmlPages)

    def operations(self) -> list[Operation]:
        """Return the two operations, which need no key."""
        operation = partial(Operation, method="GET", required_scope=None, public=True, ignores_query=True, tags=("Operation",))
        return [
            operation(path="/", handler=self.get_start, optional_auth=True, response_model=StartResponse, media_types=("text/html",),
                      response_headers=("Location",), responses={303: DocumentedResponse(description="The console, for a browser.")},
                      operation_id="get_start", summary="Show version, health and links"),
            operation(path="/favicon.ico", handler=self.get_icon, media_types=("image/vnd.microsoft.icon",),
                      operation_id="get_favicon", summary="Get the icon of the pages"),
        ]  # fmt: skip

    async def get_start(self, caller: Caller | None, request: Request) -> Response | Output:
        """
        Lead a browser to the console, and return JSON to any other client: what runs here, its status, and where to begin.

        Without the console, a browser gets a page with the same facts.
        """
        if self.has_console and wants_html(request):
            return Response(status_code=303, headers={"Location": "console/", "Vary": "Accept, Authorization, X-API-Key"})
        status = await self.status()
        version = self.version if self.is_public or caller is not None else None
        links = {"servers": "/servers", "connect": "/connect", "mcp": "/mcp", "health": "/readyz"}
        if self.has_console:
            links["console"] = "/console/"
        if self.has_docs:
            links |= {"docs": "/api/docs", "openapi": "/docs/openapi.json"}
        if wants_html(request):
            return self.pages.render(
                "start.html", organization=self.organization, version=version, status=status, url=f"{self.address('/mcp')}/mcp"
            )
        absolute = {name: self.address(path) + path for name, path in links.items()}
        families = [
            PathFamilyResponse(path=family, description=description, resources=list(list_resources(family, self.paths())))
            for family, description in FAMILIES.items()
        ]
        content = StartResponse(name=self.organization, version=version, status=status, links=absolute, families=families)
        return Output(body=content, headers={"Vary": "Accept, Authorization, X-API-Key"})

    async def get_icon(self) -> Response:
        """Return the icon of the pages."""
        return Response(self.pages.icon, media_type="image/vnd.microsoft.icon", headers={"Cache-Control": "public, max-age=86400"})
