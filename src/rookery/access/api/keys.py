"""The routes that both kinds of key share, and CSV responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from rookery.access import serializers
from rookery.access.csv_export import call_columns, csv_header, csv_lines, usage_columns
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
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import Page, ResponseModel, Timestamp

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "keys:read", "keys:write", "keys:delete"

_MAX_SUMS = 10_000
_CSV_ROWS_PER_CHUNK = 2_000
_CSV_MEDIA_TYPE = "text/csv; charset=utf-8"


class CallResponse(ResponseModel):
    """One call of a key."""

    at: Timestamp
    method: str
    route: str
    status: int
    duration_ms: float
    address: Annotated[str | None, Field(description="Needs audit:read; omitted without it.")] = None
    request_id: str


@dataclass(frozen=True, slots=True)
class KeyRoutes:
    """The shared routes. Handlers only parse the request, call the keyring and build the response."""

    keyring: Keyring
    usage: UsageLog
    clock: Clock

    def shared_routes(self, base: str, title: str, response_model: type[BaseModel], created_model: type[BaseModel]) -> list[Route]:
        """Return the routes under *base* that both kinds have; *title* is the kind's name in summaries."""
        key_path = f"{base}/{{key_id}}"
        noun = title.lower().replace(" ", "_")
        secret = "plaintext_key" if self.keyring.kind == "api" else "key"
        tags = ("Keys",)
        return [
            Route(method="GET", path=base, handler=self.get_keys, required_scope=READ_SCOPE, response_model=Page[response_model],
                  operation_id=f"list_{noun}s", summary=f"List {title}s, newest first", tags=tags),
            Route(method="GET", path=f"{base}/usage", handler=self.get_usage_sums, required_scope=READ_SCOPE, response_model=UsageResponse,
                  operation_id=f"get_{noun}_totals", summary=f"Add up the calls of all {title}s", tags=tags),
            Route(method="GET", path=key_path, handler=self.get_key, required_scope=READ_SCOPE, response_model=response_model,
                  operation_id=f"get_{noun}", summary=f"Show an {title}", tags=tags),
            Route(method="DELETE", path=key_path, handler=self.delete_key, required_scope=DELETE_SCOPE, status=204,
                  operation_id=f"delete_{noun}", summary=f"Delete an {title}", tags=tags),
            Route(method="POST", path=f"{key_path}/rotate", handler=self.post_rotate, required_scope=WRITE_SCOPE, status=201,
                  response_model=created_model, idempotent=True,
                  secret_fields=(secret,), operation_id=f"rotate_{noun}", summary=f"Rotate an {title}", tags=tags),
            Route(method="POST", path=f"{key_path}/suspend", handler=self.post_suspend, required_scope=WRITE_SCOPE,
                  response_model=response_model, operation_id=f"suspend_{noun}", summary=f"Suspend an {title}", tags=tags),
            Route(method="POST", path=f"{key_path}/resume", handler=self.post_resume, required_scope=WRITE_SCOPE,
                  response_model=response_model, operation_id=f"resume_{noun}", summary=f"Resume a suspended {title}", tags=tags),
            Route(method="GET", path=f"{key_path}/usage", handler=self.get_calls, required_scope=READ_SCOPE,
                  response_model=Page[CallResponse], operation_id=f"list_{noun}_calls",
                  summary=f"List the calls made with an {title}, newest first", tags=tags),
        ]  # fmt: skip

    async def get_keys(self, request: Request, query: Annotated[KeysQuery, Query()]) -> Response:
        """List the keys of the workspace, newest first. A test key sees test keys only."""
        caller = get_caller(request)
        environment = visible_environment(caller) or query.environment
        keys, total = await self.keyring.list_page(
            caller.public_workspace_id, limit=query.per_page, offset=query.offset, environment=environment, status=query.status
        )
        at, with_addresses = self.clock(), caller.has_scope(ADDRESSES_SCOPE)
        items = [serializers.serialize_key(key, at, with_addresses=with_addresses) for key in keys]
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
        await self.keyring.delete(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=read_if_match(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict, KeyInGrace, DelegationDenied))
    async def post_rotate(self, request: Request, body: RotateBody, key_id: str) -> Response:
        """Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted."""
        caller = get_caller(request)
        respond = respond_with(KeyWithSecret, lambda key: self.new_key_response(caller, key))
        grace, tags = body.grace_period_hours, read_if_match(request)
        rotated = await self.keyring.rotate(
            caller.public_workspace_id, key_id, grace_hours=grace, by=Actor.from_caller(caller), expected=tags
        )
        return respond(rotated)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_suspend(self, request: Request, key_id: str) -> Response:
        """Suspend a key: its requests are rejected until it is resumed."""
        caller = get_caller(request)
        await self.keyring.suspend(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=read_if_match(request))
        return await self.key_response(caller, key_id)

    @with_etag
    @by_etag
    @document_route(errors=(Conflict,))
    async def post_resume(self, request: Request, key_id: str) -> Response:
        """End the suspension of a key."""
        caller = get_caller(request)
        await self.keyring.resume(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=read_if_match(request))
        return await self.key_response(caller, key_id)

    @document_route(media_types=("text/csv",), response_headers=("Content-Disposition",))
    async def get_usage_sums(self, request: Request, query: Annotated[UsageSumsQuery, Query()]) -> Response:
        """Return the number of calls by day, status and route. Calls of deleted keys are included."""
        caller, by = get_caller(request), frozenset[UsageField](query.by)
        filters = query.to_filter(visible_environment(caller))
        usage_sums = await self.usage.list_sums(caller.public_workspace_id, self.keyring.kind, filters, by, limit=_MAX_SUMS + 1)
        if len(usage_sums) > _MAX_SUMS:
            raise ValidationFailed({"by": [f"gives more than {_MAX_SUMS:,} totals; group by fewer fields, or select fewer days"]})
        rows = [serializers.serialize_usage_sum(usage_sum, by) for usage_sum in usage_sums]
        if query.format == "csv":
            return _csv_response(rows, usage_columns(by), file_name=f"{self.keyring.kind}-keys-usage.csv")
        return json_response(
            {
                "since": query.since and query.since.isoformat(),
                "until": query.until and query.until.isoformat(),
                "calls": sum(usage_sum.calls for usage_sum in usage_sums),
                "errors": sum(usage_sum.errors for usage_sum in usage_sums),
                "data": rows,
            }
        )

    @document_route(media_types=("text/csv",), response_headers=("Content-Disposition",))
    async def get_calls(self, request: Request, key_id: str, query: Annotated[KeyCallsQuery, Query()]) -> Response:
        """List the calls of a key, newest first. Calls of a deleted key appear in the totals only."""
        caller, filters = get_caller(request), query.to_filter()
        workspace_id, with_addresses = caller.public_workspace_id, caller.has_scope(ADDRESSES_SCOPE)
        await self.keyring.get(workspace_id, key_id, environment=visible_environment(caller))
        if query.format == "csv":
            calls = self.usage.iter_calls(workspace_id, key_id, filters)
            rows = (serializers.serialize_call(call, with_addresses=with_addresses) async for call in calls)
            return _stream_csv_response(rows, call_columns(with_addresses=with_addresses), file_name=f"{key_id}-calls.csv")
        key_calls, total = await self.usage.list_call_page(workspace_id, key_id, filters, limit=query.per_page, offset=query.offset)
        items = [serializers.serialize_call(call, with_addresses=with_addresses) for call in key_calls]
        return page_response(request, items, query=query, total=total)

    async def key_response(self, caller: Caller, key_id: str) -> Response:
        """Return the response with a key, without addresses if the caller may not see them."""
        key = await self.keyring.get(caller.public_workspace_id, key_id, environment=visible_environment(caller))
        return json_with_etag(serializers.serialize_key(key, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE)), key.version)

    def new_key_response(self, caller: Caller, key: KeyWithSecret) -> Response:
        """Return the response with a new key and its secret."""
        return json_with_etag(
            serializers.serialize_key_with_secret(key, self.clock(), with_addresses=caller.has_scope(ADDRESSES_SCOPE)),
            key.version,
            status=201,
        )


def visible_environment(caller: Caller) -> Environment | None:
    """Return the environment whose keys the caller can see: test for a test key, None (all) for a live key (D-25)."""
    return TEST if caller.environment == TEST else None


def _csv_response(rows: Iterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download."""
    return Response(csv_header(columns) + csv_lines(rows, columns), headers=_csv_headers(file_name), media_type=_CSV_MEDIA_TYPE)


def _stream_csv_response(rows: AsyncIterable[Mapping[str, object]], columns: Sequence[str], *, file_name: str) -> Response:
    """Return a CSV file for download, written while its rows are read, so that memory stays bounded."""

    async def chunks() -> AsyncGenerator[str]:
        yield csv_header(columns)
        buffered: list[Mapping[str, object]] = []
        async for row in rows:
            buffered.append(row)
            if len(buffered) >= _CSV_ROWS_PER_CHUNK:
                yield csv_lines(buffered, columns)
                buffered = []
        yield csv_lines(buffered, columns)

    return StreamingResponse(chunks(), headers=_csv_headers(file_name), media_type=_CSV_MEDIA_TYPE)


def _csv_headers(file_name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{file_name}"'}
