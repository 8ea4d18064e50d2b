"""bcrypt off the event loop, with few threads and a bounded queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import bcrypt

from rookery.access.credentials import MAX_TOKEN_LENGTH
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret

T = TypeVar("T")
V = TypeVar("V")

DEFAULT_COST = 10
"""The minimum of OWASP; 70 ms measured. A higher cost adds no security to a key of 190 random bits (notes, 3.3)."""

ALLOWED_COSTS = range(4, 15)
"""Accepted costs of stored hashes: a stored cost of 31 would block a thread for days."""

_THREAD_COUNT = 2
_MAX_QUEUED = 64
_RETRY_AFTER_S = 1
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")


class Bcrypt:
    """
    A thread pool that hashes and verifies secrets. bcrypt releases the interpreter lock meanwhile.

    The threads start at the first use, so that the process may fork before. Every method raises `EngineUnavailable`
    if the queue is full.
    """

    def __init__(self, *, cost: int = DEFAULT_COST, threads: int = _THREAD_COUNT, queue: int = _MAX_QUEUED) -> None:
        self._cost = cost
        self._threads = threads
        self._capacity = threads + queue
        self._pending = 0
        self._pool: ThreadPoolExecutor | None = None
        self.run_count = 0
        """Number of bcrypt verifications since the start; for metrics and tests."""

    async def hash(self, secret: Secret) -> str:
        """Return the bcrypt hash of the whole plaintext, with a new salt."""
        return (await self._run(_hash, secret.reveal().encode("ascii"), self._cost)).decode("ascii")

    async def matches(self, token: bytes, key_hash: str) -> bool:
        """Return whether *token* matches *key_hash*. A malformed hash, or one with a cost out of range, matches nothing."""
        form = _HASH.fullmatch(key_hash)
        if form is None or int(form[1]) not in ALLOWED_COSTS or len(token) > MAX_TOKEN_LENGTH:
            return False
        self.run_count += 1
        return await self._run(_check, token, key_hash.encode("ascii"))

    @property
    def pending_count(self) -> int:
        """Number of secrets being hashed or verified, or waiting for it."""
        return self._pending

    def is_full(self) -> bool:
        """Return whether the queue is full."""
        return self._pending >= self._capacity

    def close(self) -> None:
        """Wait for the running calls, cancel the queued ones and stop the threads. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)

    async def _run(self, work: Callable[[bytes, V], T], secret: bytes, other: V) -> T:
        if self.is_full():
            reason = "too many new keys are being verified at once"
            raise EngineUnavailable("keys", reason, retry_after_s=_RETRY_AFTER_S)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="bcrypt")
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, secret, other)
        finally:
            self._pending -= 1


def _hash(secret: bytes, cost: int) -> bytes:
    return bcrypt.hashpw(secret, bcrypt.gensalt(cost))


def _check(token: bytes, key_hash: bytes) -> bool:
    try:
        return bcrypt.checkpw(token, key_hash)
    except ValueError:
        return False
