"""`/workspaces` (D-29): the key's own; with platform:workspaces all of them, to be made, renamed and deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access import shown
from rookery.access.api_keys import ApiKeys
from rookery.access.errors import NameTaken, NotHeld
from rookery.access.guard import caller_of
from rookery.access.models import TEST, Actor, Caller, Minted, Workspace
from rookery.access.schemas import (
    DeleteWorkspaceQuery,
    DeletionAnswer,
    NewApiKeyAnswer,
    NewApiKeyBody,
    NewWorkspaceBody,
    WorkspaceAnswer,
)
from rookery.access.scopes import ADDRESSES, ALL_WORKSPACES
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Route, describe, page, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page, PageQuery

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WorkspaceRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing but whose workspaces there are for a caller."""

    workspaces: Workspaces
    api_keys: ApiKeys
    clock: Clock

    def routes(self) -> list[Route]:
        """Return the table, one line per endpoint."""
        base, one, tags = "/workspaces", "/workspaces/{workspace_id}", ("Workspaces",)
        return [
            Route(method="GET", path=base, handler=self.get_workspaces, needs=None, answers=Page[WorkspaceAnswer],
                  operation_id="list_workspaces", summary="List workspaces", tags=tags),
            Route(method="POST", path=base, handler=self.post_workspace, needs=ALL_WORKSPACES, status=201, answers=WorkspaceAnswer,
                  once=True, operation_id="create_workspace", summary="Create a workspace", tags=tags),
            Route(method="GET", path=one, handler=self.get_workspace, needs=None, answers=WorkspaceAnswer,
                  operation_id="get_workspace", summary="Show a workspace", tags=tags),
            Route(method="PATCH", path=one, handler=self.patch_workspace, needs=ALL_WORKSPACES, answers=WorkspaceAnswer,
                  operation_id="update_workspace", summary="Rename a workspace", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_workspace, needs=ALL_WORKSPACES, answers=DeletionAnswer,
                  operation_id="delete_workspace", summary="Delete a workspace with everything in it", tags=tags),
            Route(method="POST", path=f"{one}/api-keys", handler=self.post_key, needs=ALL_WORKSPACES, status=201, answers=NewApiKeyAnswer,
                  once=True, secrets=("plaintext_key",), operation_id="create_workspace_api_key",
                  summary="Create an API key of a workspace", tags=tags),
        ]  # fmt: skip

    async def get_workspaces(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the key's own workspace, or all workspaces with the scope `platform:workspaces`, oldest first."""
        caller = caller_of(request)
        if caller.may(ALL_WORKSPACES):
            found = await self.workspaces.list()
        else:
            found = [await self.workspaces.get(caller.shown_workspace_id)]
        items = [shown.workspace(each) for each in found[query.offset : query.offset + query.per_page]]
        return page(request, items, query=query, total=len(found))

    @with_etag
    @describe(errors=(NameTaken, NotHeld))
    async def post_workspace(self, request: Request, body: NewWorkspaceBody) -> Response:
        """Create a workspace, a tenant with its own keys, memories, plans and servers."""
        caller = _live(caller_of(request))
        answer = respond_with(Workspace, lambda made: tagged(shown.workspace(made), made.version, status=201))
        return answer(await self.workspaces.create(body.name, by=Actor.of(caller)))

    @with_etag
    async def get_workspace(self, request: Request, workspace_id: str) -> Response:
        """Return a workspace. Other workspaces than the key's own need the scope `platform:workspaces`."""
        caller = caller_of(request)
        wanted = _number(workspace_id)
        if wanted != caller.shown_workspace_id and not caller.may(ALL_WORKSPACES):
            raise NotFound("workspace", workspace_id[:64])
        found = await self.workspaces.get(wanted)
        return tagged(shown.workspace(found), found.version)

    @with_etag
    @by_etag
    @describe(errors=(NameTaken, NotHeld))
    async def patch_workspace(self, request: Request, body: NewWorkspaceBody, workspace_id: str) -> Response:
        """Change the name of a workspace."""
        caller = _live(caller_of(request))
        number, tags = _number(workspace_id), expected(request)
        renamed = await self.workspaces.rename(number, body.name, by=Actor.of(caller), expected=tags)
        return tagged(shown.workspace(renamed), renamed.version)

    @by_etag
    @describe(errors=(NotHeld,))
    async def delete_workspace(self, request: Request, workspace_id: str, query: Annotated[DeleteWorkspaceQuery, Query()]) -> Response:
        """Delete a workspace with its memories, plans, servers and keys. This cannot be undone."""
        caller = _live(caller_of(request))
        number, tags = _number(workspace_id), expected(request)
        gone = await self.workspaces.delete(number, by=Actor.of(caller), dry_run=query.dry_run, expected=tags)
        return reply(shown.deletion(gone))

    @with_etag
    @describe(errors=(NotHeld,))
    async def post_key(self, request: Request, body: NewApiKeyBody, workspace_id: str) -> Response:
        """
        Create an API key in another workspace than the caller's, for example its first one.

        `plaintext_key` is shown in this answer only.
        """
        caller = _live(caller_of(request))
        with_addresses = caller.may(ADDRESSES)
        answer = respond_with(
            Minted, lambda made: tagged(shown.minted(made, self.clock(), with_addresses=with_addresses), made.version, status=201)
        )
        return answer(await self.api_keys.create(_number(workspace_id), body.new(caller.environment), by=Actor.of(caller)))


def _live(caller: Caller) -> Caller:
    """Return the caller, who is no test key: those touch nothing outside their sandbox (D-25)."""
    if caller.environment == TEST:
        raise NotHeld("environment", "A test key acts in its sandbox alone; workspaces are changed with a live key.")
    return caller


def _number(text: str) -> int:
    """Return a workspace's number; what is none names no workspace."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _LARGEST:
        raise NotFound("workspace", text[:64])
    return int(text)
