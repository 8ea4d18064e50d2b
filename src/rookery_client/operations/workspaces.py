"""
Operations of `client.workspaces`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class WorkspacesOperations:
    """Operations of `client.workspaces`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_workspaces(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.Workspace]:
        """
        List the key's own workspace, or all workspaces with the scope `platform:workspaces`, oldest first.

        Requires a key with any scope.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_workspaces", method="GET", path="/api/v1/workspaces", result=PageBody[models.Workspace],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def create_workspace(self, *, name: str, idempotency_key: str | Unset = UNSET) -> models.Workspace:
        """
        Create a workspace, a tenant with its own keys, memories, plans and servers.

        Requires the scope `platform:workspaces`.

        Args:
            name: A unique name without a slash.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_workspace", method="POST", path="/api/v1/workspaces", result=models.Workspace, body=given(name=name),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_workspace(self, workspace_id: int) -> models.Workspace:
        """
        Return a workspace. Other workspaces than the key's own need the scope `platform:workspaces`.

        Requires a key with any scope.

        Args:
            workspace_id: The number of a workspace.
        """
        return self._session.send(Call(
            operation="get_workspace", method="GET", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace,
        ))

    def update_workspace(self, workspace_id: int, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET) -> models.Workspace:
        """
        Change the name of a workspace.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: A unique name without a slash.
        """
        return self._session.send(Call(
            operation="update_workspace", method="PATCH", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace, headers=given(**{"If-Match": if_match}), body=given(name=name),
        ))

    def delete_workspace(self, workspace_id: int, *, dry_run: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> models.Deletion:
        """
        Delete a workspace with its memories, plans, servers and keys. This cannot be undone.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            dry_run: Return what would be deleted, without deleting it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_workspace", method="DELETE", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Deletion, query=given(dry_run=dry_run), headers=given(**{"If-Match": if_match}),
        ))

    def create_workspace_api_key(
        self, workspace_id: int, *, name: str, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        scopes: Sequence[str] | Unset = UNSET, preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        environment: Literal["live", "test"] | Unset | None = UNSET, expires_at: datetime | str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create an API key in another workspace than the caller's, for example its first one.

        `plaintext_key` is returned only in this response.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit_tier: Default: `"pro"`.
            environment: live or test. A test key acts in a sandbox. Default: the environment of the calling key.
            expires_at: Null: the key never expires.
            agent_id: The agent that the key is bound to.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_workspace_api_key", method="POST",
            path=fill_path("/api/v1/workspaces/{workspace_id}/api-keys", workspace_id=workspace_id), result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))


class AsyncWorkspacesOperations:
    """Operations of `client.workspaces`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_workspaces(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.Workspace]:
        """
        List the key's own workspace, or all workspaces with the scope `platform:workspaces`, oldest first.

        Requires a key with any scope.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_workspaces", method="GET", path="/api/v1/workspaces", result=PageBody[models.Workspace],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def create_workspace(self, *, name: str, idempotency_key: str | Unset = UNSET) -> models.Workspace:
        """
        Create a workspace, a tenant with its own keys, memories, plans and servers.

        Requires the scope `platform:workspaces`.

        Args:
            name: A unique name without a slash.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_workspace", method="POST", path="/api/v1/workspaces", result=models.Workspace, body=given(name=name),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_workspace(self, workspace_id: int) -> models.Workspace:
        """
        Return a workspace. Other workspaces than the key's own need the scope `platform:workspaces`.

        Requires a key with any scope.

        Args:
            workspace_id: The number of a workspace.
        """
        return await self._session.send(Call(
            operation="get_workspace", method="GET", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace,
        ))

    async def update_workspace(
        self, workspace_id: int, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
    ) -> models.Workspace:
        """
        Change the name of a workspace.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: A unique name without a slash.
        """
        return await self._session.send(Call(
            operation="update_workspace", method="PATCH", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace, headers=given(**{"If-Match": if_match}), body=given(name=name),
        ))

    async def delete_workspace(
        self, workspace_id: int, *, dry_run: bool | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Deletion:
        """
        Delete a workspace with its memories, plans, servers and keys. This cannot be undone.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            dry_run: Return what would be deleted, without deleting it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_workspace", method="DELETE", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Deletion, query=given(dry_run=dry_run), headers=given(**{"If-Match": if_match}),
        ))

    async def create_workspace_api_key(
        self, workspace_id: int, *, name: str, servers: Sequence[str] | Unset | None = UNSET,
        tools: Sequence[str] | Unset | None = UNSET, orgs: Sequence[str] | Unset | None = UNSET,
        projects: Sequence[str] | Unset | None = UNSET, tool_limits: Mapping[str, int] | Unset = UNSET,
        scopes: Sequence[str] | Unset = UNSET, preset: Literal["agent", "reader", "planner", "notifier"] | Unset | None = UNSET,
        rate_limit_tier: Literal["free", "pro", "business", "enterprise"] | Unset = UNSET,
        environment: Literal["live", "test"] | Unset | None = UNSET, expires_at: datetime | str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.ApiKeyWithSecret:
        """
        Create an API key in another workspace than the caller's, for example its first one.

        `plaintext_key` is returned only in this response.

        Requires the scope `platform:workspaces`.

        Args:
            workspace_id: The number of a workspace.
            name: The purpose of the key.
            servers: Ids of tool servers; null: all.
            tools: server/tool patterns; null: all.
            orgs: Orgs whose memories the key can access; null: all.
            projects: Projects whose memories the key can access; null: all.
            tool_limits: Calls per minute, by server/tool pattern.
            scopes: For example brain:read, mcp:*, *:read or *.
            preset: Permissions to add: those of agent, reader, planner or notifier.
            rate_limit_tier: Default: `"pro"`.
            environment: live or test. A test key acts in a sandbox. Default: the environment of the calling key.
            expires_at: Null: the key never expires.
            agent_id: The agent that the key is bound to.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_workspace_api_key", method="POST",
            path=fill_path("/api/v1/workspaces/{workspace_id}/api-keys", workspace_id=workspace_id), result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))
