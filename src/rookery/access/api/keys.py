"""What both kinds of key can be asked over HTTP alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access import serializers
from rookery.access.api import csv_responses
from rookery.access.csv_export import call_columns, usage_columns
from rookery.access.errors import DelegationDenied, KeyInGrace
from rookery.access.guard import get_caller
from rookery.access.keyring import Keyring
from rookery.access.models import TEST, Actor, Caller, Environment, KeyWithSecret, UsageField
from rookery.access.schemas import KeyCallsQuery, KeysQuery, RotateBody, UsageResponse, UsageSumsQuery
from rookery.access.scopes import ADDRESSES_SCOPE
from rookery.access.usage_log import UsageLog
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.http import Route, allowed_on_full_disk, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pagination import Page
from rookery.kernel.schema import ResponseModel, Timestamp

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "keys:read", "keys:write", "keys:delete"

_MAX_SUMS = 10_000


class CallResponse(ResponseModel):
    """One call that was made with a key."""

    at: Timestamp
    method: str
    route: str
    status: int
    duration_ms: float
    address: Annotated[str | None, Field(description="Needs audit:read; left out without it.")] = None
    request_id: str


@dataclass(frozen=True, slots=True)
class KeyRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    keyring: Keyring
    usage: UsageLog
    clock: Clock

    def shared_routes(self, base: str, title: str, response_model: type[BaseModel], created_model: type[BaseModel]) -> list[Route]:
        """Return the routes under *base* that both kinds have; *title* is what people call such a key."""
        one = f"{base}/{{key_id}}"
        noun = title.lower().replace(" ", "_")
        secret = "plaintext_key" if self.keyring.kind == "api" else "key"
        tags = ("Keys",)
        return [
            Route(method="GET", path=base, handler=self.get_keys, required_scope=READ_SCOPE, response_model=Page[response_model],
                  operation_id=f"list_{noun}s", summary=f"List {title}s, newest first", tags=tags),
            Route(method="GET", path=f"{base}/usage", handler=self.get_usage_sums, required_scope=READ_SCOPE, response_model=UsageResponse,
                  operation_id=f"get_{noun}_totals", summary=f"Add up the calls of all {title}s", tags=tags),
            Route(method="GET", path=one, handler=self.get_key, required_scope=READ_SCOPE, response_model=response_model,
                  operation_id=f"get_{noun}", summary=f"Show an {title}", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_key, required_scope=DELETE_SCOPE, status=204,
                  operation_id=f"delete_{noun}", summary=f"Delete an {title}", tags=tags),
            Route(method="POST", path=f"{one}/rotate", handler=self.post_rotate, required_scope=WRITE_SCOPE, status=201,
                  response_model=created_model, idempotent=True,
                  secret_fields=(secret,), operation_id=f"rotate_{noun}", summary=f"Rotate an {title}", tags=tags),
            Route(method="POST", path=f"{one}/suspend", handler=self.post_suspend, required_scope=WRITE_SCOPE,
                  response_model=response_model, operation_id=f"suspend_{noun}", summary=f"Suspend an {title}", tags=tags),
            Route(method="POST", path=f"{one}/resume", handler=self.post_resume, required_scope=WRITE_SCOPE, response_model=response_model,
                  operation_id=f"resume_{noun}", summary=f"Resume a suspended {title}", tags=tags),
            Route(method="GET", path=f"{one}/usage", handler=self.get_calls, required_scope=READ_SCOPE, response_model=Page[CallResponse],
                  operation_id=f"list_{noun}_calls", summary=f"List the calls made with an {title}, newest first", tags=tags),
        ]  # fmt: skip

    async def get_keys(self, request: Request, query: Annotated[KeysQuery, Query()]) -> Response:
        """List the keys of the workspace, newest first. A test key sees test keys only."""
        caller = get_caller(request)
        environment = visible_environment(caller) or query.environment
        found, total = await self.keyring.list_page(
            caller.public_workspace_id, limit=query.per_page, offset=query.offset, environment=environment, status=query.status
        )
        at, with_addresses = self.clock(), caller.has_scope(ADDRESSES_SCOPE)
        items = [serializers.serialize_key(each, at, with_addresses=with_addresses) for each in found]
        return page_response(request, items, query=query, total=total)

    @with_etag
    async def get_key(self, request: Request, key_id: str) -> Response:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.
        """
        return await self.key_response(get_caller(request), key_id)

    @by_etag
    async def delete_key(self, request: Request, key_id: str) -> Response:
        """Delete a key. It is rejected from the next request on."""
        caller = get_caller(request)
        await self.keyring.delete(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict, KeyInGrace, DelegationDenied))
    async def post_rotate(self, request: Request, body: RotateBody, key_id: str) -> Response:
        """Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted."""
        caller = get_caller(request)
        answer = respond_with(KeyWithSecret, lambda made: self.new_key_response(caller, made))
        grace, tags = body.grace_period_hours, expected(request)
        rotated = await self.keyring.rotate(
            caller.public_workspace_id, key_id, grace_hours=grace, by=Actor.from_caller(caller), expected=tags
        )
        return answer(rotated)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_suspend(self, request: Request, key_id: str) -> Response:
        """Suspend a key: its requests are rejected until it is resumed."""
        caller = get_caller(request)
        await self.keyring.suspend(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected(request))
        return await self.key_response(caller, key_id)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_resume(self, request: Request, key_id: str) -> Response:
        """End the suspension of a key."""
        caller = get_caller(request)
        await self.keyring.resume(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected(request))
        return await self.key_response(caller, key_id)

    @document_route(media_types=("text/csv",), response_headers=("Content-Disposition",))
    async def get_usage_sums(self, request: Request, query: Annotated[UsageSumsQuery, Query()]) -> Response:
        """Return the number of calls by day, status and route. Calls of deleted keys are included."""
        caller, by = get_caller(request), frozenset[UsageField](query.by)
        which = query.to_filter(visible_environment(caller))
        found = await self.usage.list_sums(caller.public_workspace_id, self.keyring.kind, which, by, limit=_MAX_SUMS + 1)
        if len(found) > _MAX_SUMS:
            raise ValidationFailed({"by": [f"gives more than {_MAX_SUMS:,} sums; ask for fewer fields, or fewer days"]})
        rows = [serializers.serialize_usage_sum(each, by) for each in found]
        if query.format == "csv":
            return csv_responses.csv_response(rows, usage_columns(by), file_name=f"{self.keyring.kind}-keys-usage.csv")
        return json_response(
            {
                "since": query.since and query.since.isoformat(),
                "until": query.until and query.until.isoformat(),
                "calls": sum(each.calls for each in found),
                "errors": sum(each.errors for each in found),
                "data": rows,
            }
        )

    @document_route(media_types=("text/csv",), response_headers=("Content-Disposition",))
    async def get_calls(self, request: Request, key_id: str, query: Annotated[KeyCallsQuery, Query()]) -> Response:
        """List the calls of a key, newest first. Calls of a deleted key appear in the totals only."""
        caller, which = get_caller(request), query.to_filter()
        workspace_id, with_addresses = caller.public_workspace_id, caller.has_scope(ADDRESSES_SCOPE)
        await self.keyring.get(workspace_id, key_id, environment=visible_environment(caller))
        if query.format == "csv":
            made = self.usage.iter_calls(workspace_id, key_id, which)
            rows = (serializers.serialize_call(each, with_addresses=with_addresses) async for each in made)
            return csv_responses.stream_csv_response(rows, call_columns(with_addresses=with_addresses), file_name=f"{key_id}-calls.csv")
        found, total = await self.usage.list_call_page(workspace_id, key_id, which, limit=query.per_page, offset=query.offset)
        items = [serializers.serialize_call(each, with_addresses=with_addresses) for each in found]
        return page_response(request, items, query=query, total=total)

    async def key_response(self, caller: Caller, key_id: str) -> Response:
        """Return a key as the caller may see it."""
        found = await self.keyring.get(caller.public_workspace_id, key_id, environment=visible_environment(caller))
        return tagged(serializers.serialize_key(found, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE)), found.version)

    def new_key_response(self, caller: Caller, made: KeyWithSecret) -> Response:
        """Return a key just made, with its secret."""
        return tagged(
            serializers.serialize_key_with_secret(made, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE)),
            made.version,
            status=201,
        )


def visible_environment(caller: Caller) -> Environment | None:
    """Return of which environment the caller sees keys: a test key test keys alone, a live key all (D-25)."""
    return TEST if caller.environment == TEST else None
