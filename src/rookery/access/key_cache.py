"""
Proof that an API key's secret is right, without running bcrypt at each request (D-20; notes on the platform, 3.3).

What is cached is only "this token matches this bcrypt hash", under a digest that means nothing outside this process.
Nothing about the key is: its row is read at every request, so whatever changes in it acts on the very next one.
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

_MAX_VERIFIED_KEYS = 50_000
_IDLE_TIMEOUT_S = 900.0
"""For memory's sake, not for safety's: a proof cannot go stale."""

_MAX_REJECTED_TOKENS = 10_000
_REJECTION_TTL_S = 30.0
_MAX_PENDING_CHECKS = 64
_MAX_FAILURES_PER_LOOKUP = 10
_MAX_FAILURES_PER_ADDRESS = 30
"""Wrong secrets a minute, from one neighbourhood: for one lookup, and for all. Never by lookup alone, which lists show."""

_CandidateHashes = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class VerifiedKey:
    """The token under some digest matches *key_hash*, the hash of the key *key_id*."""

    key_id: str
    key_hash: str
    used_at: float


@dataclass(frozen=True, slots=True)
class _RejectedToken:
    """The token under some digest matched none of *candidates*: ids and hashes."""

    candidates: _CandidateHashes
    expires_at_s: float


class FailureBudget:
    """How many wrong secrets an address may still send; full again a minute after the first."""

    def __init__(self) -> None:
        self._counts = LocalCounter()

    def require_budget(self, address: str, lookup: str, now: float) -> None:
        """
        Do nothing while there is budget left.

        Raises:
            RateLimited: There is none; the message tells nothing of the key.
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
            self._counts.hit(name, limit=limit, window_us=MINUTE_US, now_us=int(now * SECOND_US))


class VerifiedKeyCache:
    """Finds the row of an API key whose secret the caller knows."""

    def __init__(self, db: Database, bcrypt: Bcrypt, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._bcrypt = bcrypt
        self._monotonic = monotonic
        self._pepper = os.urandom(32)
        self._verified_keys: OrderedDict[bytes, VerifiedKey] = OrderedDict()
        self._rejected_tokens: OrderedDict[bytes, _RejectedToken] = OrderedDict()
        self._pending_checks: dict[bytes, asyncio.Task[VerifiedKey | None]] = {}
        self._lookup_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._budget = FailureBudget()

    async def find_row(self, token: bytes, address: str) -> Row | None:
        """
        Return the row, as it is now, of the API key whose plaintext is *token*; None if there is none.

        Args:
            token: Of the form of an API key.
            address: The client's, which pays for wrong secrets.

        Raises:
            RateLimited: Too many wrong secrets came from there; a key proven before is not held up by that.
            EngineUnavailable: Too many unknown keys are being checked; or the record store is down.
        """
        digest = hmac.digest(self._pepper, token, "sha256")
        proof = self._verified_keys.get(digest)
        if proof is not None:
            row = await self._find_verified(digest, proof)
            if row is not None:
                return row
        return await self._verify(digest, token, address)

    def close(self) -> None:
        """Stop what is being checked."""
        for flight in self._pending_checks.values():
            flight.cancel()

    async def _find_verified(self, digest: bytes, proof: VerifiedKey) -> Row | None:
        now = self._monotonic()
        if now - proof.used_at <= _IDLE_TIMEOUT_S:
            key_id = proof.key_id
            row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, key_id))
            if row is not None and _has_same_hash(row, proof.key_hash):
                proof.used_at = now
                if digest in self._verified_keys:
                    self._verified_keys.move_to_end(digest)
                return row
        self._verified_keys.pop(digest, None)
        return None

    async def _verify(self, digest: bytes, token: bytes, address: str) -> Row | None:
        lookup = get_lookup(token)
        seen = _candidate_hashes(await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "api", lookup)))
        if not seen or self._is_rejected(digest, seen):
            return None
        landed = self._verified_keys.get(digest)  # while we looked the key up: another's check is not made again
        if landed is not None:
            row = await self._find_verified(digest, landed)
            if row is not None:
                return row
        client = client_network(address)
        self._budget.require_budget(client, lookup, self._monotonic())
        flight = self._pending_checks.get(digest)
        if flight is None:
            if len(self._pending_checks) >= _MAX_PENDING_CHECKS:
                reason = "too many new keys are being checked at once"
                raise EngineUnavailable("keys", reason, retry_after_s=1)
            flight = self._pending_checks[digest] = asyncio.create_task(self._run_bcrypt(digest, token, lookup, client))
            flight.add_done_callback(lambda done: self._on_check_done(digest, done))
        # Shielded: the others who wait for it must not suffer when the first one hangs up.
        proof = await asyncio.shield(flight)
        if proof is None:
            return None
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, proof.key_id))
        return row if row is not None and _has_same_hash(row, proof.key_hash) else None

    async def _run_bcrypt(self, digest: bytes, token: bytes, lookup: str, client: str) -> VerifiedKey | None:
        """Run bcrypt on the candidates, one at a time for each lookup, so that one lookup cannot take all threads."""
        lock = self._lookup_locks.setdefault(lookup, asyncio.Lock())
        async with lock:
            self._budget.require_budget(client, lookup, self._monotonic())
            seen = _candidate_hashes(await self._db.lookup(lambda tx: key_store.list_rows_by_lookup(tx, "api", lookup)))
            for key_id, key_hash in seen:
                if await self._bcrypt.matches(token, key_hash):
                    return await self._store(digest, VerifiedKey(key_id, key_hash, self._monotonic()))
            now = self._monotonic()
            self._budget.record_failure(client, lookup, now)
            self._rejected_tokens[digest] = _RejectedToken(seen, now + _REJECTION_TTL_S)
            if len(self._rejected_tokens) > _MAX_REJECTED_TOKENS:
                self._rejected_tokens.popitem(last=False)
            return None

    async def _store(self, digest: bytes, proof: VerifiedKey) -> VerifiedKey | None:
        """Keep *proof* if the row is still the one it was made of: it may have gone while bcrypt ran."""
        row = await self._db.lookup(lambda tx: key_store.find_row_by_id(tx, proof.key_id))
        if row is None or not _has_same_hash(row, proof.key_hash):
            return None
        self._verified_keys[digest] = proof
        oldest = next(iter(self._verified_keys.values()))
        while len(self._verified_keys) > _MAX_VERIFIED_KEYS or proof.used_at - oldest.used_at > _IDLE_TIMEOUT_S:
            self._verified_keys.popitem(last=False)
            oldest = next(iter(self._verified_keys.values()))
        return proof

    def _is_rejected(self, digest: bytes, seen: _CandidateHashes) -> bool:
        refusal = self._rejected_tokens.get(digest)
        if refusal is None:
            return False
        if refusal.candidates == seen and self._monotonic() < refusal.expires_at_s:
            return True
        del self._rejected_tokens[digest]
        return False

    def _on_check_done(self, digest: bytes, flight: asyncio.Task[VerifiedKey | None]) -> None:
        self._pending_checks.pop(digest, None)
        if not flight.cancelled():
            flight.exception()  # Looked at, so that a flight nobody waits for any more is not reported as lost.


def _has_same_hash(row: Row, key_hash: str) -> bool:
    return hmac.compare_digest(row.text("key_hash"), key_hash)


def _candidate_hashes(rows: list[Row]) -> _CandidateHashes:
    return tuple((row.text("id"), row.text("key_hash")) for row in rows)


def _budget_limits(address: str, lookup: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (f"{address} {lookup}", _MAX_FAILURES_PER_LOOKUP), (address, _MAX_FAILURES_PER_ADDRESS)
