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

from rookery.access.credentials import lookup_of
from rookery.access.errors import RateLimited
from rookery.access.hashing import Bcrypt
from rookery.access.limits import MINUTE, SECOND, LocalCounter
from rookery.access.networks import neighbourhood
from rookery.access.store import keys as key_store
from rookery.kernel.db import Database, Row
from rookery.kernel.errors import EngineUnavailable

_PROOFS = 50_000
_IDLE_S = 900.0
"""For memory's sake, not for safety's: a proof cannot go stale."""

_REFUSALS = 10_000
_REFUSED_S = 30.0
_FLIGHTS = 64
_BUDGET_PAIR = 10
_BUDGET_ADDRESS = 30
"""Wrong secrets a minute, from one neighbourhood: for one lookup, and for all. Never by lookup alone, which lists show."""

_Seen = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Proof:
    """The token under some digest matches *key_hash*, the hash of the key *key_id*."""

    key_id: str
    key_hash: str
    used_at: float


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The token under some digest matched none of *seen*: ids and hashes."""

    seen: _Seen
    until: float


class FailureBudget:
    """How many wrong secrets an address may still send; full again a minute after the first."""

    def __init__(self) -> None:
        self._counts = LocalCounter()

    def check(self, address: str, lookup: str, now: float) -> None:
        """
        Do nothing while there is budget left.

        Raises:
            RateLimited: There is none; the message tells nothing of the key.
        """
        micros = int(now * SECOND)
        for name, limit in _budgets(address, lookup):
            count = self._counts.peek(name, window=MINUTE, now=micros)
            if count.used >= limit:
                wait_s = max(1, -((micros - count.started_at - MINUTE) // SECOND))
                raise RateLimited(wait_s, "Too many wrong keys came from this address.")

    def charge(self, address: str, lookup: str, now: float) -> None:
        """Count one wrong secret."""
        for name, limit in _budgets(address, lookup):
            self._counts.hit(name, limit=limit, window=MINUTE, now=int(now * SECOND))


class Proofs:
    """Finds the row of an API key whose secret the caller knows."""

    def __init__(self, db: Database, bcrypt: Bcrypt, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._bcrypt = bcrypt
        self._monotonic = monotonic
        self._pepper = os.urandom(32)
        self._proofs: OrderedDict[bytes, Proof] = OrderedDict()
        self._refusals: OrderedDict[bytes, _Refusal] = OrderedDict()
        self._flights: dict[bytes, asyncio.Task[Proof | None]] = {}
        self._running: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._budget = FailureBudget()

    async def row_of(self, token: bytes, address: str) -> Row | None:
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
        proof = self._proofs.get(digest)
        if proof is not None:
            row = await self._still_proven(digest, proof)
            if row is not None:
                return row
        return await self._prove(digest, token, address)

    def close(self) -> None:
        """Stop what is being checked."""
        for flight in self._flights.values():
            flight.cancel()

    async def _still_proven(self, digest: bytes, proof: Proof) -> Row | None:
        now = self._monotonic()
        if now - proof.used_at <= _IDLE_S:
            key_id = proof.key_id
            row = await self._db.quick(lambda tx: key_store.by_id(tx, key_id))
            if row is not None and _same(row, proof.key_hash):
                proof.used_at = now
                if digest in self._proofs:
                    self._proofs.move_to_end(digest)
                return row
        self._proofs.pop(digest, None)
        return None

    async def _prove(self, digest: bytes, token: bytes, address: str) -> Row | None:
        lookup = lookup_of(token)
        seen = _seen(await self._db.quick(lambda tx: key_store.by_lookup(tx, "api", lookup)))
        if not seen or self._was_refused(digest, seen):
            return None
        landed = self._proofs.get(digest)  # while we looked the key up: another's check is not made again
        if landed is not None:
            row = await self._still_proven(digest, landed)
            if row is not None:
                return row
        client = neighbourhood(address)
        self._budget.check(client, lookup, self._monotonic())
        flight = self._flights.get(digest)
        if flight is None:
            if len(self._flights) >= _FLIGHTS:
                reason = "too many new keys are being checked at once"
                raise EngineUnavailable("keys", reason, retry_after_s=1)
            flight = self._flights[digest] = asyncio.create_task(self._fly(digest, token, lookup, client))
            flight.add_done_callback(lambda done: self._landed(digest, done))
        # Shielded: the others who wait for it must not suffer when the first one hangs up.
        proof = await asyncio.shield(flight)
        if proof is None:
            return None
        row = await self._db.quick(lambda tx: key_store.by_id(tx, proof.key_id))
        return row if row is not None and _same(row, proof.key_hash) else None

    async def _fly(self, digest: bytes, token: bytes, lookup: str, client: str) -> Proof | None:
        """Run bcrypt on the candidates, one at a time for each lookup, so that one lookup cannot take all threads."""
        lock = self._running.setdefault(lookup, asyncio.Lock())
        async with lock:
            self._budget.check(client, lookup, self._monotonic())
            seen = _seen(await self._db.quick(lambda tx: key_store.by_lookup(tx, "api", lookup)))
            for key_id, key_hash in seen:
                if await self._bcrypt.matches(token, key_hash):
                    return await self._store(digest, Proof(key_id, key_hash, self._monotonic()))
            now = self._monotonic()
            self._budget.charge(client, lookup, now)
            self._refusals[digest] = _Refusal(seen, now + _REFUSED_S)
            if len(self._refusals) > _REFUSALS:
                self._refusals.popitem(last=False)
            return None

    async def _store(self, digest: bytes, proof: Proof) -> Proof | None:
        """Keep *proof* if the row is still the one it was made of: it may have gone while bcrypt ran."""
        row = await self._db.quick(lambda tx: key_store.by_id(tx, proof.key_id))
        if row is None or not _same(row, proof.key_hash):
            return None
        self._proofs[digest] = proof
        oldest = next(iter(self._proofs.values()))
        while len(self._proofs) > _PROOFS or proof.used_at - oldest.used_at > _IDLE_S:
            self._proofs.popitem(last=False)
            oldest = next(iter(self._proofs.values()))
        return proof

    def _was_refused(self, digest: bytes, seen: _Seen) -> bool:
        refusal = self._refusals.get(digest)
        if refusal is None:
            return False
        if refusal.seen == seen and self._monotonic() < refusal.until:
            return True
        del self._refusals[digest]
        return False

    def _landed(self, digest: bytes, flight: asyncio.Task[Proof | None]) -> None:
        self._flights.pop(digest, None)
        if not flight.cancelled():
            flight.exception()  # Looked at, so that a flight nobody waits for any more is not reported as lost.


def _same(row: Row, key_hash: str) -> bool:
    return hmac.compare_digest(row.text("key_hash"), key_hash)


def _seen(rows: list[Row]) -> _Seen:
    return tuple((row.text("id"), row.text("key_hash")) for row in rows)


def _budgets(address: str, lookup: str) -> tuple[tuple[str, int], tuple[str, int]]:
    return (f"{address} {lookup}", _BUDGET_PAIR), (address, _BUDGET_ADDRESS)
