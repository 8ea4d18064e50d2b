"""
Requests that a caller marked with a key of their own, so that a repetition is answered and not done again (D-14).

One row per marked request. The row is reserved, under a lease, before the request is worked. The transaction that does the work stores
the response in it, so a crash leaves both or neither. The row is kept for a day. Its content is sealed, because a response may repeat what
the caller wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, cast

import orjson
from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text, bindparam, delete, select, update

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Row, Tx, metadata, upsert
from rookery.kernel.errors import Conflict, RookeryError
from rookery.kernel.ids import IdFactory
from rookery.kernel.sealing import SealContext, SealedColumn, Sealer
from rookery.kernel.worker_ids import find_dead_workers, make_worker_id

RETENTION = timedelta(hours=24)
LEASE = timedelta(seconds=60)
"""How long a reservation outlives the process that made it; while it is worked it is renewed well before."""

_RETRY_AFTER_S = 1
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

# `owner` is whose work the answer will be, and null once it is there; `until` is the end of the lease, then of the keeping.
_IS_CLAIMED_BY_ME = (stored_responses.c.id == bindparam("of_id"), stored_responses.c.owner == bindparam("me"))
_RESERVE = upsert(stored_responses, index_elements=["id"], returning=[stored_responses.c.id])
_SELECT_LOCKED = select(stored_responses).where(stored_responses.c.id == bindparam("of_id")).with_for_update()
_TAKE_OVER = (
    update(stored_responses)
    .where(stored_responses.c.id == bindparam("of_id"))
    .values(workspace_id=bindparam("workspace"), owner=bindparam("me"), until=bindparam("end"), sealed=bindparam("text"))
)
_RENEW = update(stored_responses).where(*_IS_CLAIMED_BY_ME).values(until=bindparam("end"))
_STORE = update(stored_responses).where(*_IS_CLAIMED_BY_ME).values(owner=None, until=bindparam("end"), sealed=bindparam("text"))
_IS_STORED = (
    stored_responses.c.id == bindparam("of_id"),
    stored_responses.c.owner.is_(None),
    stored_responses.c.until == bindparam("stored_until"),
)
_REPLACE = update(stored_responses).where(*_IS_STORED).values(sealed=bindparam("text"))
_RELEASE = delete(stored_responses).where(*_IS_CLAIMED_BY_ME)
_SELECT_EXPIRED = select(stored_responses.c.id).where(stored_responses.c.until <= bindparam("now")).limit(bindparam("at_most"))
_DELETE_EXPIRED = delete(stored_responses).where(
    stored_responses.c.id.in_(bindparam("ids", expanding=True)), stored_responses.c.until <= bindparam("now")
)
_PURGE = delete(stored_responses).where(stored_responses.c.workspace_id == bindparam("of_workspace"))

StoredBodyKind = Literal["whole", "secret", "large", "made"]


class IdempotencyMismatch(RookeryError):
    """The Idempotency-Key was used for another request; nothing was done."""

    status, code = 422, "idempotency_mismatch"


class RequestInProgress(Conflict):
    """The request that this one repeats is being worked; its answer will be there soon."""

    code = "idempotency_in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdempotentRequest:
    """
    A marked request.

    Attributes:
        id: Of its key, method, path and mark together; it tells none of them.
        fingerprint: 32 bytes of what was asked for: equal for equal requests alone.
    """

    id: str
    workspace_id: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class IdempotencyClaim:
    """The right to work a request, until the lease is over."""

    request: IdempotentRequest
    worker_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """
    An answer as it is kept.

    Attributes:
        body_kind: Whether *body* is the whole response. It is left out of a response that shows a secret, of one that is too large, and
            of one that the route builds again from the id of what the request made.
        created_ids: Ids of what the request made, if *body_kind* is `secret` or `created_ids`.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    body_kind: StoredBodyKind = "whole"
    created_ids: tuple[str, ...] = ()


def fingerprint_request(
    *, key_id: str, workspace_id: int, method: str, path: str, idempotency_key: str, query: bytes, body: bytes
) -> IdempotentRequest:
    """Return the request that *key_id* marked with *idempotency_key*; *path* as sent, *body* in a form that is equal for equal bodies."""
    # None but the path can hold a NUL, so no two different requests have one text.
    scope = f"{key_id}\0{method}\0{idempotency_key}\0{path}".encode("utf-8", "surrogatepass")
    fingerprint = hashlib.sha256(hashlib.sha256(query).digest() + body).digest()
    return IdempotentRequest(id=hashlib.sha256(scope).hexdigest(), workspace_id=workspace_id, fingerprint=fingerprint)


class IdempotencyStore:
    """Reserves requests and keeps their answers; exact over all processes on one record store."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock
        self._ids = ids

    async def claim(self, request: IdempotentRequest) -> IdempotencyClaim | StoredResponse:
        """
        Return the answer that is kept for *request*, or the right to work it, which nobody else has then.

        Raises:
            IdempotencyMismatch: The mark was used for another request.
            StillRunning: Somebody has that right, and is not done.
            Unreadable: What is kept cannot be opened, or a new row not sealed.
        """
        claim, now = IdempotencyClaim(request, make_worker_id(self._ids())), to_micros(self._clock())

        def work(tx: Tx) -> IdempotencyClaim | StoredResponse:
            end, text = now + _to_microseconds(LEASE), self._seal(tx, request, b"")
            new = {"id": request.id, "workspace_id": request.workspace_id, "owner": claim.worker_id, "until": end, "sealed": text}
            if tx.fetch_one(_RESERVE, new) is not None:
                return claim
            row = tx.fetch_one(_SELECT_LOCKED, {"of_id": request.id})
            if row is None:  # freed between the two statements, as PostgreSQL may
                raise _in_progress_error()
            if row.integer("until") <= now or _is_orphaned(row):
                tx.execute(
                    _TAKE_OVER, {"of_id": request.id, "workspace": request.workspace_id, "me": claim.worker_id, "end": end, "text": text}
                )
                return claim
            return self._read_row(row, request)

        return await self._db.write(work)

    async def renew(self, claim: IdempotencyClaim) -> bool:
        """Keep a claim for another lease; false if it is somebody else's by now."""
        end = to_micros(self._clock() + LEASE)
        return await self._db.write(lambda tx: tx.execute(_RENEW, {"of_id": claim.request.id, "me": claim.worker_id, "end": end})) == 1

    async def store_separately(self, claim: IdempotencyClaim, answer: StoredResponse) -> bool:
        """Keep the answer of what was claimed, for a day; false if the claim was lost meanwhile."""
        end, text = to_micros(self._clock() + RETENTION), _encode(answer)

        def work(tx: Tx) -> int:
            sealed = self._seal(tx, claim.request, text)
            return tx.execute(_STORE, {"of_id": claim.request.id, "me": claim.worker_id, "end": end, "text": sealed})

        return await self._db.write(work) == 1

    def store_in_transaction(self, tx: Tx, claim: IdempotencyClaim, answer: StoredResponse) -> int:
        """
        Store the response as a part of the transaction *tx* that does the work; return until when it is kept, in microseconds.

        Raises:
            StillRunning: The claim was lost to another process. *tx* must be undone.
        """
        end = to_micros(self._clock() + RETENTION)
        sealed = self._seal(tx, claim.request, _encode(answer))
        if tx.execute(_STORE, {"of_id": claim.request.id, "me": claim.worker_id, "end": end, "text": sealed}) != 1:
            raise _in_progress_error()
        return end

    async def replace(self, request: IdempotentRequest, answer: StoredResponse, *, until: int) -> bool:
        """Replace the response that `store_in_transaction` kept *until* then; return false if it is no longer there."""
        text = _encode(answer)

        def work(tx: Tx) -> int:
            return tx.execute(_REPLACE, {"of_id": request.id, "stored_until": until, "text": self._seal(tx, request, text)})

        return await self._db.write(work) == 1

    async def release(self, claim: IdempotencyClaim) -> None:
        """Give a claim back: the request was not done, and may be tried again."""
        await self._db.write(lambda tx: tx.execute(_RELEASE, {"of_id": claim.request.id, "me": claim.worker_id}))

    async def delete_expired(self) -> int:
        """Delete what is past its time; return how many rows."""
        now, gone = to_micros(self._clock()), 0
        for _ in range(_MAX_DELETE_BATCHES):
            count = await self._db.write(lambda tx: _delete_batch(tx, now))
            gone += count
            if count < _DELETE_BATCH_SIZE:
                break
        return gone

    def _read_row(self, row: Row, request: IdempotentRequest) -> StoredResponse:
        place = SealContext(_SEAL_PURPOSE, row.integer("workspace_id"), request.id)
        text = self._sealer.open(row.blob("sealed"), place)
        if text[:_FINGERPRINT_BYTES] != request.fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was used for another request, with another body; use a new one.")
        if row.maybe_text("owner") is not None:
            raise _in_progress_error()
        return _decode(text[_FINGERPRINT_BYTES:])

    def _seal(self, tx: Tx, request: IdempotentRequest, text: bytes) -> bytes:
        return self._sealer.seal(tx, request.fingerprint + text, SealContext(_SEAL_PURPOSE, request.workspace_id, request.id))


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete what is kept for a workspace; return how many rows."""
    return tx.execute(_PURGE, {"of_workspace": workspace_id})


def _delete_batch(tx: Tx, now: int) -> int:
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_EXPIRED, {"now": now, "at_most": _DELETE_BATCH_SIZE})]
    return tx.execute(_DELETE_EXPIRED, {"ids": ids, "now": now}) if ids else 0


def _is_orphaned(row: Row) -> bool:
    """Return whether the process that holds the claim ended without storing a response: nothing of its work was committed."""
    name = row.maybe_text("owner")
    return name is not None and bool(find_dead_workers([name]))


def _in_progress_error() -> RequestInProgress:
    again = {"Retry-After": str(_RETRY_AFTER_S)}
    return RequestInProgress("A request with this Idempotency-Key is being worked; ask again for its answer.", headers=again)


def _to_microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _encode(answer: StoredResponse) -> bytes:
    head = {"status": answer.status, "headers": answer.headers, "shown": answer.body_kind, "made": answer.created_ids}
    return orjson.dumps(head) + b"\n" + answer.body


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
