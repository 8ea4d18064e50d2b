"""The header Idempotency-Key: a marked request is done once, and its repetition gets the same answer (D-14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import Protocol, cast, runtime_checkable

import orjson
import structlog
from starlette.responses import Response
from starlette.types import Scope

from rookery.kernel.errors import Conflict, EngineUnavailable, RookeryError, ValidationFailed
from rookery.kernel.kept_answers import LEASE, Asked, Claim, Kept, KeptAnswers, asked

_log = structlog.stdlib.get_logger("rookery.http")

MAX_KEPT = 1024 * 1024
"""Bytes of a body that is kept; of a larger one only that it was given."""

_HEADER = b"idempotency-key"
_NAME = "Idempotency-Key"
_VALUE = re.compile(rb"[\x20-\x7e]{1,255}")
_REPLAY = (b"idempotent-replay", b"true")


class SecretAlreadyShown(Conflict):
    """The request was done, and its answer showed a secret, which is kept nowhere."""

    code = "secret_already_shown"


class AnswerNotKept(Conflict):
    """The request was done, and its answer was too large to keep."""

    code = "answer_not_kept"


@runtime_checkable
class Identified(Protocol):
    """A caller, as far as it matters here: whose key it is, and in which tenant it acts."""

    @property
    def key_id(self) -> str: ...

    @property
    def workspace_id(self) -> int: ...


def mark_of(scope: Scope) -> str | None:
    """
    Return what a request is marked with; None: it is not.

    Raises:
        ValidationFailed: The header is there twice, or is not 1 to 255 printable ASCII characters.
    """
    found = [value for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]) if name == _HEADER]
    if not found:
        return None
    if len(found) > 1:
        raise ValidationFailed({_NAME: ["is given more than once"]})
    value = found[0].strip(b" \t")
    if _VALUE.fullmatch(value) is None:
        raise ValidationFailed({_NAME: ["must be 1 to 255 printable ASCII characters"]})
    return value.decode("ascii")


def asked_by(caller: object, scope: Scope, mark: str, body: object) -> Asked:
    """
    Return a marked request; two are equal if their JSON values are, however written, and their queries to the letter.

    Args:
        body: The JSON value; None where the route takes none.

    Raises:
        TypeError: *caller* is not `Identified`: a mistake in the table of routes, which marks a public one.
    """
    if not isinstance(caller, Identified):
        raise TypeError(caller)
    return asked(
        key_id=caller.key_id,
        workspace_id=caller.workspace_id,
        method=cast("str", scope["method"]),
        path=cast("str", scope["path"]),
        mark=mark,
        query=cast("bytes", scope["query_string"]),
        body=orjson.dumps(body, option=orjson.OPT_SORT_KEYS),
    )


class Once:
    """
    Does marked requests once.

    Args:
        renew_s: How often the claim to a request is renewed while it is worked.
    """

    def __init__(self, kept: KeptAnswers, *, renew_s: float = LEASE.total_seconds() / 3) -> None:
        self._kept = kept
        self._renew_s = renew_s

    async def answer(self, request: Asked, work: Callable[[], Awaitable[Response]], *, secrets: Collection[str] = ()) -> Response:
        """
        Return the answer kept for *request*; if there is none, do *work*, and keep its answer if it is 2xx.

        The caller gets what *work* returns or raises, also when it cannot be kept. Then, and after a crash, the request stays
        claimed until the lease is over, and may be done again after that.

        Args:
            secrets: Fields of the answer that are shown once.

        Raises:
            IdempotencyMismatch, StillRunning: As `KeptAnswers.claim`.
            SecretAlreadyShown, AnswerNotKept: It was done, but its answer was not one to keep.
            EngineUnavailable: The record store is down; nothing was done.
        """
        found = await self._kept.claim(request)
        if isinstance(found, Kept):
            return _replay(found)
        async with self._renewed(found):
            try:
                response = await work()
            except Exception as error:
                # A store that went away may have done the work all the same: then the lease runs out before it is tried again.
                if not (isinstance(error, EngineUnavailable) and error.engine == "database"):
                    await self._free(found)
                raise
            if 200 <= response.status_code < 300:
                await self._keep(found, _kept(response, frozenset(secrets)))
            else:
                await self._free(found)
        return response

    @asynccontextmanager
    async def _renewed(self, claim: Claim) -> AsyncGenerator[None]:
        renewing = asyncio.create_task(self._renew(claim))
        try:
            yield
        finally:
            renewing.cancel()

    async def _renew(self, claim: Claim) -> None:
        is_ours = True
        while is_ours:
            await asyncio.sleep(self._renew_s)
            try:
                is_ours = await self._kept.renew(claim)
            except RookeryError as error:
                _log.warning("idempotency.not_renewed", reason=error.message)

    async def _keep(self, claim: Claim, answer: Kept) -> None:
        try:
            is_kept = await self._kept.keep(claim, answer)
        except Exception:  # noqa: BLE001 - the work is done, so its caller must hear of it
            _log.exception("idempotency.not_kept", id=claim.asked.id)
        else:
            if not is_kept:
                _log.warning("idempotency.claim_lost", id=claim.asked.id)

    async def _free(self, claim: Claim) -> None:
        try:
            await self._kept.free(claim)
        except Exception:  # noqa: BLE001 - what went wrong before this is what the caller must hear
            _log.exception("idempotency.not_freed", id=claim.asked.id)


def _kept(response: Response, secrets: frozenset[str]) -> Kept:
    """Return what is kept of an answer, whose headers are the route's own: those of the request come on top of them later."""
    body = _body(response)
    if body is None or len(body) > MAX_KEPT:
        return Kept(status=response.status_code, shown="large")
    if secrets and body:
        made = _made(orjson.loads(body), secrets)
        if made is not None:
            return Kept(status=response.status_code, shown="secret", made=tuple(made))
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
    return Kept(status=response.status_code, headers=headers, body=body)


def _body(response: Response) -> bytes | None:
    """Return the body; None: it is a stream."""
    return bytes(response.body) if hasattr(response, "body") else None


def _made(answer: object, secrets: frozenset[str]) -> list[str] | None:
    """Return the ids of the objects in *answer* that show one of *secrets*; None if nothing does."""
    made, shows, waiting = list[str](), False, [answer]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(reversed(cast("list[object]", each)))
        elif isinstance(each, dict):
            fields = cast("dict[str, object]", each)
            if any(fields.get(name) is not None for name in secrets):
                shows = True
                made.extend([str(fields["id"])] if "id" in fields else [])
            waiting.extend(reversed(list(fields.values())))
    return made if shows else None


def _replay(kept: Kept) -> Response:
    if kept.shown == "secret":
        told = "This request was done, and its answer showed a secret, which is shown once only."
        raise SecretAlreadyShown(told, id=kept.made[0]) if len(kept.made) == 1 else SecretAlreadyShown(told, ids=list(kept.made))
    if kept.shown == "large":
        raise AnswerNotKept(f"This request was done, with status {kept.status}; its answer was too large to be kept.", answered=kept.status)
    response = Response(kept.body, kept.status)
    response.raw_headers = [*((name.encode("latin-1"), value.encode("latin-1")) for name, value in kept.headers), _REPLAY]
    return response
