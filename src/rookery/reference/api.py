"""The routes of the API documentation (spec 4.5, D-83)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import RookeryError
from rookery.kernel.http import DocumentedResponse, Operation, document_route, hide_from_docs
from rookery.kernel.http.responses import RouteNotFound
from rookery.kernel.http.routes import Handler
from rookery.reference.document_cache import DocumentCache
from rookery.reference.viewers import CONTENT_SECURITY_POLICY, Viewers

READ_SCOPE = "docs:read"
_TAGS = ("Documentation",)
_NOT_MODIFIED = DocumentedResponse(description="The document has the ETag in If-None-Match.")
_BASIC_CHALLENGE = 'Basic realm="Rookery: a key as user name, no password", charset="UTF-8"'
"""
The challenge of these pages, and of the path from which they load the document (D-83).

Other routes send `Bearer`, because a browser that gets a Basic challenge prompts its user, which API clients do not expect. The pages do
not send `Bearer` too, because Chromium reads one scheme per header. They still accept a Bearer key.
"""
MapError = Callable[[RookeryError, object, Mapping[str, str]], RookeryError]
_ACCEPTS_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?(?=,|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceApi:
    """The routes of the API documentation. They exist only if the documentation is enabled."""

    document_cache: DocumentCache
    viewers: Viewers = field(default_factory=Viewers)

    def routes(self) -> list[Operation]:
        """Return the table of routes, with full paths."""
        return [
            self._document_route("/api/docs/openapi"),
            self._document_route("/docs/openapi.json"),
            self._document_route("/openapi.json", map_error=_add_challenge),
            self._page_route("/api/docs", self.get_swagger, "open_swagger", "Read the documentation in Swagger UI"),
            self._page_route("/api/docs/scalar", self.get_scalar, "open_scalar", "Read the documentation in Scalar"),
            self._page_route("/api/docs/redoc", self.get_redoc, "open_redoc", "Read the documentation in Redoc"),
            self._page_route(
                "/api/docs/static/{digest}/{name}",
                self.get_static,
                "get_static_file",
                "Return a file of the documentation pages",
                rate_limited=False,
            ),
        ]

    @document_route(responses={304: _NOT_MODIFIED}, request_headers=("If-None-Match",), response_headers=("ETag",))
    async def get_document(self, request: Request) -> Response:
        """Return this document."""
        edition = await self.document_cache.get_encoded()
        headers = {"ETag": edition.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization, X-API-Key"}
        if _matches_etag(request.headers.get("if-none-match", ""), edition.etag):
            return Response(status_code=304, headers=headers)
        if accepts_gzip(request):
            return Response(edition.gzipped, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")
        return Response(edition.raw, headers=headers, media_type="application/json")

    @document_route(media_types=("text/html",))
    async def get_swagger(self) -> Response:
        """Return the documentation as a page of Swagger UI, in which calls can be tried."""
        return await self._viewer_page("swagger")

    @document_route(media_types=("text/html",))
    async def get_scalar(self) -> Response:
        """Return the documentation as a page of Scalar."""
        return await self._viewer_page("scalar")

    @document_route(media_types=("text/html",))
    async def get_redoc(self) -> Response:
        """Return the documentation as a page of Redoc."""
        return await self._viewer_page("redoc")

    @hide_from_docs
    async def get_static(self, request: Request, digest: str, name: str) -> Response:
        """Return a file of the documentation pages. Its URL contains its digest, so browsers may cache it for ever."""
        asset = await asyncio.to_thread(self.viewers.find_asset, digest, name)
        if asset is None:
            raise RouteNotFound("The file does not exist. The pages under /api/docs link to the current files.")
        headers = {"Content-Type": asset.media_type, "Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if accepts_gzip(request):
            return Response(asset.gzipped, headers={**headers, "Content-Encoding": "gzip"})
        return Response(await asyncio.to_thread(asset.decompress), headers=headers)

    async def _viewer_page(self, name: str) -> Response:
        pages = await asyncio.to_thread(lambda: self.viewers.pages)
        headers = {
            "Content-Security-Policy": CONTENT_SECURITY_POLICY,
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "private, no-cache",
        }
        return Response(pages[name], headers=headers, media_type="text/html")

    def _page_route(self, path: str, handler: Handler, operation_id: str, summary: str, *, rate_limited: bool = True) -> Operation:
        return Operation(
            method="GET",
            path=path,
            handler=handler,
            required_scope=READ_SCOPE,
            operation_id=operation_id,
            summary=summary,
            tags=_TAGS,
            map_error=_add_challenge,
            rate_limited=rate_limited,
        )

    def _document_route(self, path: str, *, map_error: MapError | None = None) -> Operation:
        return Operation(
            method="GET",
            path=path,
            handler=self.get_document,
            required_scope=READ_SCOPE,
            operation_id="get_openapi_document",
            summary="Describe the whole API in OpenAPI 3.0",
            tags=_TAGS,
            map_error=map_error,
        )


def _add_challenge(error: RookeryError, _body: object, _path: Mapping[str, str]) -> RookeryError:
    if error.status == 401:
        error.headers["WWW-Authenticate"] = _BASIC_CHALLENGE
    return error


def accepts_gzip(request: Request) -> bool:
    """Return whether the client accepts gzip. `gzip;q=0` means that it does not."""
    return _ACCEPTS_GZIP.search(request.headers.get("accept-encoding", "").lower()) is not None


def _matches_etag(header: str, etag: str) -> bool:
    """Return whether If-None-Match matches, by weak comparison (RFC 9110, 13.1.2)."""
    return header.strip() == "*" or etag.removeprefix("W/") in {tag.strip().removeprefix("W/") for tag in header.split(",")}
