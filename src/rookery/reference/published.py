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
class Edition:
    """
    The document, ready to be sent.

    Attributes:
        etag: Of both forms: they say the same, so it is a weak one.
    """

    plain: bytes
    packed: bytes
    etag: str


class Published:
    """
    Makes the document, not at the start: that would make every start slower, and few servers are ever asked.

    Args:
        make: Returns the document; called once, in a thread, since others are served meanwhile.
    """

    def __init__(self, make: Callable[[], Schema]) -> None:
        self._make = make
        self._edition: Edition | None = None
        self._making = asyncio.Lock()

    async def edition(self) -> Edition:
        """Return the document; who asks while it is being made waits for it."""
        if self._edition is None:
            async with self._making:
                if self._edition is None:
                    self._edition = await asyncio.to_thread(self._made)
        return self._edition

    def _made(self) -> Edition:
        plain = orjson.dumps(self._make())
        return Edition(plain=plain, packed=gzip.compress(plain, mtime=0), etag=f'W/"{hashlib.sha256(plain).hexdigest()[:32]}"')
