"""What both kinds of key can be asked over HTTP alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access import shown
from rookery.access.api import sheets
from rookery.access.errors import KeyInGrace, NotHeld
from rookery.access.guard import caller_of
from rookery.access.keyring import Keyring
from rookery.access.models import TEST, Actor, Caller, Environment, Minted, UsageField
from rookery.access.schemas import CallsQuery, KeysQuery, RotateBody, SumsQuery, UsageAnswer
from rookery.access.scopes import ADDRESSES
from rookery.access.sheets import call_columns, sum_columns
from rookery.access.usage import Usage
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict, ValidationFailed
from rookery.kernel.http import Route, allowed_on_full_disk, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page
from rookery.kernel.wire import Answer, Moment

READ, WRITE, DELETE = "keys:read", "keys:write", "keys:delete"

_MOST_SUMS = 10_000


class CallAnswer(Answer):
    """One call that was made with a key."""

    at: Moment
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
    usage: Usage
    clock: Clock

    def common(self, base: str, called: str, answers: type[BaseModel], made: type[BaseModel]) -> list[Route]:
        """Return the routes under *base* that both kinds have; *called* is what people call such a key."""
        one = f"{base}/{{key_id}}"
        noun = called.lower().replace(" ", "_")
        secret = "plaintext_key" if self.keyring.kind == "api" else "key"
        tags = ("Keys",)
        return [
            Route(method="GET", path=base, handler=self.get_keys, needs=READ, answers=Page[answers],
                  operation_id=f"list_{noun}s", summary=f"List {called}s, newest first", tags=tags),
            Route(method="GET", path=f"{base}/usage", handler=self.get_sums, needs=READ, answers=UsageAnswer,
                  operation_id=f"get_{noun}_totals", summary=f"Add up the calls of all {called}s", tags=tags),
            Route(method="GET", path=one, handler=self.get_key, needs=READ, answers=answers,
                  operation_id=f"get_{noun}", summary=f"Show an {called}", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_key, needs=DELETE, status=204,
                  operation_id=f"delete_{noun}", summary=f"Delete an {called}", tags=tags),
            Route(method="POST", path=f"{one}/rotate", handler=self.post_rotate, needs=WRITE, status=201, answers=made, once=True,
                  secrets=(secret,), operation_id=f"rotate_{noun}", summary=f"Rotate an {called}", tags=tags),
            Route(method="POST", path=f"{one}/suspend", handler=self.post_suspend, needs=WRITE, answers=answers,
                  operation_id=f"suspend_{noun}", summary=f"Suspend an {called}", tags=tags),
            Route(method="POST", path=f"{one}/resume", handler=self.post_resume, needs=WRITE, answers=answers,
                  operation_id=f"resume_{noun}", summary=f"Resume a suspended {called}", tags=tags),
            Route(method="GET", path=f"{one}/usage", handler=self.get_calls, needs=READ, answers=Page[CallAnswer],
                  operation_id=f"list_{noun}_calls", summary=f"List the calls made with an {called}, newest first", tags=tags),
        ]  # fmt: skip

    async def get_keys(self, request: Request, query: Annotated[KeysQuery, Query()]) -> Response:
        """List the keys of the workspace, newest first. A test key sees test keys only."""
        caller = caller_of(request)
        environment = environment_of(caller) or query.environment
        found, total = await self.keyring.page(
            caller.shown_workspace_id, limit=query.per_page, offset=query.offset, environment=environment, status=query.status
        )
        at, with_addresses = self.clock(), caller.may(ADDRESSES)
        items = [shown.entry(each, at, with_addresses=with_addresses) for each in found]
        return page(request, items, query=query, total=total)

    @with_etag
    async def get_key(self, request: Request, key_id: str) -> Response:
        """
        Return a key without its secret.

        Its ETag changes with its settings, not with `call_count`, `last_used_at`, `last_used_ip` and `status`.
        """
        return await self.answer(caller_of(request), key_id)

    @by_etag
    async def delete_key(self, request: Request, key_id: str) -> Response:
        """Delete a key. It is rejected from the next request on."""
        caller = caller_of(request)
        await self.keyring.delete(caller.shown_workspace_id, key_id, by=Actor.of(caller), expected=expected(request))
        return Response(status_code=204)

    @with_etag
    @by_etag
    @describe(errors=(Conflict, KeyInGrace, NotHeld))
    async def post_rotate(self, request: Request, body: RotateBody, key_id: str) -> Response:
        """Create a successor with the same settings. Both keys work until the grace period ends, then the old one is deleted."""
        caller = caller_of(request)
        answer = respond_with(Minted, lambda made: self.minted(caller, made))
        grace, tags = body.grace_period_hours, expected(request)
        rotated = await self.keyring.rotate(caller.shown_workspace_id, key_id, grace_hours=grace, by=Actor.of(caller), expected=tags)
        return answer(rotated)

    @allowed_on_full_disk
    @with_etag
    @by_etag
    @describe(errors=(Conflict,))
    async def post_suspend(self, request: Request, key_id: str) -> Response:
        """Suspend a key: its requests are rejected until it is resumed."""
        caller = caller_of(request)
        await self.keyring.suspend(caller.shown_workspace_id, key_id, by=Actor.of(caller), expected=expected(request))
        return await self.answer(caller, key_id)

    @with_etag
    @by_etag
    @describe(errors=(Conflict,))
    async def post_resume(self, request: Request, key_id: str) -> Response:
        """End the suspension of a key."""
        caller = caller_of(request)
        await self.keyring.resume(caller.shown_workspace_id, key_id, by=Actor.of(caller), expected=expected(request))
        return await self.answer(caller, key_id)

    @describe(media=("text/csv",), sends=("Content-Disposition",))
    async def get_sums(self, request: Request, query: Annotated[SumsQuery, Query()]) -> Response:
        """Return the number of calls by day, status and route. Calls of deleted keys are included."""
        caller, by = caller_of(request), frozenset[UsageField](query.by)
        which = query.sums(environment_of(caller))
        found = await self.usage.sums(caller.shown_workspace_id, self.keyring.kind, which, by, limit=_MOST_SUMS + 1)
        if len(found) > _MOST_SUMS:
            raise ValidationFailed({"by": [f"gives more than {_MOST_SUMS:,} sums; ask for fewer fields, or fewer days"]})
        rows = [shown.usage_sum(each, by) for each in found]
        if query.format == "csv":
            return sheets.answer(rows, sum_columns(by), name=f"{self.keyring.kind}-keys-usage.csv")
        return reply(
            {
                "since": query.since and query.since.isoformat(),
                "until": query.until and query.until.isoformat(),
                "calls": sum(each.calls for each in found),
                "errors": sum(each.errors for each in found),
                "data": rows,
            }
        )

    @describe(media=("text/csv",), sends=("Content-Disposition",))
    async def get_calls(self, request: Request, key_id: str, query: Annotated[CallsQuery, Query()]) -> Response:
        """List the calls of a key, newest first. Calls of a deleted key appear in the totals only."""
        caller, which = caller_of(request), query.calls()
        workspace_id, with_addresses = caller.shown_workspace_id, caller.may(ADDRESSES)
        await self.keyring.get(workspace_id, key_id, environment=environment_of(caller))
        if query.format == "csv":
            made = self.usage.calls(workspace_id, key_id, which)
            rows = (shown.call(each, with_addresses=with_addresses) async for each in made)
            return sheets.stream(rows, call_columns(with_addresses=with_addresses), name=f"{key_id}-calls.csv")
        found, total = await self.usage.page(workspace_id, key_id, which, limit=query.per_page, offset=query.offset)
        items = [shown.call(each, with_addresses=with_addresses) for each in found]
        return page(request, items, query=query, total=total)

    async def answer(self, caller: Caller, key_id: str) -> Response:
        """Return a key as the caller may see it."""
        found = await self.keyring.get(caller.shown_workspace_id, key_id, environment=environment_of(caller))
        return tagged(shown.entry(found, self.clock(), with_addresses=caller.may(ADDRESSES)), found.version)

    def minted(self, caller: Caller, made: Minted) -> Response:
        """Return a key just made, with its secret."""
        return tagged(shown.minted(made, self.clock(), with_addresses=caller.may(ADDRESSES)), made.version, status=201)


def environment_of(caller: Caller) -> Environment | None:
    """Return of which environment the caller sees keys: a test key test keys alone, a live key all (D-25)."""
    return TEST if caller.environment == TEST else None
