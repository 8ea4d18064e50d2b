"""The Idempotency-Key header: a request with a key is executed once, and a repeated request gets the same response."""

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

from rookery.kernel.db import TRANSACTION_HOOKS, TransactionHook, Tx
from rookery.kernel.errors import OUTAGES, Conflict, EngineUnavailable, RookeryError, ValidationFailed
from rookery.kernel.http.event_stream import EventStream
from rookery.kernel.idempotency_store import (
    LEASE,
    IdempotencyClaim,
    IdempotencyStore,
    IdempotentRequest,
    StoredResponse,
    fingerprint_request,
)
from rookery.kernel.logs import FailureLog

T = TypeVar("T")
RebuildResponse = Callable[[str], Awaitable[Response]]
"""Builds the response to a request again, given the id of the object that the request created."""

_log = structlog.stdlib.get_logger("rookery.http")

MAX_STORED_BODY_BYTES = 1024 * 1024
"""Largest response body that is stored. Of a larger response, only the status is stored."""

_HEADER_BYTES = b"idempotency-key"
_HEADER_NAME = "Idempotency-Key"
_VALID_KEY = re.compile(rb"[\x20-\x7e]{1,255}")
_REPLAY_HEADER = (b"idempotent-replay", b"true")


class SecretAlreadyShown(Conflict):
    """The request with this Idempotency-Key succeeded, and its answer contained a secret."""

    code = "secret_already_shown"
    fields = "`id` of what was created, or `ids`"


class ResponseNotStored(Conflict):
    """The request with this Idempotency-Key succeeded, and its answer was too large to store."""

    code = "answer_not_kept"
    fields = "`answered`: its status"


@runtime_checkable
class IdempotencyCaller(Protocol):
    """The fields of a caller that identify an idempotent request: its key and its tenant."""

    @property
    def key_id(self) -> str: ...

    @property
    def workspace_id(self) -> int: ...


def read_idempotency_key(scope: Scope) -> str | None:
    """
    Return the Idempotency-Key of a request; None if it has none.

    Raises:
        ValidationFailed: The header occurs more than once, or is not 1 to 255 printable ASCII characters.
    """
    values = [value for name, value in cast("list[tuple[bytes, bytes]]", scope["headers"]) if name == _HEADER_BYTES]
    if not values:
        return None
    if len(values) > 1:
        raise ValidationFailed({_HEADER_NAME: ["is given more than once"]})
    value = values[0].strip(b" \t")
    if _VALID_KEY.fullmatch(value) is None:
        raise ValidationFailed({_HEADER_NAME: ["must be 1 to 255 printable ASCII characters"]})
    return value.decode("ascii")


def build_request(caller: object, scope: Scope, idempotency_key: str, body: object) -> IdempotentRequest:
    """
    Return the request that an Idempotency-Key identifies. Its body is compared as a JSON value and its query byte by byte.

    Args:
        body: The JSON value; None for a route without a body.

    Raises:
        TypeError: *caller* is not an `IdempotencyCaller`, because the table of routes marks a public route as idempotent.
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
    The response to a request with an Idempotency-Key, stored by the transaction that does the work.

    Before the handler starts its transaction, it names the type of the transaction's result and how to render it. The first write
    transaction of the request that returns such a value stores the response.

    Attributes:
        stored: The stored response; None: not yet.
        until: The time of its deletion in microseconds.
    """

    def __init__(self, store: IdempotencyStore, claim: IdempotencyClaim, secrets: frozenset[str]) -> None:
        self._store = store
        self._claim = claim
        self._secret_fields = secrets
        self._result_type: type[object] | None = None
        self._render: Callable[[object], Response | StoredResponse] | None = None
        self._rendered: tuple[object, Response] | None = None
        self._is_closed = False
        self.stored: StoredResponse | None = None
        self.until = 0

    @property
    def has_renderer(self) -> bool:
        """Return whether the handler has named them. Then no transaction of it commits a result without the response."""
        return self._render is not None

    def set_renderer(self, result_type: type[T], render: Callable[[T], Response | StoredResponse]) -> None:
        """Render the result of the first transaction that returns a *result_type*."""
        self._result_type, self._render = result_type, cast("Callable[[object], Response | StoredResponse]", render)

    def get_hook(self) -> TransactionHook | None:
        """Return the hook of a transaction that begins now; None after `close`."""
        return None if self._is_closed else self._store_result

    def close(self) -> None:
        """
        Store nothing in transactions that begin later. A task started by the request inherits its context and may write long after it.

        Those that have begun still store the response. If the client leaves or the record store fails, they may go on without the request.
        """
        self._is_closed = True

    def get_response(self, result: object) -> Response | None:
        """Return the response rendered for *result*, if the transaction returned exactly this object."""
        return self._rendered[1] if self._rendered is not None and self._rendered[0] is result else None

    def _store_result(self, tx: Tx, result: object) -> None:
        """
        Store the response in *tx* if *result* has the type that the handler announced.

        Raises:
            RequestInProgress: Another process has taken over the claim. *tx* is rolled back.
        """
        if self._result_type is None or self._render is None or self.stored is not None or not isinstance(result, self._result_type):
            return
        response = self._render(result)
        if isinstance(response, Response):
            if not 200 <= response.status_code < 300:
                return
            stored_response = _to_stored_response(response, self._secret_fields)
        else:
            stored_response = response
        until = self._store.store_in_transaction(tx, self._claim, stored_response)

        def committed() -> None:
            self.stored, self.until = stored_response, until
            self._rendered = (result, response) if isinstance(response, Response) else None

        tx.after_commit(committed)


_PENDING: ContextVar[PendingResponse | None] = ContextVar("rookery_pending_response", default=None)


def respond_with(result_type: type[T], render: Callable[[T], Response]) -> Callable[[T], Response]:
    """
    Return *render*. With an Idempotency-Key, the transaction that returns a *result_type* also stores the rendered response.

    Call this before the transaction starts. Without an Idempotency-Key it does nothing.

    Args:
        result_type: The type that the work of the transaction returns.
        render: A fast pure function. It runs inside the transaction.
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
    Store the id of the created object in the transaction that returns a *result_type*, if the request has an Idempotency-Key.

    Use this for a response that needs more than the transaction has. If the process exits before the whole response is stored, the
    route's `rebuild_response` answers the repeated request from this id.
    """
    pending = _PENDING.get()
    if pending is not None:
        pending.set_renderer(result_type, lambda result: StoredResponse(status=status, body_kind="made", created_ids=(id_of(result),)))


class IdempotencyHandler:
    """
    A handler that executes each request with an Idempotency-Key once.

    Args:
        renew_interval_s: Seconds between two renewals of the claim to a request in progress.
    """

    def __init__(self, store: IdempotencyStore, *, renew_interval_s: float = LEASE.total_seconds() / 3) -> None:
        self._store = store
        self._renew_interval_s = renew_interval_s
        self._not_replaced, self._not_renewed, self._not_kept, self._not_freed = (
            FailureLog(_log, f"idempotency.{suffix}") for suffix in ("not_replaced", "not_renewed", "not_kept", "not_freed")
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
        Return the response stored for *request*. If no response is stored, await *work* and store its response if it is 2xx.

        Handlers store the response in the transaction that does the work (`respond_with`, `store_created_id`), so a crash leaves both or
        neither. Other responses, such as those without a change, are stored afterwards.

        Args:
            secret_fields: Fields of the response that are shown only once.
            rebuild: Builds the response again, for a route that stores the id of the created object.

        Raises:
            IdempotencyMismatch, RequestInProgress: As in `IdempotencyStore.claim`.
            SecretAlreadyShown, ResponseNotStored: The request was executed, but its response was not stored.
            EngineUnavailable: The record store is unavailable. Nothing was done.
        """
        outcome = await self._claim(request)
        if isinstance(outcome, StoredResponse):
            return await _replay(outcome, rebuild)
        pending = PendingResponse(self._store, outcome, frozenset(secret_fields))
        async with self._keep_claim(outcome):
            token, completion = _PENDING.set(pending), TRANSACTION_HOOKS.set(pending.get_hook)
            try:
                try:
                    response = await work()
                finally:
                    pending.close()
            except (Exception, asyncio.CancelledError) as error:
                if pending.stored is None:
                    await self._release_after(error, outcome, is_atomic=pending.has_renderer)
                raise
            finally:
                _PENDING.reset(token)
                TRANSACTION_HOOKS.reset(completion)
            if isinstance(response, EventStream) and pending.stored is not None:
                pass  # the handler stored the id of what it streams
            elif 200 <= response.status_code < 300:
                await self._store_final(pending, outcome, _to_stored_response(response, frozenset(secret_fields)))
            else:
                await self._release(outcome)
        return response

    async def _store_final(self, pending: PendingResponse, claim: IdempotencyClaim, response: StoredResponse) -> None:
        """Store the response as it is sent, unless the transaction stored the same one."""
        if pending.stored is None:
            await self._store_response(claim, response)
        elif pending.stored != response:
            try:
                await self._store.replace(claim.request, response, until=pending.until)
            except Exception as error:  # noqa: BLE001 - the work is done and a response is stored; the caller gets the newer one
                self._not_replaced.report(error, id=claim.request.id)

    @asynccontextmanager
    async def _keep_claim(self, claim: IdempotencyClaim) -> AsyncGenerator[None]:
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

    async def _store_response(self, claim: IdempotencyClaim, response: StoredResponse) -> None:
        try:
            is_stored = await self._store.store_separately(claim, response)
        except Exception as error:  # noqa: BLE001 - the work is done, so the caller must get its response
            self._not_kept.report(error, id=claim.request.id)
        else:
            if not is_stored:
                _log.warning("idempotency.claim_lost", id=claim.request.id)

    async def _claim(self, request: IdempotentRequest) -> IdempotencyClaim | StoredResponse:
        claim = self._store.make_claim(request)
        try:
            return await self._store.claim(request, claim=claim)
        except (EngineUnavailable, asyncio.CancelledError):
            self._store.release_later(claim)  # its transaction may be committed
            raise

    async def _release_after(self, error: BaseException, claim: IdempotencyClaim, *, is_atomic: bool) -> None:
        """
        Release the claim to a request that failed with *error*, so that it can be repeated.

        If the store became unavailable, or the client has disconnected, a transaction may still be committed. It then has the response if
        the work *is_atomic*, and the claim is no longer there to be released. Otherwise the lease must expire before a new attempt.
        """
        if not (isinstance(error, asyncio.CancelledError) or (isinstance(error, EngineUnavailable) and error.engine == "database")):
            await self._release(claim)
        elif is_atomic:
            self._store.release_later(claim)

    async def _release(self, claim: IdempotencyClaim) -> None:
        try:
            await self._store.release(claim)
        except OUTAGES:
            self._store.release_later(claim)
        except Exception as error:  # noqa: BLE001 - the caller must get the original error
            self._not_freed.report(error, id=claim.request.id)


def _to_stored_response(response: Response, secrets: frozenset[str]) -> StoredResponse:
    """Return the stored form of a response. Its headers are those of the route; those of the request are added when it is sent."""
    body = _get_body(response)
    if body is None or len(body) > MAX_STORED_BODY_BYTES:
        return StoredResponse(status=response.status_code, body_kind="large")
    if secrets and body:
        secret_ids = _find_secret_ids(orjson.loads(body), secrets)
        if secret_ids is not None:
            return StoredResponse(status=response.status_code, body_kind="secret", created_ids=tuple(secret_ids))
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
    return StoredResponse(status=response.status_code, headers=headers, body=body)


def _get_body(response: Response) -> bytes | None:
    """Return the body; None if it is a stream."""
    return None if isinstance(response, EventStream) or not hasattr(response, "body") else bytes(response.body)


def _find_secret_ids(document: object, secrets: frozenset[str]) -> list[str] | None:
    """Return the ids of the objects in *document* that contain one of *secrets*; None if no object does."""
    ids, has_secret, pending = list[str](), False, [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(reversed(cast("list[object]", value)))
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            if any(fields.get(name) is not None for name in secrets):
                has_secret = True
                ids.extend([str(fields["id"])] if "id" in fields else [])
            pending.extend(reversed(list(fields.values())))
    return ids if has_secret else None


async def _replay(stored_response: StoredResponse, rebuild: RebuildResponse | None) -> Response:
    if stored_response.body_kind == "secret":
        message = (
            "This request succeeded before, and its response contained a secret, which is shown only once. "
            "If the secret is lost, rotate it or create another."
        )
        raise (
            SecretAlreadyShown(message, id=stored_response.created_ids[0])
            if len(stored_response.created_ids) == 1
            else SecretAlreadyShown(message, ids=list(stored_response.created_ids))
        )
    if stored_response.body_kind == "made" and rebuild is not None:
        response = await rebuild(stored_response.created_ids[0])
        response.status_code = stored_response.status
        response.raw_headers.append(_REPLAY_HEADER)
        return response
    if stored_response.body_kind != "whole":
        raise ResponseNotStored(
            f"This request succeeded before with status {stored_response.status}. Its response was too large to store.",
            answered=stored_response.status,
        )
    response = Response(stored_response.body, stored_response.status)
    response.raw_headers = [*((name.encode("latin-1"), value.encode("latin-1")) for name, value in stored_response.headers), _REPLAY_HEADER]
    return response
