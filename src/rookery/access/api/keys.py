"""The operations that both kinds of key share, and CSV responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access import serializers
from rookery.access.errors import DelegationDenied, KeyInGrace
from rookery.access.keyring import Keyring
from rookery.access.models import TEST, Actor, Caller, Environment, KeyCall, KeyWithSecret, KeyWithUsage, UsageField
from rookery.access.schemas import KeyCallsQuery, KeysQuery, RotateBody, UsageResponse, UsageSumsQuery
from rookery.access.scopes import ADDRESSES_SCOPE
from rookery.access.usage_log import UsageLog
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.http.responses import CSV_MEDIA_TYPE, csv_response, stream_csv_response, wants_csv
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.projections import Projection
from rookery.kernel.schema import Page

READ_SCOPE, WRITE_SCOPE, DELETE_SCOPE = "keys:read", "keys:write", "keys:delete"

_MAX_SUMS = 10_000


class CallResponse(Projection[KeyCall]):
    """One call of a key."""

    hidden = frozenset({"key_id", "workspace_id"})

    is_upstream_error: Annotated[
        bool, Field(description="The status is that of an error of a tool, its server or a language model, which Rookery passed on.")
    ]
    address: Annotated[str | None, Field(description="Needs audit:read; omitted without it.")] = None


key_operation = partial(Operation, tags=("Keys",))


@dataclass(frozen=True, slots=True)
class KeyOperations:
    """The shared operations. Each handler calls the keyring or the usage log."""

    keyring: Keyring
    usage: UsageLog
    clock: Clock

    def shared_operations(
        self, base: str, title: str, response_model: type[BaseModel], created_model: type[BaseModel], secret_name: str
    ) -> list[Operation]:
        """Return the operations under *base* that both kinds have; *title* is the kind's name in summaries."""
        one, noun = f"{base}/{{key_id}}", title.lower().replace(" ", "_")
        key = partial(key_operation, present=self.present_key, response_model=response_model, etag=True)
        return [
            key_operation(method="GET", path=base, handler=self.get_keys, present=self.present_key, required_scope=READ_SCOPE,
                          response_model=Page[response_model], operation_id=f"list_{noun}s", summary=f"List {title}s, newest first"),
            key_operation(method="GET", path=f"{base}/usage", handler=self.get_usage_sums, required_scope=READ_SCOPE,
                          response_model=UsageResponse, operation_id=f"get_{noun}_totals", summary=f"Add up the calls of all {title}s",
                          media_types=(CSV_MEDIA_TYPE,), response_headers=("Content-Disposition",)),
            key(method="GET", path=one, handler=self.load_key, required_scope=READ_SCOPE, operation_id=f"get_{noun}",
                summary=f"Show an {title}"),
            key_operation(method="DELETE", path=one, handler=self.delete_key, required_scope=DELETE_SCOPE, status=204,
                          operation_id=f"delete_{noun}", summary=f"Delete an {title}"),
            key_operation(method="POST", path=f"{one}/rotate", handler=self.post_rotate, present=self.present_new_key,
                          committed=KeyWithSecret, required_scope=WRITE_SCOPE, status=201, response_model=created_model, idempotent=True,
                          secret_fields=(secret_name,), etag=True, errors=(Conflict, KeyInGrace, DelegationDenied),
                          operation_id=f"rotate_{noun}", summary=f"Rotate an {title}"),
            key(method="POST", path=f"{one}/suspend", handler=self.post_suspend, required_scope=WRITE_SCOPE, errors=(Conflict,),
                operation_id=f"suspend_{noun}", summary=f"Suspend an {title}", allowed_on_full_disk=True),
            key(method="POST", path=f"{one}/resume", handler=self.post_resume, required_scope=WRITE_SCOPE, errors=(Conflict,),
                operation_id=f"resume_{noun}", summary=f"Resume a suspended {title}"),
            key_operation(method="GET", path=f"{one}/usage", handler=self.get_calls, present=_present_call, required_scope=READ_SCOPE,
                          response_model=Page[CallResponse], operation_id=f"list_{noun}_calls",
                          summary=f"List the calls made with an {title}, newest first",
                          media_types=(CSV_MEDIA_TYPE,), response_headers=("Content-Disposition",)),
        ]  # fmt: skip

    async def get_keys(self, caller: Caller, query: KeysQuery) -> ItemPage[KeyWithUsage]:
        """List the keys of the workspace, newest first. A test key sees test keys only."""
        environment = visible_environment(caller) or query.environment
        keys = self.keyring.list_page(
            caller.public_workspace_id,
            page=query.slice,
            environment=environment,
            status=query.status,
            text=query.q or "",
        )
        return ItemPage(*await keys)

    async def load_key(self, caller: Caller, key_id: str) -> KeyWithUsage:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.
        """
        return await self.keyring.get(caller.public_workspace_id, key_id, environment=visible_environment(caller))

    async def delete_key(self, caller: Caller, key_id: str, expected: ExpectedETags) -> None:
        """Delete a key. It is rejected from the next request on."""
        await self.keyring.delete(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected)

    async def post_rotate(self, caller: Caller, key_id: str, body: RotateBody, expected: ExpectedETags) -> KeyWithSecret:
        """Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted."""
        by, grace_hours = Actor.from_caller(caller), body.grace_period_hours
        return await self.keyring.rotate(caller.public_workspace_id, key_id, grace_hours=grace_hours, by=by, expected=expected)

    async def post_suspend(self, caller: Caller, key_id: str, expected: ExpectedETags) -> KeyWithUsage:
        """Suspend a key: its requests are rejected until it is resumed."""
        await self.keyring.suspend(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected)
        return await self.load_key(caller, key_id)

    async def post_resume(self, caller: Caller, key_id: str, expected: ExpectedETags) -> KeyWithUsage:
        """End the suspension of a key."""
        await self.keyring.resume(caller.public_workspace_id, key_id, by=Actor.from_caller(caller), expected=expected)
        return await self.load_key(caller, key_id)

    async def get_usage_sums(self, caller: Caller, query: UsageSumsQuery, request: Request) -> Response | Mapping[str, object]:
        """Return the number of calls by day, status and route. Calls of deleted keys are included."""
        by, filters = frozenset[UsageField](query.by), query.to_filter(visible_environment(caller))
        usage_sums = await self.usage.list_sums(caller.public_workspace_id, self.keyring.kind, filters, by, limit=_MAX_SUMS + 1)
        if len(usage_sums) > _MAX_SUMS:
            raise ValidationFailed({"by": [f"gives more than {_MAX_SUMS:,} totals; group by fewer fields, or select fewer days"]})
        rows = [serializers.serialize_usage_sum(usage_sum, by) for usage_sum in usage_sums]
        if wants_csv(request, query.format):
            return csv_response(rows, serializers.usage_columns(by), file_name=f"{self.keyring.kind}-keys-usage.csv")
        return {
            "since": query.since and query.since.isoformat(),
            "until": query.until and query.until.isoformat(),
            "calls": sum(usage_sum.calls for usage_sum in usage_sums),
            "errors": sum(usage_sum.errors for usage_sum in usage_sums),
            "upstream_errors": sum(usage_sum.upstream_errors for usage_sum in usage_sums),
            "data": rows,
        }

    async def get_calls(self, caller: Caller, key_id: str, query: KeyCallsQuery, request: Request) -> Response | ItemPage[KeyCall]:
        """List the calls of a key, newest first. Calls of a deleted key appear in the totals only."""
        workspace_id, filters = caller.public_workspace_id, query.to_filter()
        await self.load_key(caller, key_id)
        if wants_csv(request, query.format):
            rows = (_present_call(caller, call) async for call in self.usage.iter_calls(workspace_id, key_id, filters))
            columns = serializers.call_columns(with_addresses=caller.has_scope(ADDRESSES_SCOPE))
            return stream_csv_response(rows, columns, file_name=f"{key_id}-calls.csv")
        return ItemPage(*await self.usage.list_call_page(workspace_id, key_id, filters, page=query.slice))

    def present_key(self, caller: Caller, key: KeyWithUsage) -> Output:
        """Return the response with a key, without addresses if the caller may not see them."""
        with_addresses = caller.has_scope(ADDRESSES_SCOPE)
        return Output(body=serializers.serialize_key(key, self.clock(), with_addresses=with_addresses), version=key.version)

    def present_new_key(self, caller: Caller, key: KeyWithSecret) -> Output:
        """Return the response with a new key and its secret."""
        return present_new_key(caller, key, self.clock())


def present_new_key(caller: Caller, key: KeyWithSecret, now: datetime) -> Output:
    """Return the response with a new key and its secret, without addresses if the caller may not see them."""
    with_addresses = caller.has_scope(ADDRESSES_SCOPE)
    return Output(body=serializers.serialize_key_with_secret(key, now, with_addresses=with_addresses), version=key.version)


def _present_call(caller: Caller, call: KeyCall) -> Mapping[str, object]:
    return serializers.serialize_call(call, with_addresses=caller.has_scope(ADDRESSES_SCOPE))


def visible_environment(caller: Caller) -> Environment | None:
    """Return the environment whose keys the caller can see: test for a test key, None (all) for a live key."""
    return TEST if caller.environment == TEST else None
