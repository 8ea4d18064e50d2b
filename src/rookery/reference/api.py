"""The routes of the API documentation."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Self, cast

import orjson
from pydantic import BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import RookeryError
from rookery.kernel.http import DocumentedResponse, Operation
from rookery.kernel.http.compression import accepts_gzip
from rookery.kernel.http.responses import RouteNotFound
from rookery.kernel.schema import QueryModel, split_names
from rookery.reference.downgrade import Schema
from rookery.reference.parts import select_tags
from rookery.reference.viewers import CONTENT_SECURITY_POLICY, Viewers

READ_SCOPE = "docs:read"
_MAX_TAGS = 50
_MAX_STORED_PARTS = 8
_NOT_MODIFIED = DocumentedResponse(description="The document has the ETag in If-None-Match.")
_BASIC_CHALLENGE = 'Basic realm="Rookery: a key as user name, no password", charset="UTF-8"'
"""
The challenge of these pages, and of the path from which they load the document.

Other routes send `Bearer`, because a browser that gets a Basic challenge prompts its user, which API clients do not expect. The pages do
not send `Bearer` too, because Chromium reads one scheme per header. They still accept a Bearer key.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocument:
    """
    The document as JSON and as gzip.

    Attributes:
        etag: A weak ETag, because both forms share it.
    """

    raw: bytes
    gzipped: bytes
    etag: str

    @classmethod
    def encode(cls, document: Schema) -> Self:
        """Return a document in both forms."""
        raw = orjson.dumps(document)
        return cls(raw=raw, gzipped=gzip.compress(raw, mtime=0), etag=f'W/"{hashlib.sha256(raw).hexdigest()[:32]}"')


class DocumentQuery(QueryModel):
    """The part of the document to return."""

    tags: (
        Annotated[
            list[str],
            BeforeValidator(split_names),
            Field(
                min_length=1,
                max_length=_MAX_TAGS,
                description="Only the operations of these tags, and what they refer to; repeated or separated by commas.",
            ),
        ]
        | None
    ) = None


class DocumentCache:
    """
    A cache that builds the document on the first request, so that the start stays fast.

    Args:
        build: Returns the document. Called once, in a thread, so that other requests are served meanwhile.
    """

    def __init__(self, build: Callable[[], Schema]) -> None:
        self._make = build
        self._encoded: EncodedDocument | None = None
        self._parts: dict[frozenset[str], EncodedDocument] = {}
        self._build_lock = asyncio.Lock()

    async def get_encoded(self) -> EncodedDocument:
        """Return the document. Concurrent callers wait for one build."""
        if self._encoded is None:
            async with self._build_lock:
                if self._encoded is None:
                    self._encoded = await asyncio.to_thread(lambda: EncodedDocument.encode(self._make()))
        return self._encoded

    async def get_part(self, tags: Sequence[str]) -> EncodedDocument:
        """
        Return the part of the document with the operations of *tags*. The parts that were read last are stored.

        Raises:
            ValidationFailed: A tag does not exist.
        """
        whole, key = await self.get_encoded(), frozenset(tag.casefold() for tag in tags)
        part = self._parts.pop(key, None)
        if part is None:
            part = await asyncio.to_thread(lambda: EncodedDocument.encode(select_tags(cast("Schema", orjson.loads(whole.raw)), tags)))
        self._parts[key] = part
        while len(self._parts) > _MAX_STORED_PARTS:
            del self._parts[next(iter(self._parts))]
        return part


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceApi:
    """The routes of the API documentation. They exist only if the documentation is enabled."""

    document_cache: DocumentCache
    viewers: Viewers = field(default_factory=Viewers)

    def operations(self) -> list[Operation]:
        """Return the operations, with full paths."""
        operation = partial(Operation, method="GET", required_scope=READ_SCOPE, tags=("Documentation",))
        document = partial(
            operation,
            handler=self.get_document,
            operation_id="get_openapi_document",
            etag=True,
            summary="Describe the whole API in OpenAPI 3.0",
            responses={304: _NOT_MODIFIED},
            request_headers=("If-None-Match",),
        )
        page = partial(operation, map_error=_add_challenge, media_types=("text/html",))
        return [
            document(path="/api/docs/openapi"),
            document(path="/docs/openapi.json"),
            document(path="/openapi.json", map_error=_add_challenge),
            page(path="/api/docs", handler=self.get_swagger, operation_id="open_swagger", summary="Read the documentation in Swagger UI"),
            page(path="/api/docs/scalar", handler=self.get_scalar, operation_id="open_scalar", summary="Read the documentation in Scalar"),
            page(path="/api/docs/redoc", handler=self.get_redoc, operation_id="open_redoc", summary="Read the documentation in Redoc"),
            operation(path="/api/docs/static/{digest}/{name}", handler=self.get_static, operation_id="get_static_file", hidden=True,
                      summary="Return a file of the documentation pages", map_error=_add_challenge, rate_limited=False),
        ]  # fmt: skip

    async def get_document(self, request: Request, query: DocumentQuery) -> Response:
        """
        Return this document, or the part of it that belongs to some tags.

        A part is a complete document, for generators and models for which the whole is too large.
        """
        cache = self.document_cache
        edition = await (cache.get_encoded() if query.tags is None else cache.get_part(query.tags))
        headers = {"ETag": edition.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization, X-API-Key"}
        if _matches_etag(request.headers.get("if-none-match", ""), edition.etag):
            return Response(status_code=304, headers=headers)
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            return Response(edition.gzipped, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")
        return Response(edition.raw, headers=headers, media_type="application/json")

    async def get_swagger(self) -> Response:
        """Return the documentation as a page of Swagger UI, in which calls can be tried."""
        return await self._viewer_page("swagger")

    async def get_scalar(self) -> Response:
        """Return the documentation as a page of Scalar."""
        return await self._viewer_page("scalar")

    async def get_redoc(self) -> Response:
        """Return the documentation as a page of Redoc."""
        return await self._viewer_page("redoc")

    async def get_static(self, request: Request, digest: str, name: str) -> Response:
        """Return a file of the documentation pages. Its URL contains its digest, so browsers may cache it for ever."""
        asset = await asyncio.to_thread(self.viewers.find_asset, digest, name)
        if asset is None:
            raise RouteNotFound("The file does not exist. The pages under /api/docs link to the current files.")
        headers = {"Content-Type": asset.media_type, "Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if accepts_gzip(request.headers.get("accept-encoding", "")):
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


def _add_challenge(error: RookeryError, _body: object, _path: Mapping[str, str]) -> RookeryError:
    if error.status == 401:
        error.headers["WWW-Authenticate"] = _BASIC_CHALLENGE
    return error


def _matches_etag(header: str, etag: str) -> bool:
    """Return whether If-None-Match matches, by weak comparison (RFC 9110, 13.1.2)."""
    return header.strip() == "*" or etag.removeprefix("W/") in {tag.strip().removeprefix("W/") for tag in header.split(",")}
