"""`/workspaces`: the key's own workspace, or all workspaces with the scope platform:workspaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rookery.access import serializers
from rookery.access.api.keys import present_new_key
from rookery.access.api_keys import ApiKeys
from rookery.access.errors import DelegationDenied, NameTaken
from rookery.access.models import TEST, Actor, Caller, KeyWithSecret, Workspace
from rookery.access.schemas import (
    DeleteWorkspaceQuery,
    DeletionResponse,
    NewApiKeyBody,
    NewApiKeyResponse,
    NewWorkspaceBody,
    WorkspaceChangeBody,
    WorkspaceResponse,
)
from rookery.access.scopes import ALL_WORKSPACES_SCOPE
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.errors import NotFound
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.pages import slice_sorted
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page, PageQuery

_MAX_WORKSPACE_ID = 2**63 - 1


_operation = partial(Operation, tags=("Workspaces",))


@dataclass(frozen=True, slots=True)
class WorkspaceOperations:
    """The operations of workspaces. The handlers also decide which workspaces a caller can see."""

    workspaces: Workspaces
    api_keys: ApiKeys
    clock: Clock

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/workspaces", "/workspaces/{workspace_id}"
        workspace = partial(_operation, present=_present_workspace, response_model=WorkspaceResponse, etag=True)
        return [
            _operation(method="GET", path=base, handler=self.get_workspaces, present=_present_workspace, required_scope=None,
                       response_model=Page[WorkspaceResponse], operation_id="list_workspaces", summary="List workspaces"),
            workspace(method="POST", path=base, handler=self.post_workspace, committed=Workspace, required_scope=ALL_WORKSPACES_SCOPE,
                      status=201, idempotent=True, errors=(NameTaken, DelegationDenied), operation_id="create_workspace",
                      summary="Create a workspace"),
            workspace(method="GET", path=one, handler=self.get_workspace, required_scope=None, operation_id="get_workspace",
                      summary="Show a workspace"),
            workspace(method="PATCH", path=one, handler=self.patch_workspace, required_scope=ALL_WORKSPACES_SCOPE,
                      errors=(NameTaken, DelegationDenied), operation_id="update_workspace", summary="Rename a workspace"),
            _operation(method="DELETE", path=one, handler=self.delete_workspace, required_scope=ALL_WORKSPACES_SCOPE,
                       response_model=DeletionResponse, errors=(DelegationDenied,), operation_id="delete_workspace",
                       summary="Delete a workspace with everything in it"),
            _operation(method="POST", path=f"{one}/api-keys", handler=self.post_key, present=self._present_new_key,
                       committed=KeyWithSecret, required_scope=ALL_WORKSPACES_SCOPE, status=201, response_model=NewApiKeyResponse,
                       idempotent=True, secret_fields=("plaintext_key",), etag=True, errors=(DelegationDenied,),
                       operation_id="create_workspace_api_key", summary="Create an API key of a workspace"),
        ]  # fmt: skip

    async def get_workspaces(self, caller: Caller, query: PageQuery) -> ItemPage[Workspace]:
        """List the key's own workspace, or all workspaces with the scope `platform:workspaces`, oldest first."""
        if caller.has_scope(ALL_WORKSPACES_SCOPE):
            workspaces = await self.workspaces.list()
        else:
            workspaces = [await self.workspaces.get(caller.public_workspace_id)]
        return ItemPage(*slice_sorted(workspaces, query.slice, lambda workspace: (workspace.id,)))

    async def post_workspace(self, caller: Caller, body: NewWorkspaceBody) -> Workspace:
        """Create a workspace, a tenant with its own keys, memories, plans and servers."""
        _require_live_key(caller)
        return await self.workspaces.create(body.name, by=Actor.from_caller(caller))

    async def get_workspace(self, caller: Caller, workspace_id: str) -> Workspace:
        """Return a workspace. Other workspaces than the key's own need the scope `platform:workspaces`."""
        number = _parse_workspace_id(workspace_id)
        if number != caller.public_workspace_id and not caller.has_scope(ALL_WORKSPACES_SCOPE):
            raise NotFound("workspace", workspace_id[:64])
        return await self.workspaces.get(number)

    async def patch_workspace(self, caller: Caller, workspace_id: str, body: WorkspaceChangeBody, expected: ExpectedETags) -> Workspace:
        """Change the name of a workspace."""
        _require_live_key(caller)
        number = _parse_workspace_id(workspace_id)
        return await self.workspaces.rename(number, body.name, by=Actor.from_caller(caller), expected=expected)

    async def delete_workspace(
        self, caller: Caller, workspace_id: str, query: DeleteWorkspaceQuery, expected: ExpectedETags
    ) -> Mapping[str, object]:
        """Delete a workspace with its memories, plans, servers and keys. This cannot be undone."""
        _require_live_key(caller)
        number, by = _parse_workspace_id(workspace_id), Actor.from_caller(caller)
        return serializers.serialize_deletion(await self.workspaces.delete(number, by=by, dry_run=query.dry_run, expected=expected))

    async def post_key(self, caller: Caller, workspace_id: str, body: NewApiKeyBody) -> KeyWithSecret:
        """
        Create an API key in another workspace than the caller's, for example its first one.

        `plaintext_key` is returned only in this response.
        """
        _require_live_key(caller)
        number = _parse_workspace_id(workspace_id)
        return await self.api_keys.create(number, body.to_model(caller.environment), by=Actor.from_caller(caller))

    def _present_new_key(self, caller: Caller, key: KeyWithSecret) -> Output:
        return present_new_key(caller, key, self.clock())


def _present_workspace(_: Caller, workspace: Workspace) -> Output:
    return Output(body=serializers.serialize_workspace(workspace), version=workspace.version)


def _require_live_key(caller: Caller) -> None:
    """Raise an error for a test key, which may change nothing outside its sandbox."""
    if caller.environment == TEST:
        raise DelegationDenied("environment", "A test key acts only in its sandbox. Use a live key to change workspaces.")


def _parse_workspace_id(text: str) -> int:
    """Return the number of a workspace. Raise NotFound if *text* is not a valid number."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > _MAX_WORKSPACE_ID:
        raise NotFound("workspace", text[:64])
    return int(text)
