"""The document as it is sent: made once a process, when it is first asked for, and packed then."""

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
    The document, ready to be sent.

    Attributes:
        etag: Of both forms: they say the same, so it is a weak one.
    """

    raw: bytes
    gzipped: bytes
    etag: str


class DocumentCache:
    """
    Makes the document, not at the start: that would make every start slower, and few servers are ever asked.

    Args:
        build: Returns the document; called once, in a thread, since others are served meanwhile.
    """

    def __init__(self, build: Callable[[], Schema]) -> None:
        self._make = build
        self._encoded: EncodedDocument | None = None
        self._build_lock = asyncio.Lock()

    async def get_encoded(self) -> EncodedDocument:
        """Return the document; who asks while it is being made waits for it."""
        if self._encoded is None:
            async with self._build_lock:
                if self._encoded is None:
                    self._encoded = await asyncio.to_thread(self._encode)
        return self._encoded

    def _encode(self) -> EncodedDocument:
        plain = orjson.dumps(self._make())
        return EncodedDocument(raw=plain, gzipped=gzip.compress(plain, mtime=0), etag=f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"')
