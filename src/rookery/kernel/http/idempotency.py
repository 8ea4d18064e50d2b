"""The header Idempotency-Key: a marked request is done once, and its repetition gets the same answer (D-14)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar, cast, runtime_checkable

import orjson
import structlog
from starlette.responses import Response
from starlette.types import Scope

from rookery.kernel.db import TRANSACTION_HOOK, Tx
from rookery.kernel.errors import Conflict, EngineUnavailable, RookeryError, ValidationFailed
from rookery.kernel.idempotency_store import (
    LEASE,
    IdempotencyClaim,
    IdempotencyStore,
    IdempotentRequest,
    StoredResponse,
    fingerprint_request,
)
from rookery.kernel.log_limits import FailureLog

T = TypeVar("T")
RebuildResponse = Callable[[str], Awaitable[Response]]
"""Builds the response to a request again from the id of what the request made."""

_log = structlog.stdlib.get_logger("rookery.http")

MAX_STORED_BODY_BYTES = 1024 * 1024
"""Bytes of a body that is kept; of a larger one only that it was given."""

_HEADER_BYTES = b"idempotency-key"
_HEADER_NAME = "Idempotency-Key"
_VALID_KEY = re.compile(rb"[\x20-\x7e]{1,255}")
_REPLAY_HEADER = (b"idempotent-replay", b"true")


class SecretAlreadyShown(Conflict):
    """The request was done, and its answer showed a secret, which is kept nowhere."""

    code = "secret_already_shown"


class ResponseNotStored(Conflict):
    """The request was done, and its answer was too large to keep."""

    code = "answer_not_kept"


@runtime_checkable
class IdempotencyCaller(Protocol):
    """A caller, as far as it matters here: whose key it is, and in which tenant it acts."""

    @property
    def key_id(self) -> str: ...

    @property
    def workspace_id(self) -> int: ...


def read_idempotency_key(scope: Scope) -> str | None:
    """
    Return what a request is marked with; None: it is not.

    Raises:
        ValidationFailed: The header is there twice, or is not 1 to 255 printable ASCII characters.
    """
    found = [value for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]) if name == _HEADER_BYTES]
    if not found:
        return None
    if len(found) > 1:
        raise ValidationFailed({_HEADER_NAME: ["is given more than once"]})
    value = found[0].strip(b" \t")
    if _VALID_KEY.fullmatch(value) is None:
        raise ValidationFailed({_HEADER_NAME: ["must be 1 to 255 printable ASCII characters"]})
    return value.decode("ascii")


def build_request(caller: object, scope: Scope, idempotency_key: str, body: object) -> IdempotentRequest:
    """
    Return a marked request; two are equal if their JSON values are, however written, and their queries to the letter.

    Args:
        body: The JSON value; None where the route takes none.

    Raises:
        TypeError: *caller* is not `IdempotencyCaller`: a mistake in the table of routes, which marks a public one.
    """
    if not isinstance(caller, IdempotencyCaller):
        raise TypeError(caller)
    return fingerprint_request(
        key_id=caller.key_id,
        workspace_id=caller.workspace_id,
        method=cast("str", scope["method"]),
        path=cast("str", scope["path"]),
        idempotency_key=idempotency_key,
        query=cast("bytes", scope["query_string"]),
        body=orjson.dumps(body, option=orjson.OPT_SORT_KEYS),
    )


class PendingResponse:
    """
    The response to a marked request, stored by the transaction that does the work.

    The handler names, before it calls its verb, the type that the transaction returns and how to render it. The first write transaction
    of the request that returns such a value stores the response.
    """

    def __init__(self, store: IdempotencyStore, claim: IdempotencyClaim, secrets: frozenset[str]) -> None:
        self._store = store
        self._claim = claim
        self._secret_fields = secrets
        self._result_type: type[object] | None = None
        self._render: Callable[[object], Response | StoredResponse] | None = None
        self._rendered: tuple[object, Response] | None = None
        self.stored: StoredResponse | None = None
        self.until = 0

    def set_renderer(self, result_type: type[T], render: Callable[[T], Response | StoredResponse]) -> None:
        """Render the result of the transaction that returns a *result_type*."""
        self._result_type, self._render = result_type, cast("Callable[[object], Response | StoredResponse]", render)

    def close(self) -> None:
        """Expect nothing further: a task that the request started may write long after it, with the context of the request."""
        self._result_type = self._render = None

    def get_response(self, result: object) -> Response | None:
        """Return the response that was rendered of *result*, if the transaction returned exactly this object."""
        return self._rendered[1] if self._rendered is not None and self._rendered[0] is result else None

    def store_result(self, tx: Tx, result: object) -> None:
        """
        Store the response in *tx*, if *result* is what the handler expects.

        Raises:
            StillRunning: Another process took the claim over; the work of *tx* is undone.
        """
        if self._result_type is None or self._render is None or self.stored is not None or not isinstance(result, self._result_type):
            return
        response = self._render(result)
        if isinstance(response, Response):
            if not 200 <= response.status_code < 300:
                return
            kept = _to_stored_response(response, self._secret_fields)
        else:
            kept = response
        until = self._store.store_in_transaction(tx, self._claim, kept)

        def committed() -> None:
            self.stored, self.until = kept, until
            self._rendered = (result, response) if isinstance(response, Response) else None

        tx.after_commit(committed)


_PENDING: ContextVar[PendingResponse | None] = ContextVar("rookery_pending_response", default=None)


def respond_with(result_type: type[T], render: Callable[[T], Response]) -> Callable[[T], Response]:
    """
    Return *render*; for a marked request the transaction that returns a *result_type* also stores the response rendered of it.

    Call this before the verb. Without an Idempotency-Key it does nothing.

    Args:
        result_type: The type that the work of the transaction returns.
        render: A quick pure function: it runs inside the transaction.
    """
    pending = _PENDING.get()
    if pending is None:
        return render
    pending.set_renderer(result_type, render)

    def rendered(result: T) -> Response:
        return pending.get_response(result) or render(result)

    return rendered


def store_created_id(result_type: type[T], id_of: Callable[[T], str], *, status: int = 201) -> None:
    """
    Have the transaction that returns a *result_type* store the id of what a marked request made.

    For a response that needs more than the transaction has. If the process dies before the whole response is stored, the repetition is
    answered by the route's `rebuild`, with this id.
    """
    pending = _PENDING.get()
    if pending is not None:
        pending.set_renderer(result_type, lambda made: StoredResponse(status=status, body_kind="made", created_ids=(id_of(made),)))


class IdempotencyHandler:
    """
    Does marked requests once.

    Args:
        renew_interval_s: How often the claim to a request is renewed while it is worked.
    """

    def __init__(self, store: IdempotencyStore, *, renew_interval_s: float = LEASE.total_seconds() / 3) -> None:
        self._store = store
        self._renew_interval_s = renew_interval_s
        self._not_replaced, self._not_renewed, self._not_kept, self._not_freed = (
            FailureLog(_log, f"idempotency.{each}") for each in ("not_replaced", "not_renewed", "not_kept", "not_freed")
        )

    async def run(
        self,
        request: IdempotentRequest,
        work: Callable[[], Awaitable[Response]],
        *,
        secret_fields: Collection[str] = (),
        rebuild: RebuildResponse | None = None,
    ) -> Response:
        """
        Return the response stored for *request*; if there is none, do *work*, and store its response if it is 2xx.

        Handlers store the response in the transaction that does the work (`respond_with`, `store_created_id`), so a crash leaves both or
        neither. A response that the handler does not announce, such as one without a change, is stored after it.

        Args:
            secret_fields: Fields of the response that are shown once.
            rebuild: Builds the response again, for a route that stores the id of what it made.

        Raises:
            IdempotencyMismatch, StillRunning: As `KeptAnswers.claim`.
            SecretAlreadyShown, AnswerNotKept: The request was done, but its response was not one to store.
            EngineUnavailable: The record store is down; nothing was done.
        """
        found = await self._store.claim(request)
        if isinstance(found, StoredResponse):
            return await _replay(found, rebuild)
        pending = PendingResponse(self._store, found, frozenset(secret_fields))
        async with self._renewing(found):
            ours, completion = _PENDING.set(pending), TRANSACTION_HOOK.set(pending.store_result)
            try:
                try:
                    response = await work()
                finally:
                    pending.close()
            except Exception as error:
                # A store that went away may have done the work all the same: then the lease runs out before it is tried again.
                if pending.stored is None and not (isinstance(error, EngineUnavailable) and error.engine == "database"):
                    await self._release(found)
                raise
            finally:
                _PENDING.reset(ours)
                TRANSACTION_HOOK.reset(completion)
            if 200 <= response.status_code < 300:
                await self._store_final(pending, found, _to_stored_response(response, frozenset(secret_fields)))
            else:
                await self._release(found)
        return response

    async def _store_final(self, pending: PendingResponse, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        """Store the response as it is sent, unless the transaction stored the same."""
        if pending.stored is None:
            await self._store_response(claim, answer)
        elif pending.stored != answer:
            try:
                await self._store.replace(claim.request, answer, until=pending.until)
            except Exception as error:  # noqa: BLE001 - the work is done and its response is stored; the caller gets the newer one
                self._not_replaced.report(error, id=claim.request.id)

    @asynccontextmanager
    async def _renewing(self, claim: IdempotencyClaim) -> AsyncGenerator[None]:
        renewing = asyncio.create_task(self._renew_forever(claim))
        try:
            yield
        finally:
            renewing.cancel()

    async def _renew_forever(self, claim: IdempotencyClaim) -> None:
        is_ours = True
        while is_ours:
            await asyncio.sleep(self._renew_interval_s)
            try:
                is_ours = await self._store.renew(claim)
            except RookeryError as error:
                self._not_renewed.report(error)

    async def _store_response(self, claim: IdempotencyClaim, answer: StoredResponse) -> None:
        try:
            is_kept = await self._store.store_separately(claim, answer)
        except Exception as error:  # noqa: BLE001 - the work is done, so its caller must hear of it
            self._not_kept.report(error, id=claim.request.id)
        else:
            if not is_kept:
                _log.warning("idempotency.claim_lost", id=claim.request.id)

    async def _release(self, claim: IdempotencyClaim) -> None:
        try:
            await self._store.release(claim)
        except Exception as error:  # noqa: BLE001 - what went wrong before this is what the caller must hear
            self._not_freed.report(error, id=claim.request.id)


def _to_stored_response(response: Response, secrets: frozenset[str]) -> StoredResponse:
    """Return what is kept of an answer, whose headers are the route's own: those of the request come on top of them later."""
    body = _get_body(response)
    if body is None or len(body) > MAX_STORED_BODY_BYTES:
        return StoredResponse(status=response.status_code, body_kind="large")
    if secrets and body:
        made = _find_secret_ids(orjson.loads(body), secrets)
        if made is not None:
            return StoredResponse(status=response.status_code, body_kind="secret", created_ids=tuple(made))
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
    return StoredResponse(status=response.status_code, headers=headers, body=body)


def _get_body(response: Response) -> bytes | None:
    """Return the body; None: it is a stream."""
    return bytes(response.body) if hasattr(response, "body") else None


def _find_secret_ids(answer: object, secrets: frozenset[str]) -> list[str] | None:
    """Return the ids of the objects in *run* that show one of *secret_fields*; None if nothing does."""
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


async def _replay(kept: StoredResponse, rebuild: RebuildResponse | None) -> Response:
    if kept.body_kind == "secret":
        told = "This request was done, and its answer showed a secret, which is shown once only."
        raise (
            SecretAlreadyShown(told, id=kept.created_ids[0])
            if len(kept.created_ids) == 1
            else SecretAlreadyShown(told, ids=list(kept.created_ids))
        )
    if kept.body_kind == "made" and rebuild is not None:
        response = await rebuild(kept.created_ids[0])
        response.status_code = kept.status
        response.raw_headers.append(_REPLAY_HEADER)
        return response
    if kept.body_kind != "whole":
        raise ResponseNotStored(
            f"This request was done, with status {kept.status}; its answer was too large to be kept.", answered=kept.status
        )
    response = Response(kept.body, kept.status)
    response.raw_headers = [*((name.encode("latin-1"), value.encode("latin-1")) for name, value in kept.headers), _REPLAY_HEADER]
    return response
