"""`/`, `/favicon.ico`: what a person or a program finds at the bare address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import find_caller
from rookery.kernel.http import Route, document_route, json_response, tag
from rookery.kernel.schema import ResponseModel
from rookery.tools.api.pages import HtmlPages, wants_html

StatusProvider = Callable[[], Awaitable[str]]
"""Returns how the server is, as `GET /readyz` has it: `ok`, `degraded` or `unavailable`."""


class StartResponse(ResponseModel):
    """What runs here, and where to begin."""

    name: Annotated[str, Field(description="Who runs this server (`ROOKERY_ORGANIZATION`).")]
    software: str = "rookery"
    version: Annotated[
        str | None, Field(description="The version of Rookery; null without a key where discovery needs one, as in production.")
    ]
    status: Annotated[str, Field(description="`ok`, `starting`, `degraded` or `unavailable`, as `GET /readyz` has it.")]
    links: Annotated[dict[str, str], Field(description="Where to go from here, by name.")]


@tag("Operation")
@dataclass(frozen=True, slots=True)
class StartPage:
    """
    The page at the bare address.

    Attributes:
        organization: Who runs this.
        version: The version of the package.
        is_public: Whether the version is shown without a key.
        has_docs: Whether the API documentation is served.
        status: How the server is.
        address: Returns the absolute address of a path.
    """

    organization: str
    version: str
    is_public: bool
    has_docs: bool
    status: StatusProvider
    address: Callable[[str], str]
    pages: HtmlPages = field(default_factory=HtmlPages)

    def routes(self) -> list[Route]:
        """Return the two routes that need no key."""
        return [
            Route(method="GET", path="/", handler=self.get_start, required_scope=None, public=True, optional_auth=True,
                  response_model=StartResponse, operation_id="get_start", summary="Show what runs here", ignores_query=True),
            Route(method="GET", path="/favicon.ico", handler=self.get_icon, required_scope=None, public=True,
                  operation_id="get_favicon", summary="Get the icon of the pages", ignores_query=True),
        ]  # fmt: skip

    @document_route(media_types=("text/html",))
    async def get_start(self, request: Request) -> Response:
        """Return an HTML page to a browser, and JSON to any other client: what runs here, its status, and where to begin."""
        status = await self.status()
        version = self.version if self.is_public or find_caller(request) is not None else None
        links = {"servers": "/servers", "connect": "/connect", "mcp": "/mcp", "health": "/readyz"}
        if self.has_docs:
            links |= {"docs": "/api/docs", "openapi": "/docs/openapi.json"}
        if wants_html(request):
            return self.pages.render(
                "start.html", organization=self.organization, version=version, status=status, url=f"{self.address('/mcp')}/mcp"
            )
        absolute = {name: self.address(path) + path for name, path in links.items()}
        answer = StartResponse(name=self.organization, version=version, status=status, links=absolute)
        return json_response(answer, headers={"Vary": "Accept, Authorization, X-API-Key"})

    @document_route(media_types=("image/vnd.microsoft.icon",))
    async def get_icon(self) -> Response:
        """Return the icon that browsers show beside the title of a page."""
        return Response(self.pages.icon, media_type="image/vnd.microsoft.icon", headers={"Cache-Control": "public, max-age=86400"})
