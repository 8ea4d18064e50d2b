"""
A cache of verified API keys, which saves a bcrypt run per request.

It caches only "this token matches this bcrypt hash", under a digest that is useless outside this process. It caches nothing
about the key: the row is read at every request, so a change to it takes effect with the next request.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from rookery.access.credentials import get_lookup
from rookery.access.errors import RateLimited
from rookery.access.hashing import Bcrypt
from rookery.access.networks import client_network
from rookery.access.rate_limits import MINUTE_US, SECOND_US, LocalCounter
from rookery.access.store import keys as key_store
from rookery.kernel.db import Database, Row
from rookery.kernel.errors import EngineUnavailable

_IDLE_TIMEOUT_S = 900.0
"""Limits memory, not risk: a verification cannot become stale."""

_REJECTION_TTL_S = 30.0
_MAX_PENDING_CHECKS = 64
_MAX_FAILURES_PER_LOOKUP = 10
_MAX_FAILURES_PER_ADDRESS = 30
"""Wrong secrets per minute and client network, for one lookup and in total. Never per lookup alone, since lists show lookups."""

_CandidateHashes = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCacheLimits:
    """
    Maximum sizes of the cache.

    Attributes:
        max_verified_keys: Verified tokens. The least recently used one is evicted first.
        max_rejected_tokens: Rejected tokens. The oldest one is evicted first.
    """

    max_verified_keys: int = 50_000
    max_rejected_tokens: int = 10_000


@dataclass(slots=True)
class VerifiedKey:
    """A verified token: it matches *key_hash*, the hash of the key *key_id*."""

    key_id: str
    key_hash: str
    used_at: float


@dataclass(frozen=True, slots=True)
class _RejectedToken:
    """A rejected token: it matched none of *candidates* (ids and hashes)."""

    candidates: _CandidateHashes
    expires_at_s: float


class FailureBudget:
    """The limit of wrong secrets per address, reset one minute after the first."""

    def __init__(self) -> None:
        self._counts = LocalCounter()

    def require_budget(self, address: str, lookup: str, now: float) -> None:
        """
        Raise an error if the limit is reached.

        Raises:
            RateLimited: The address sent too many wrong secrets. The message reveals nothing about the key.
        """
        micros = int(now * SECOND_US)
        for name, limit in _budget_limits(address, lookup):
            count = self._counts.peek(name, window_us=MINUTE_US, now_us=micros)
            if count.used >= limit:
                wait_s = max(1, -((micros - count.started_at_us - MINUTE_US) // SECOND_US))
                raise RateLimited(wait_s, "Too many wrong keys came from this address.")

    def record_failure(self, address: str, lookup: str, now: float) -> None:
        """Count one wrong secret."""
        for name, limit in _budget_limits(address, lookup):
            self._counts.spend(name, limit=limit, window_us=MINUTE_US, now_us=int(now * SECOND_US))


class VerifiedKeyCache:
    """
    Finds the row of an API key after verifying its secret.

    Args:
        monotonic: The clock of time-outs.
        limits: Maximum sizes of the cache.
    """

    def __init__(
        self, db: Database, bcrypt: Bcrypt, *, monotonic: Callable[[], float] = time.monotonic, limits: KeyCacheLimits | None = None
    ) -> None:
        self._db = db
        self._bcrypt = bcrypt
        self._monotonic = monotonic
        self._limits = limits or KeyCacheLimits()
        self._pepper = os.urandom(32)
        self._verified_keys: OrderedDict[bytes, VerifiedKey] = OrderedDict()
        self._rejected_tokens: OrderedDict[bytes, _RejectedToken] = OrderedDict()
        self._pending_checks: dict[bytes, asyncio.Task[VerifiedKey | None]] = {}
        self._lookup_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._budget = FailureBudget()

    async def find_row(self, token: bytes, address: str) -> Row | None:
        """
        Return the current row of the API key whose plaintext is *token*; None if no key matches.

        Args:
            token: A token in the format of an API key.
            address: The client's address, to which wrong secrets are charged.

        Raises:
            RateLimited: The address sent too many wrong secrets. Keys in the cache are not affected.
            EngineUnavailable: Too many new keys are being verified, or the record store is unavailable.
        """
        digest = hmac.digest(self._pepper, token, "sha256")
        verified_key = self._verified_keys.get(digest)
        if verified_key is not None:
            row = await self._find_verified(digest, verified_key)
            if row is not None:
                return row
        return await self._verify(digest, token, address)

    def close(self) -> None:
        """Cancel the running verifications."""
        for check in self._pending_checks.values():
            check.cancel()

    async def _find_verified(self, digest: bytes, verified_key: VerifiedKey) -> Row | None:
        now = self._monotonic()
        if now - verified_key.used_at <= _IDLE_TIMEOUT_S:
            key_id = verified_key.key_id
            row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, key_id))
            if row is not None and _has_same_hash(row, verified_key.key_hash):
                verified_key.used_at = now
                if digest in self._verified_keys:
                    self._verified_keys.move_to_end(digest)
                return row
        self._verified_keys.pop(digest, None)
        return None

    async def _verify(self, digest: bytes, token: bytes, address: str) -> Row | None:
        lookup = get_lookup(token)
        candidates = _candidate_hashes(await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "api", lookup)))
        if not candidates or self._is_rejected(digest, candidates):
            return None
        verified = self._verified_keys.get(digest)  # Another request may have verified the token during the database read.
        if verified is not None:
            row = await self._find_verified(digest, verified)
            if row is not None:
                return row
        client = client_network(address)
        self._budget.require_budget(client, lookup, self._monotonic())
        task = self._pending_checks.get(digest)
        if task is None:
            if len(self._pending_checks) >= _MAX_PENDING_CHECKS:
                reason = "too many new keys are being verified at once"
                raise EngineUnavailable("keys", reason, retry_after_s=1)
            task = self._pending_checks[digest] = asyncio.create_task(self._run_bcrypt(digest, token, lookup, client))
            task.add_done_callback(lambda done: self._on_check_done(digest, done))
        # Shielded, so that the other requests waiting for this check go on if the first client disconnects.
        verified_key = await asyncio.shield(task)
        if verified_key is None:
            return None
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, verified_key.key_id))
        return row if row is not None and _has_same_hash(row, verified_key.key_hash) else None

    async def _run_bcrypt(self, digest: bytes, token: bytes, lookup: str, client: str) -> VerifiedKey | None:
        """Run bcrypt on the candidates, one run at a time per lookup, so that one lookup cannot occupy all threads."""
        lock = self._lookup_locks.setdefault(lookup, asyncio.Lock())
        async with lock:
            self._budget.require_budget(client, lookup, self._monotonic())
            candidates = _candidate_hashes(await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "api", lookup)))
            for key_id, key_hash in candidates:
                if await self._bcrypt.matches(token, key_hash):
                    return await self._store(digest, VerifiedKey(key_id, key_hash, self._monotonic()))
            now = self._monotonic()
            self._budget.record_failure(client, lookup, now)
            self._rejected_tokens[digest] = _RejectedToken(candidates, now + _REJECTION_TTL_S)
            if len(self._rejected_tokens) > self._limits.max_rejected_tokens:
                self._rejected_tokens.popitem(last=False)
            return None

    async def _store(self, digest: bytes, verified_key: VerifiedKey) -> VerifiedKey | None:
        """Cache *verified_key* unless the key was deleted or changed while bcrypt ran."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, verified_key.key_id))
        if row is None or not _has_same_hash(row, verified_key.key_hash):
            return None
        self._verified_keys[digest] = verified_key
        oldest = next(iter(self._verified_keys.values()))
        while len(self._verified_keys) > self._limits.max_verified_keys or verified_key.used_at - oldest.used_at > _IDLE_TIMEOUT_S:
            self._verified_keys.popitem(last=False)
            oldest = next(iter(self._verified_keys.values()))
        return verified_key

    def _is_rejected(self, digest: bytes, candidates: _CandidateHashes) -> bool:
        rejection = self._rejected_tokens.get(digest)
        if rejection is None:
            return False
        if rejection.candidates == candidates and self._monotonic() < rejection.expires_at_s:
            return True
        del self._rejected_tokens[digest]
        return False

    def _on_check_done(self, digest: bytes, task: asyncio.Task[VerifiedKey | None]) -> None:
        self._pending_checks.pop(digest, None)
        if not task.cancelled():
            task.exception()  # Retrieve the exception, so that asyncio does not log it if no request waits any longer.


def _has_same_hash(row: Row, key_hash: str) -> bool:
    return hmac.compare_digest(row.text("key_hash"), key_hash)


def _candidate_hashes(rows: list[Row]) -> _CandidateHashes:
    return tuple((row.text("id"), row.text("key_hash")) for row in rows)


def _budget_limits(address: str, lookup: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (f"{address} {lookup}", _MAX_FAILURES_PER_LOOKUP), (address, _MAX_FAILURES_PER_ADDRESS)
