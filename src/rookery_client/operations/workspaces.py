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

    def list_workspaces(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> Page[models.Workspace]:
        """List workspaces."""
        return self._session.send_page(Call(
            operation="list_workspaces", method="GET", path="/api/v1/workspaces", result=PageBody[models.Workspace],
            query=given(page=page, per_page=per_page),
        ))

    def create_workspace(self, *, name: str) -> models.Workspace:
        """Create a workspace."""
        return self._session.send(Call(
            operation="create_workspace", method="POST", path="/api/v1/workspaces", result=models.Workspace, body=given(name=name),
            accepts_key=True,
        ))

    def get_workspace(self, workspace_id: int) -> models.Workspace:
        """Show a workspace."""
        return self._session.send(Call(
            operation="get_workspace", method="GET", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace,
        ))

    def update_workspace(self, workspace_id: int, *, name: str, if_match: str | Unset = UNSET) -> models.Workspace:
        """Rename a workspace."""
        return self._session.send(Call(
            operation="update_workspace", method="PATCH", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace, headers=given(**{"If-Match": if_match}), body=given(name=name),
        ))

    def delete_workspace(self, workspace_id: int, *, dry_run: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> models.Deletion:
        """Delete a workspace with everything in it."""
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
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Create an API key of a workspace."""
        return self._session.send(Call(
            operation="create_workspace_api_key", method="POST",
            path=fill_path("/api/v1/workspaces/{workspace_id}/api-keys", workspace_id=workspace_id), result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True,
        ))


class AsyncWorkspacesOperations:
    """Operations of `client.workspaces`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_workspaces(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> AsyncPage[models.Workspace]:
        """List workspaces."""
        return await self._session.send_page(Call(
            operation="list_workspaces", method="GET", path="/api/v1/workspaces", result=PageBody[models.Workspace],
            query=given(page=page, per_page=per_page),
        ))

    async def create_workspace(self, *, name: str) -> models.Workspace:
        """Create a workspace."""
        return await self._session.send(Call(
            operation="create_workspace", method="POST", path="/api/v1/workspaces", result=models.Workspace, body=given(name=name),
            accepts_key=True,
        ))

    async def get_workspace(self, workspace_id: int) -> models.Workspace:
        """Show a workspace."""
        return await self._session.send(Call(
            operation="get_workspace", method="GET", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace,
        ))

    async def update_workspace(self, workspace_id: int, *, name: str, if_match: str | Unset = UNSET) -> models.Workspace:
        """Rename a workspace."""
        return await self._session.send(Call(
            operation="update_workspace", method="PATCH", path=fill_path("/api/v1/workspaces/{workspace_id}", workspace_id=workspace_id),
            result=models.Workspace, headers=given(**{"If-Match": if_match}), body=given(name=name),
        ))

    async def delete_workspace(
        self, workspace_id: int, *, dry_run: bool | Unset = UNSET, if_match: str | Unset = UNSET,
    ) -> models.Deletion:
        """Delete a workspace with everything in it."""
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
        agent_id: str | Unset | None = UNSET,
    ) -> models.ApiKeyWithSecret:
        """Create an API key of a workspace."""
        return await self._session.send(Call(
            operation="create_workspace_api_key", method="POST",
            path=fill_path("/api/v1/workspaces/{workspace_id}/api-keys", workspace_id=workspace_id), result=models.ApiKeyWithSecret,
            body=given(
                servers=servers, tools=tools, orgs=orgs, projects=projects, tool_limits=tool_limits, name=name, scopes=scopes,
                preset=preset, rate_limit_tier=rate_limit_tier, environment=environment, expires_at=expires_at, agent_id=agent_id,
            ),
            accepts_key=True,
        ))
