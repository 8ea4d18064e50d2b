"""The encoded OpenAPI document, built once per process on the first request."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from rookery.reference.downgrade import Schema


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


class DocumentCache:
    """
    A cache that builds the document on the first request, so that the start stays fast.

    Args:
        build: Returns the document. Called once, in a thread, so that other requests are served meanwhile.
    """

    def __init__(self, build: Callable[[], Schema]) -> None:
        self._make = build
        self._encoded: EncodedDocument | None = None
        self._build_lock = asyncio.Lock()

    async def get_encoded(self) -> EncodedDocument:
        """Return the document. Concurrent callers wait for one build."""
        if self._encoded is None:
            async with self._build_lock:
                if self._encoded is None:
                    self._encoded = await asyncio.to_thread(self._encode)
        return self._encoded

    def _encode(self) -> EncodedDocument:
        raw = orjson.dumps(self._make())
        return EncodedDocument(raw=raw, gzipped=gzip.compress(raw, mtime=0), etag=f'W/"{hashlib.sha256(raw).hexdigest()[:32]}"')
