"""Identifiers: UUIDv7 for records, and random texts with a prefix for the rest."""

from __future__ import annotations

import os
import re
import secrets
import string
import time
import uuid
from collections.abc import Callable

IdFactory = Callable[[], str]
"""Returns a new unique id. Tests pass their own."""

ALPHANUMERIC = string.ascii_letters + string.digits

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RANDOM_BITS = (1 << 62) - 1
_BLOCK_SIZE = 128
"""Random numbers that are drawn at once."""


class _RandomNumbers:
    """
    Random numbers of the system, drawn in blocks: `os.urandom` releases the GIL and must then wait for other threads to take it back.

    Safe in threads. A fork draws its own block.
    """

    def __init__(self) -> None:
        self._numbers: list[bytes] = []
        self._pid = 0

    def draw(self) -> bytes:
        """Return 8 random bytes that no other call returns."""
        if self._pid != os.getpid():
            self._numbers, self._pid = [], os.getpid()
        try:
            return self._numbers.pop()
        except IndexError:
            block = os.urandom(8 * _BLOCK_SIZE)
            first, *others = (block[start : start + 8] for start in range(0, len(block), 8))
            self._numbers.extend(others)
            return first


_random_numbers = _RandomNumbers()


def uuid7() -> str:
    """
    Return a UUID of version 7 (RFC 9562): 48 bits of Unix milliseconds, 12 bits of their fraction, 62 random bits.

    Ids created by one process sort by time if at least a quarter of a microsecond lies between them.
    """
    millis, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    tail = int.from_bytes(_random_numbers.draw(), "big") & _RANDOM_BITS
    return str(uuid.UUID(int=(millis & 0xFFFFFFFFFFFF) << 80 | 7 << 76 | fraction << 64 | 2 << 62 | tail))


def is_uuid(text: str) -> bool:
    """Return whether *text* is a UUID in lower case with hyphens."""
    return _UUID.fullmatch(text) is not None


def random_text(length: int, alphabet: str = ALPHANUMERIC) -> str:
    """Return *length* characters of *alphabet*, drawn uniformly from the system's random source."""
    return "".join(secrets.choice(alphabet) for _ in range(length))


def new_request_id() -> str:
    """Return `req_` and 20 random characters. They need not be unguessable."""
    return "req_" + os.urandom(10).hex()
