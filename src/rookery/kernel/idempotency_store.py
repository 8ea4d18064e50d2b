"""
The store of responses to requests with an Idempotency-Key, so that a repeated request is answered and not executed again.

There is one row per request. The row is reserved under a lease before the request is executed. The transaction that does the work
stores the response in it, so a crash leaves both or neither. The row is kept for a day. Its content is encrypted, because a response
may repeat what the caller wrote.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, cast

import orjson
import structlog
from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text, bindparam, delete, select, update

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Row, Tx, metadata, purge_tables, upsert
from rookery.kernel.db.leases import Leases, make_worker_id
from rookery.kernel.errors import OUTAGES, Conflict, RookeryError
from rookery.kernel.ids import IdFactory
from rookery.kernel.logs import FailureLog
from rookery.kernel.sealing import SealContext, SealedColumn, Sealer

_log = structlog.stdlib.get_logger("rookery.http")

RETENTION = timedelta(hours=24)
LEASE = timedelta(seconds=60)
"""Time after which a reservation expires when its process has exited. It is renewed well before while the request is in progress."""

_RETRY_AFTER_S = 1
_MIN_RELEASE_DELAY_S, _MAX_RELEASE_DELAY_S = 0.1, 2.0
"""Delays between attempts to release a claim while the record store is unavailable."""
_SEAL_PURPOSE = "kept answer"
_FINGERPRINT_BYTES = 32
_DELETE_BATCH_SIZE = 500
_MAX_DELETE_BATCHES = 10_000

stored_responses = Table(
    "kept_answers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("owner", Text),
    Column("until", BigInteger, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("ix_kept_answers_until", "until"),
    Index("ix_kept_answers_workspace_id", "workspace_id"),
)
SEALED_COLUMN = SealedColumn(stored_responses, "sealed", purpose=_SEAL_PURPOSE)

# `owner` is the worker that executes the request, and null once the response is stored. `until` is the end of the lease, then of storage.
_LEASES = Leases(stored_responses, owner=stored_responses.c.owner, until=stored_responses.c.until)
_RESERVE = upsert(stored_responses, index_elements=["id"], returning=[stored_responses.c.id])
_SELECT_LOCKED = select(stored_responses).where(stored_responses.c.id == bindparam("of_id")).with_for_update()
_TAKE_OVER = (
    update(stored_responses)
    .where(stored_responses.c.id == bindparam("of_id"))
    .values(workspace_id=bindparam("workspace"), owner=bindparam("me"), until=bindparam("end"), sealed=bindparam("text"))
)
_STORE = update(stored_responses).where(_LEASES.is_held).values(owner=None, until=bindparam("end"), sealed=bindparam("text"))
_IS_STORED = (
    stored_responses.c.id == bindparam("of_id"),
    stored_responses.c.owner.is_(None),
    stored_responses.c.until == bindparam("stored_until"),
)
_REPLACE = update(stored_responses).where(*_IS_STORED).values(sealed=bindparam("text"))
_RELEASE = delete(stored_responses).where(_LEASES.is_held)
_SELECT_EXPIRED = select(stored_responses.c.id).where(stored_responses.c.until <= bindparam("now")).limit(bindparam("at_most"))
_DELETE_EXPIRED = delete(stored_responses).where(
    stored_responses.c.id.in_(bindparam("ids", expanding=True)), stored_responses.c.until <= bindparam("now")
)

StoredBodyKind = Literal["whole", "secret", "large", "made"]


class IdempotencyMismatch(RookeryError):
    """The Idempotency-Key was used with another body or query; nothing was done."""

    status, code = 422, "idempotency_mismatch"


class RequestInProgress(Conflict):
    """A request with this Idempotency-Key is running."""

    code = "idempotency_in_progress"
    fields = "header `Retry-After`"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """
    A request with an Idempotency-Key.

    Attributes:
        id: A hash of the API key, method, path and Idempotency-Key.
        fingerprint: A SHA-256 hash of the query and the body, equal only for equal requests.
    """

    id: str
    workspace_id: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The exclusive right to execute a request until the lease expires."""

    request: IdempotentRequest
    worker_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """
    A response in its stored form.

    Attributes:
        body_kind: `whole` if *body* is the whole response. Otherwise the body is missing, because the response contains a secret
            (`secret`), is too large (`large`), or is built again from the id of the created object (`made`).
        created_ids: Ids of the created objects, if *body_kind* is `secret` or `made`.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    body_kind: StoredBodyKind = "whole"
    created_ids: tuple[str, ...] = ()


def fingerprint_request(
    *, key_id: str, workspace_id: int, method: str, path: str, idempotency_key: str, query: bytes, body: bytes
) -> IdempotentRequest:
    """Return the request identified by *idempotency_key*; *path* as sent, *body* in a form that is equal for equal bodies."""
    # Only the path, which comes last, can contain a NUL, so different requests never have the same text.
    scope = f"{key_id}\0{method}\0{idempotency_key}\0{path}".encode("utf-8", "surrogatepass")
    fingerprint = hashlib.sha256(hashlib.sha256(query).digest() + body).digest()
    return IdempotentRequest(id=hashlib.sha256(scope).hexdigest(), workspace_id=workspace_id, fingerprint=fingerprint)


class IdempotencyStore:
    """A store that reserves requests and keeps their responses, correct across all processes on one record store."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock
        self._ids = ids
        self._releases = set[asyncio.Task[None]]()
        self._not_freed = FailureLog(_log, "idempotency.not_freed")

    def make_claim(self, request: IdempotentRequest) -> IdempotencyClaim:
        """Return what `claim` will return if it succeeds, to release it if nobody knows whether it did."""
        return IdempotencyClaim(request, make_worker_id(self._ids()))

    async def claim(self, request: IdempotentRequest, *, claim: IdempotencyClaim | None = None) -> IdempotencyClaim | StoredResponse:
        """
        Return the response stored for *request*, or an exclusive claim to execute it.

        Args:
            claim: The claim to make; by default a new one.

        Raises:
            IdempotencyMismatch: The Idempotency-Key was used for another request.
            RequestInProgress: Another worker holds the claim.
            DecryptionFailed: The stored response cannot be decrypted, or a new row cannot be encrypted.
        """
        claim, now = claim or self.make_claim(request), self._clock()

        def work(tx: Tx) -> IdempotencyClaim | StoredResponse:
            end, text = to_micros(now + LEASE), self._seal(tx, request, b"")
            new = {"id": request.id, "workspace_id": request.workspace_id, "owner": claim.worker_id, "until": end, "sealed": text}
            if tx.fetch_one(_RESERVE, new) is not None:
                return claim
            row = tx.fetch_one(_SELECT_LOCKED, {"of_id": request.id})
            if row is None:  # released between the two statements, which is possible on PostgreSQL
                raise _in_progress_error()
            # No work of a process that exited without a stored response was committed.
            if _LEASES.is_over(tx, row, now=now):
                tx.execute(
                    _TAKE_OVER, {"of_id": request.id, "workspace": request.workspace_id, "me": claim.worker_id, "end": end, "text": text}
                )
                return claim
            return self._read_row(row, request)

        return await self._db.write(work)

    async def renew(self, claim: IdempotencyClaim) -> bool:
        """Extend the lease of a claim. Return false if another worker has taken it over."""
        until = self._clock() + LEASE
        return await self._db.write(lambda tx: _LEASES.renew(tx, claim.worker_id, until=until, ids=[claim.request.id])) == 1

    async def store_separately(self, claim: IdempotencyClaim, response: StoredResponse) -> bool:
        """Store the response of a claimed request for a day. Return false if the claim was lost."""
        end, text = to_micros(self._clock() + RETENTION), _encode(response)

        def work(tx: Tx) -> int:
            sealed = self._seal(tx, claim.request, text)
            return tx.execute(_STORE, {**_held_by(claim), "end": end, "text": sealed})

        return await self._db.write(work) == 1

    def store_in_transaction(self, tx: Tx, claim: IdempotencyClaim, response: StoredResponse) -> int:
        """
        Store the response in the transaction *tx* that does the work; return the time of its deletion in microseconds.

        Raises:
            RequestInProgress: Another process has taken over the claim. *tx* must be rolled back.
        """
        end = to_micros(self._clock() + RETENTION)
        sealed = self._seal(tx, claim.request, _encode(response))
        if tx.execute(_STORE, {**_held_by(claim), "end": end, "text": sealed}) != 1:
            raise _in_progress_error()
        return end

    async def replace(self, request: IdempotentRequest, response: StoredResponse, *, until: int) -> bool:
        """Replace the response that `store_in_transaction` stored *until* then. Return false if it no longer exists."""
        text = _encode(response)

        def work(tx: Tx) -> int:
            return tx.execute(_REPLACE, {"of_id": request.id, "stored_until": until, "text": self._seal(tx, request, text)})

        return await self._db.write(work) == 1

    async def release(self, claim: IdempotencyClaim) -> None:
        """Release a claim. The request was not executed and may be tried again."""
        await self._db.write(lambda tx: tx.execute(_RELEASE, _held_by(claim)))

    def release_later(self, claim: IdempotencyClaim) -> None:
        """Release a claim, if it was made and no response is stored, as soon as the record store is available."""
        task = asyncio.create_task(self._release_when_available(claim), name="idempotency-release")
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def close(self) -> None:
        """Give up claims that could not be released yet. Their leases end."""
        for task in self._releases:
            task.cancel()
        await asyncio.gather(*self._releases, return_exceptions=True)

    async def _release_when_available(self, claim: IdempotencyClaim) -> None:
        delay_s, deadline_s = _MIN_RELEASE_DELAY_S, time.monotonic() + LEASE.total_seconds()
        while time.monotonic() < deadline_s:
            try:
                await self.release(claim)
            except OUTAGES:
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _MAX_RELEASE_DELAY_S)
            except Exception as error:  # noqa: BLE001 - nobody waits for it; the lease ends
                self._not_freed.report(error, id=claim.request.id)
                return
            else:
                return

    async def delete_expired(self) -> int:
        """Delete expired rows; return their number."""
        now, total = to_micros(self._clock()), 0
        for _ in range(_MAX_DELETE_BATCHES):
            count = await self._db.write(lambda tx: _delete_batch(tx, now))
            total += count
            if count < _DELETE_BATCH_SIZE:
                break
        return total

    def _read_row(self, row: Row, request: IdempotentRequest) -> StoredResponse:
        context = SealContext(_SEAL_PURPOSE, row.integer("workspace_id"), request.id)
        text = self._sealer.open(row.blob("sealed"), context)
        if text[:_FINGERPRINT_BYTES] != request.fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was used for a different request. Use a new key.")
        if row.maybe_text("owner") is not None:
            raise _in_progress_error()
        return _decode(text[_FINGERPRINT_BYTES:])

    def _seal(self, tx: Tx, request: IdempotentRequest, text: bytes) -> bytes:
        return self._sealer.seal(tx, request.fingerprint + text, SealContext(_SEAL_PURPOSE, request.workspace_id, request.id))


purge = purge_tables(stored_responses)


def _delete_batch(tx: Tx, now: int) -> int:
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_EXPIRED, {"now": now, "at_most": _DELETE_BATCH_SIZE})]
    return tx.execute(_DELETE_EXPIRED, {"ids": ids, "now": now}) if ids else 0


def _held_by(claim: IdempotencyClaim) -> dict[str, str | list[str]]:
    return {"held_ids": [claim.request.id], "holder": claim.worker_id}


def _in_progress_error() -> RequestInProgress:
    headers = {"Retry-After": str(_RETRY_AFTER_S)}
    return RequestInProgress("A request with this Idempotency-Key is in progress. Repeat the request to get its response.", headers=headers)


def _encode(response: StoredResponse) -> bytes:
    head = {"status": response.status, "headers": response.headers, "shown": response.body_kind, "made": response.created_ids}
    return orjson.dumps(head) + b"\n" + response.body


def _decode(text: bytes) -> StoredResponse:
    line, _, body = text.partition(b"\n")
    head = cast("Mapping[str, object]", orjson.loads(line))
    return StoredResponse(
        status=cast("int", head["status"]),
        headers=tuple((name, value) for name, value in cast("list[tuple[str, str]]", head["headers"])),
        body=body,
        body_kind=cast("StoredBodyKind", head["shown"]),
        created_ids=tuple(cast("list[str]", head["made"])),
    )
