"""`/workspaces` (D-29): the key's own workspace, or all workspaces with the scope platform:workspaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access import serializers
from rookery.access.api_keys import ApiKeys
from rookery.access.errors import DelegationDenied, NameTaken
from rookery.access.guard import get_caller
from rookery.access.models import TEST, Actor, Caller, KeyWithSecret, Workspace
from rookery.access.schemas import (
    DeleteWorkspaceQuery,
    DeletionResponse,
    NewApiKeyBody,
    NewApiKeyResponse,
    NewWorkspaceBody,
    WorkspaceResponse,
)
from rookery.access.scopes import ADDRESSES_SCOPE, ALL_WORKSPACES_SCOPE
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Route, document_route, json_response, page_response, respond_with
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import Page, PageQuery

_MAX_WORKSPACE_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class WorkspaceRoutes:
    """The routes of workspaces. Besides parsing and responding, they decide which workspaces a caller can see."""

    workspaces: Workspaces
    api_keys: ApiKeys
    clock: Clock

    def routes(self) -> list[Route]:
        """Return the routes."""
        base, workspace_path, tags = "/workspaces", "/workspaces/{workspace_id}", ("Workspaces",)
        return [
            Route(method="GET", path=base, handler=self.get_workspaces, required_scope=None, response_model=Page[WorkspaceResponse],
                  operation_id="list_workspaces", summary="List workspaces", tags=tags),
            Route(method="POST", path=base, handler=self.post_workspace, required_scope=ALL_WORKSPACES_SCOPE, status=201,
                  response_model=WorkspaceResponse,
                  idempotent=True, operation_id="create_workspace", summary="Create a workspace", tags=tags),
            Route(method="GET", path=workspace_path, handler=self.get_workspace, required_scope=None, response_model=WorkspaceResponse,
                  operation_id="get_workspace", summary="Show a workspace", tags=tags),
            Route(method="PATCH", path=workspace_path, handler=self.patch_workspace, required_scope=ALL_WORKSPACES_SCOPE,
                  response_model=WorkspaceResponse, operation_id="update_workspace", summary="Rename a workspace", tags=tags),
            Route(method="DELETE", path=workspace_path, handler=self.delete_workspace, required_scope=ALL_WORKSPACES_SCOPE,
                  response_model=DeletionResponse,
                  operation_id="delete_workspace", summary="Delete a workspace with everything in it", tags=tags),
            Route(method="POST", path=f"{workspace_path}/api-keys", handler=self.post_key, required_scope=ALL_WORKSPACES_SCOPE, status=201,
                  response_model=NewApiKeyResponse,
                  idempotent=True, secret_fields=("plaintext_key",), operation_id="create_workspace_api_key",
                  summary="Create an API key of a workspace", tags=tags),
        ]  # fmt: skip

    async def get_workspaces(self, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
        """List the key's own workspace, or all workspaces with the scope `platform:workspaces`, oldest first."""
        caller = get_caller(request)
        if caller.has_scope(ALL_WORKSPACES_SCOPE):
            workspaces = await self.workspaces.list()
        else:
            workspaces = [await self.workspaces.get(caller.public_workspace_id)]
        items = [serializers.serialize_workspace(workspace) for workspace in workspaces[query.offset : query.offset + query.per_page]]
        return page_response(request, items, query=query, total=len(workspaces))

    @with_etag
    @document_route(errors=(NameTaken, DelegationDenied))
    async def post_workspace(self, request: Request, body: NewWorkspaceBody) -> Response:
        """Create a workspace, a tenant with its own keys, memories, plans and servers."""
        caller = _require_live_key(get_caller(request))
        respond = respond_with(
            Workspace, lambda workspace: json_with_etag(serializers.serialize_workspace(workspace), workspace.version, status=201)
        )
        return respond(await self.workspaces.create(body.name, by=Actor.from_caller(caller)))

    @with_etag
    async def get_workspace(self, request: Request, workspace_id: str) -> Response:
        """Return a workspace. Other workspaces than the key's own need the scope `platform:workspaces`."""
        caller = get_caller(request)
        number = _parse_workspace_id(workspace_id)
        if number != caller.public_workspace_id and not caller.has_scope(ALL_WORKSPACES_SCOPE):
            raise NotFound("workspace", workspace_id[:64])
        workspace = await self.workspaces.get(number)
        return json_with_etag(serializers.serialize_workspace(workspace), workspace.version)

    @with_etag
    @by_etag
    @document_route(errors=(NameTaken, DelegationDenied))
    async def patch_workspace(self, request: Request, body: NewWorkspaceBody, workspace_id: str) -> Response:
        """Change the name of a workspace."""
        caller = _require_live_key(get_caller(request))
        number, tags = _parse_workspace_id(workspace_id), read_if_match(request)
        renamed = await self.workspaces.rename(number, body.name, by=Actor.from_caller(caller), expected=tags)
        return json_with_etag(serializers.serialize_workspace(renamed), renamed.version)

    @by_etag
    @document_route(errors=(DelegationDenied,))
    async def delete_workspace(self, request: Request, workspace_id: str, query: Annotated[DeleteWorkspaceQuery, Query()]) -> Response:
        """Delete a workspace with its memories, plans, servers and keys. This cannot be undone."""
        caller = _require_live_key(get_caller(request))
        number, tags = _parse_workspace_id(workspace_id), read_if_match(request)
        deletion = await self.workspaces.delete(number, by=Actor.from_caller(caller), dry_run=query.dry_run, expected=tags)
        return json_response(serializers.serialize_deletion(deletion))

    @with_etag
    @document_route(errors=(DelegationDenied,))
    async def post_key(self, request: Request, body: NewApiKeyBody, workspace_id: str) -> Response:
        """
        Create an API key in another workspace than the caller's, for example its first one.

        `plaintext_key` is returned only in this response.
        """
        caller = _require_live_key(get_caller(request))
        with_addresses = caller.has_scope(ADDRESSES_SCOPE)
        respond = respond_with(
            KeyWithSecret,
            lambda key: json_with_etag(
                serializers.serialize_key_with_secret(key, self.clock(), with_addresses=with_addresses), key.version, status=201
            ),
        )
        return respond(
            await self.api_keys.create(_parse_workspace_id(workspace_id), body.to_model(caller.environment), by=Actor.from_caller(caller))
        )


def _require_live_key(caller: Caller) -> Caller:
    """Return the caller, or raise an error for a test key, which may change nothing outside its sandbox (D-25)."""
    if caller.environment == TEST:
        raise DelegationDenied("environment", "A test key acts only in its sandbox. Use a live key to change workspaces.")
    return caller


def _parse_workspace_id(text: str) -> int:
    """Return the number of a workspace. Raise NotFound if *text* is not a valid number."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _MAX_WORKSPACE_ID:
        raise NotFound("workspace", text[:64])
    return int(text)
