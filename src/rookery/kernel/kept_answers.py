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
from rookery.kernel.ids import Ids
from rookery.kernel.owners import dead, owner
from rookery.kernel.sealing import Place, SealedColumn, Sealer

KEPT = timedelta(hours=24)
LEASE = timedelta(seconds=60)
"""How long a reservation outlives the process that made it; while it is worked it is renewed well before."""

_AGAIN_S = 1
_WHAT = "kept answer"
_MARK_BYTES = 32
_AT_ONCE = 500
_MOST_ROUNDS = 10_000

kept_answers = Table(
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
SEALED = SealedColumn(kept_answers, "sealed", what=_WHAT)

# `owner` is whose work the answer will be, and null once it is there; `until` is the end of the lease, then of the keeping.
_MINE = (kept_answers.c.id == bindparam("of_id"), kept_answers.c.owner == bindparam("me"))
_RESERVE = upsert(kept_answers, index_elements=["id"], returning=[kept_answers.c.id])
_HELD = select(kept_answers).where(kept_answers.c.id == bindparam("of_id")).with_for_update()
_TAKE_OVER = (
    update(kept_answers)
    .where(kept_answers.c.id == bindparam("of_id"))
    .values(workspace_id=bindparam("workspace"), owner=bindparam("me"), until=bindparam("end"), sealed=bindparam("text"))
)
_RENEW = update(kept_answers).where(*_MINE).values(until=bindparam("end"))
_KEEP = update(kept_answers).where(*_MINE).values(owner=None, until=bindparam("end"), sealed=bindparam("text"))
_STORED = (kept_answers.c.id == bindparam("of_id"), kept_answers.c.owner.is_(None), kept_answers.c.until == bindparam("stored_until"))
_REPLACE = update(kept_answers).where(*_STORED).values(sealed=bindparam("text"))
_FREE = delete(kept_answers).where(*_MINE)
_OVER = select(kept_answers.c.id).where(kept_answers.c.until <= bindparam("now")).limit(bindparam("at_most"))
_FORGET = delete(kept_answers).where(kept_answers.c.id.in_(bindparam("ids", expanding=True)), kept_answers.c.until <= bindparam("now"))
_PURGE = delete(kept_answers).where(kept_answers.c.workspace_id == bindparam("of_workspace"))

Shown = Literal["whole", "secret", "large", "made"]


class IdempotencyMismatch(RookeryError):
    """The Idempotency-Key was used for another request; nothing was done."""

    status, code = 422, "idempotency_mismatch"


class StillRunning(Conflict):
    """The request that this one repeats is being worked; its answer will be there soon."""

    code = "idempotency_in_progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
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
class Claim:
    """The right to work a request, until the lease is over."""

    asked: Asked
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """
    An answer as it is kept.

    Attributes:
        shown: Whether *body* is the whole response. It is left out of a response that shows a secret, of one that is too large, and
            of one that the route builds again from the id of what the request made.
        made: Ids of what the request made, if *shown* is `secret` or `made`.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    shown: Shown = "whole"
    made: tuple[str, ...] = ()


def asked(*, key_id: str, workspace_id: int, method: str, path: str, mark: str, query: bytes, body: bytes) -> Asked:
    """Return the request that *key_id* marked with *mark*; *path* as it was asked for, *body* in a form that is equal for equal bodies."""
    # None but the path can hold a NUL, so no two different requests have one text.
    scope = f"{key_id}\0{method}\0{mark}\0{path}".encode("utf-8", "surrogatepass")
    fingerprint = hashlib.sha256(hashlib.sha256(query).digest() + body).digest()
    return Asked(id=hashlib.sha256(scope).hexdigest(), workspace_id=workspace_id, fingerprint=fingerprint)


class KeptAnswers:
    """Reserves requests and keeps their answers; exact over all processes on one record store."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock
        self._ids = ids

    async def claim(self, request: Asked) -> Claim | Kept:
        """
        Return the answer that is kept for *request*, or the right to work it, which nobody else has then.

        Raises:
            IdempotencyMismatch: The mark was used for another request.
            StillRunning: Somebody has that right, and is not done.
            Unreadable: What is kept cannot be opened, or a new row not sealed.
        """
        claim, now = Claim(request, owner(self._ids())), to_micros(self._clock())

        def work(tx: Tx) -> Claim | Kept:
            end, text = now + _micros(LEASE), self._seal(tx, request, b"")
            new = {"id": request.id, "workspace_id": request.workspace_id, "owner": claim.owner, "until": end, "sealed": text}
            if tx.one(_RESERVE, new) is not None:
                return claim
            row = tx.one(_HELD, {"of_id": request.id})
            if row is None:  # freed between the two statements, as PostgreSQL may
                raise _still_running()
            if row.integer("until") <= now or _is_orphaned(row):
                tx.run(_TAKE_OVER, {"of_id": request.id, "workspace": request.workspace_id, "me": claim.owner, "end": end, "text": text})
                return claim
            return self._answer(row, request)

        return await self._db.write(work)

    async def renew(self, claim: Claim) -> bool:
        """Keep a claim for another lease; false if it is somebody else's by now."""
        end = to_micros(self._clock() + LEASE)
        return await self._db.write(lambda tx: tx.run(_RENEW, {"of_id": claim.asked.id, "me": claim.owner, "end": end})) == 1

    async def keep(self, claim: Claim, answer: Kept) -> bool:
        """Keep the answer of what was claimed, for a day; false if the claim was lost meanwhile."""
        end, text = to_micros(self._clock() + KEPT), _written(answer)

        def work(tx: Tx) -> int:
            sealed = self._seal(tx, claim.asked, text)
            return tx.run(_KEEP, {"of_id": claim.asked.id, "me": claim.owner, "end": end, "text": sealed})

        return await self._db.write(work) == 1

    def store(self, tx: Tx, claim: Claim, answer: Kept) -> int:
        """
        Store the response as a part of the transaction *tx* that does the work; return until when it is kept, in microseconds.

        Raises:
            StillRunning: The claim was lost to another process. *tx* must be undone.
        """
        end = to_micros(self._clock() + KEPT)
        sealed = self._seal(tx, claim.asked, _written(answer))
        if tx.run(_KEEP, {"of_id": claim.asked.id, "me": claim.owner, "end": end, "text": sealed}) != 1:
            raise _still_running()
        return end

    async def replace(self, request: Asked, answer: Kept, *, until: int) -> bool:
        """Replace the response that `store` kept *until* then; return false if it is no longer there."""
        text = _written(answer)

        def work(tx: Tx) -> int:
            return tx.run(_REPLACE, {"of_id": request.id, "stored_until": until, "text": self._seal(tx, request, text)})

        return await self._db.write(work) == 1

    async def free(self, claim: Claim) -> None:
        """Give a claim back: the request was not done, and may be tried again."""
        await self._db.write(lambda tx: tx.run(_FREE, {"of_id": claim.asked.id, "me": claim.owner}))

    async def forget_old(self) -> int:
        """Delete what is past its time; return how many rows."""
        now, gone = to_micros(self._clock()), 0
        for _ in range(_MOST_ROUNDS):
            count = await self._db.write(lambda tx: _forget(tx, now))
            gone += count
            if count < _AT_ONCE:
                break
        return gone

    def _answer(self, row: Row, request: Asked) -> Kept:
        place = Place(_WHAT, row.integer("workspace_id"), request.id)
        text = self._sealer.open(row.blob("sealed"), place)
        if text[:_MARK_BYTES] != request.fingerprint:
            raise IdempotencyMismatch("This Idempotency-Key was used for another request, with another body; use a new one.")
        if row.maybe_text("owner") is not None:
            raise _still_running()
        return _read(text[_MARK_BYTES:])

    def _seal(self, tx: Tx, request: Asked, text: bytes) -> bytes:
        return self._sealer.seal(tx, request.fingerprint + text, Place(_WHAT, request.workspace_id, request.id))


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete what is kept for a workspace; return how many rows."""
    return tx.run(_PURGE, {"of_workspace": workspace_id})


def _forget(tx: Tx, now: int) -> int:
    ids = [row.text("id") for row in tx.all(_OVER, {"now": now, "at_most": _AT_ONCE})]
    return tx.run(_FORGET, {"ids": ids, "now": now}) if ids else 0


def _is_orphaned(row: Row) -> bool:
    """Return whether the process that holds the claim ended without storing a response: nothing of its work was committed."""
    name = row.maybe_text("owner")
    return name is not None and bool(dead([name]))


def _still_running() -> StillRunning:
    again = {"Retry-After": str(_AGAIN_S)}
    return StillRunning("A request with this Idempotency-Key is being worked; ask again for its answer.", headers=again)


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


def _written(answer: Kept) -> bytes:
    head = {"status": answer.status, "headers": answer.headers, "shown": answer.shown, "made": answer.made}
    return orjson.dumps(head) + b"\n" + answer.body


def _read(text: bytes) -> Kept:
    line, _, body = text.partition(b"\n")
    head = cast("Mapping[str, object]", orjson.loads(line))
    return Kept(
        status=cast("int", head["status"]),
        headers=tuple((name, value) for name, value in cast("list[tuple[str, str]]", head["headers"])),
        body=body,
        shown=cast("Shown", head["shown"]),
        made=tuple(cast("list[str]", head["made"])),
    )
