"""Where the documentation is read (spec 4.5, D-83)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import RookeryError
from rookery.kernel.http import Described, Route, describe, hide
from rookery.kernel.http.replies import UnknownRoute
from rookery.kernel.http.routes import Handler
from rookery.reference.published import Published
from rookery.reference.viewers import POLICY, Viewers

READ = "docs:read"
_TAGS = ("Documentation",)
_UNCHANGED = Described(says="It is the same that If-None-Match names.")
_CHALLENGE = 'Basic realm="Rookery: a key as user name, no password", charset="UTF-8"'
"""
The challenge of these pages, and of the address from which they load the description (D-83).

Other routes send `Bearer`: a browser that gets this one asks its user, which no program that calls the API expects. `Bearer` does not stand
beside it, since Chromium reads one scheme per header. A Bearer key is accepted all the same.
"""
Refuse = Callable[[RookeryError, object, Mapping[str, str]], RookeryError]
_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?(?=,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceApi:
    """Shows what the server says of itself; switched off, none of its routes is there."""

    published: Published
    viewers: Viewers = field(default_factory=Viewers)

    def routes(self) -> list[Route]:
        """Return the table; the paths are whole."""
        return [
            self._document("/api/docs/openapi"),
            self._document("/docs/openapi.json"),
            self._document("/openapi.json", refuse=_challenged),
            self._page("/api/docs", self.get_swagger, "open_swagger", "Read the documentation in Swagger UI"),
            self._page("/api/docs/scalar", self.get_scalar, "open_scalar", "Read the documentation in Scalar"),
            self._page("/api/docs/redoc", self.get_redoc, "open_redoc", "Read the documentation in Redoc"),
            self._page(
                "/api/docs/static/{digest}/{name}", self.get_static, "get_static_file", "Return a file of those pages", spends=False
            ),
        ]

    @describe(answers={304: _UNCHANGED}, reads=("If-None-Match",), sends=("ETag",))
    async def get_document(self, request: Request) -> Response:
        """Return this document."""
        edition = await self.published.edition()
        headers = {"ETag": edition.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization, X-API-Key"}
        if _is_seen(request.headers.get("if-none-match", ""), edition.etag):
            return Response(status_code=304, headers=headers)
        if takes_gzip(request):
            return Response(edition.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")
        return Response(edition.plain, headers=headers, media_type="application/json")

    @describe(media=("text/html",))
    async def get_swagger(self) -> Response:
        """Return the documentation as a page of Swagger UI, in which calls can be tried."""
        return await self._shown("swagger")

    @describe(media=("text/html",))
    async def get_scalar(self) -> Response:
        """Return the documentation as a page of Scalar."""
        return await self._shown("scalar")

    @describe(media=("text/html",))
    async def get_redoc(self) -> Response:
        """Return the documentation as a page of Redoc."""
        return await self._shown("redoc")

    @hide
    async def get_static(self, request: Request, digest: str, name: str) -> Response:
        """Answer a file that never changes under its address, so a browser asks once."""
        found = await asyncio.to_thread(self.viewers.asset, digest, name)
        if found is None:
            raise UnknownRoute("There is no such file; the pages under /api/docs name those that there are.")
        headers = {"Content-Type": found.media_type, "Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if takes_gzip(request):
            return Response(found.packed, headers={**headers, "Content-Encoding": "gzip"})
        return Response(await asyncio.to_thread(found.unpacked), headers=headers)

    async def _shown(self, name: str) -> Response:
        pages = await asyncio.to_thread(lambda: self.viewers.pages)
        headers = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "private, no-cache"}
        return Response(pages[name], headers=headers, media_type="text/html")

    def _page(self, path: str, handler: Handler, operation_id: str, summary: str, *, spends: bool = True) -> Route:
        return Route(
            method="GET",
            path=path,
            handler=handler,
            needs=READ,
            operation_id=operation_id,
            summary=summary,
            tags=_TAGS,
            refuse=_challenged,
            spends=spends,
        )

    def _document(self, path: str, *, refuse: Refuse | None = None) -> Route:
        return Route(
            method="GET",
            path=path,
            handler=self.get_document,
            needs=READ,
            operation_id="get_openapi_document",
            summary="Describe the whole API in OpenAPI 3.0",
            tags=_TAGS,
            refuse=refuse,
        )


def _challenged(error: RookeryError, _seen: object, _path: Mapping[str, str]) -> RookeryError:
    if error.status == 401:
        error.headers["WWW-Authenticate"] = _CHALLENGE
    return error


def takes_gzip(request: Request) -> bool:
    """Return whether whoever asks can unpack what is packed; `gzip;q=0` says no."""
    return _GZIP.search(request.headers.get("accept-encoding", "").lower()) is not None


def _is_seen(header: str, etag: str) -> bool:
    """Compare weakly, as If-None-Match does (RFC 9110, 13.1.2)."""
    return header.strip() == "*" or etag.removeprefix("W/") in {each.strip().removeprefix("W/") for each in header.split(",")}
