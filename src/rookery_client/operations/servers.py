"""
Operations of `client.servers`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class ServersOperations:
    """Operations of `client.servers`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_oauth_client(self) -> dict[str, object]:
        """Show Rookery's OAuth client metadata."""
        return self._session.send(Call(operation="get_oauth_client", method="GET", path="/oauth/client.json", result=dict[str, object]))

    def list_added_servers(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> Page[models.AddedServer]:
        """List the tool servers that the workspace added."""
        return self._session.send_page(Call(
            operation="list_added_servers", method="GET", path="/api/v1/servers", result=PageBody[models.AddedServer],
            query=given(page=page, per_page=per_page),
        ))

    def add_server(
        self, *, id: str, url: str | Unset | None = UNSET, type: Literal["http", "sse"] | Unset | None = UNSET,
        headers: Mapping[str, str] | Unset | None = UNSET, command: str | Unset | None = UNSET,
        args: Sequence[str] | Unset | None = UNSET, env: Mapping[str, str] | Unset | None = UNSET, cwd: str | Unset | None = UNSET,
        name: str | Unset | None = UNSET, tagline: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        icon: str | Unset | None = UNSET, status: Literal["available", "beta", "deprecated"] | Unset | None = UNSET,
        use_when: str | Unset | None = UNSET, related_servers: Sequence[str] | Unset | None = UNSET,
        enabled: bool | Unset | None = UNSET, sandbox: bool | Unset | None = UNSET,
        isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | Unset | None = UNSET,
        replicas: int | Unset | None = UNSET, lifecycle: Literal["lazy", "eager"] | Unset | None = UNSET,
        idle_s: float | Unset | None = UNSET, timeout_s: float | Unset | None = UNSET, max_concurrency: int | Unset | None = UNSET,
        forward_headers: Sequence[str] | Unset | None = UNSET, tools: inputs.ToolRulesBody | Unset | None = UNSET,
        auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """Add a tool server to the workspace."""
        return self._session.send(Call(
            operation="add_server", method="POST", path="/api/v1/servers", result=models.AddedServer,
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, tools=tools, auth=auth, roots=roots,
                deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, id=id, secrets=secrets,
            ),
            accepts_key=True,
        ))

    def get_added_server(self, id: str) -> models.AddedServer:
        """Show a tool server that the workspace added."""
        return self._session.send(Call(
            operation="get_added_server", method="GET", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
        ))

    def update_added_server(
        self, id: str, *, if_match: str | Unset = UNSET, url: str | Unset | None = UNSET,
        type: Literal["http", "sse"] | Unset | None = UNSET, headers: Mapping[str, str] | Unset | None = UNSET,
        command: str | Unset | None = UNSET, args: Sequence[str] | Unset | None = UNSET,
        env: Mapping[str, str] | Unset | None = UNSET, cwd: str | Unset | None = UNSET, name: str | Unset | None = UNSET,
        tagline: str | Unset | None = UNSET, description: str | Unset | None = UNSET, icon: str | Unset | None = UNSET,
        status: Literal["available", "beta", "deprecated"] | Unset | None = UNSET, use_when: str | Unset | None = UNSET,
        related_servers: Sequence[str] | Unset | None = UNSET, enabled: bool | Unset | None = UNSET,
        sandbox: bool | Unset | None = UNSET,
        isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | Unset | None = UNSET,
        replicas: int | Unset | None = UNSET, lifecycle: Literal["lazy", "eager"] | Unset | None = UNSET,
        idle_s: float | Unset | None = UNSET, timeout_s: float | Unset | None = UNSET, max_concurrency: int | Unset | None = UNSET,
        forward_headers: Sequence[str] | Unset | None = UNSET, tools: inputs.ToolRulesBody | Unset | None = UNSET,
        auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """Change a tool server that the workspace added."""
        return self._session.send(Call(
            operation="update_added_server", method="PATCH", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
            headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, tools=tools, auth=auth, roots=roots,
                deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, secrets=secrets,
            ),
        ))

    def remove_server(self, id: str, *, if_match: str | Unset = UNSET) -> None:
        """Remove a tool server that the workspace added."""
        return self._session.send(Call(
            operation="remove_server", method="DELETE", path=fill_path("/api/v1/servers/{id}", id=id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def check_server(self, id: str) -> models.Check:
        """Check a tool server that the workspace added."""
        return self._session.send(Call(
            operation="check_server", method="POST", path=fill_path("/api/v1/servers/{id}/check", id=id), result=models.Check,
        ))

    def get_server_login(self, server_id: str) -> models.Login:
        """Show whether the workspace is logged in at a tool server."""
        return self._session.send(Call(
            operation="get_server_login", method="GET", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.Login,
        ))

    def start_server_login(self, server_id: str) -> models.LoginBegun:
        """Start a login at a tool server."""
        return self._session.send(Call(
            operation="start_server_login", method="POST", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.LoginBegun,
        ))

    def delete_server_login(self, server_id: str) -> None:
        """Log out at a tool server."""
        return self._session.send(Call(
            operation="delete_server_login", method="DELETE", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=type(None), reader="nothing",
        ))


class AsyncServersOperations:
    """Operations of `client.servers`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_oauth_client(self) -> dict[str, object]:
        """Show Rookery's OAuth client metadata."""
        return await self._session.send(Call(
            operation="get_oauth_client", method="GET", path="/oauth/client.json", result=dict[str, object],
        ))

    async def list_added_servers(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> AsyncPage[models.AddedServer]:
        """List the tool servers that the workspace added."""
        return await self._session.send_page(Call(
            operation="list_added_servers", method="GET", path="/api/v1/servers", result=PageBody[models.AddedServer],
            query=given(page=page, per_page=per_page),
        ))

    async def add_server(
        self, *, id: str, url: str | Unset | None = UNSET, type: Literal["http", "sse"] | Unset | None = UNSET,
        headers: Mapping[str, str] | Unset | None = UNSET, command: str | Unset | None = UNSET,
        args: Sequence[str] | Unset | None = UNSET, env: Mapping[str, str] | Unset | None = UNSET, cwd: str | Unset | None = UNSET,
        name: str | Unset | None = UNSET, tagline: str | Unset | None = UNSET, description: str | Unset | None = UNSET,
        icon: str | Unset | None = UNSET, status: Literal["available", "beta", "deprecated"] | Unset | None = UNSET,
        use_when: str | Unset | None = UNSET, related_servers: Sequence[str] | Unset | None = UNSET,
        enabled: bool | Unset | None = UNSET, sandbox: bool | Unset | None = UNSET,
        isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | Unset | None = UNSET,
        replicas: int | Unset | None = UNSET, lifecycle: Literal["lazy", "eager"] | Unset | None = UNSET,
        idle_s: float | Unset | None = UNSET, timeout_s: float | Unset | None = UNSET, max_concurrency: int | Unset | None = UNSET,
        forward_headers: Sequence[str] | Unset | None = UNSET, tools: inputs.ToolRulesBody | Unset | None = UNSET,
        auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """Add a tool server to the workspace."""
        return await self._session.send(Call(
            operation="add_server", method="POST", path="/api/v1/servers", result=models.AddedServer,
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, tools=tools, auth=auth, roots=roots,
                deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, id=id, secrets=secrets,
            ),
            accepts_key=True,
        ))

    async def get_added_server(self, id: str) -> models.AddedServer:
        """Show a tool server that the workspace added."""
        return await self._session.send(Call(
            operation="get_added_server", method="GET", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
        ))

    async def update_added_server(
        self, id: str, *, if_match: str | Unset = UNSET, url: str | Unset | None = UNSET,
        type: Literal["http", "sse"] | Unset | None = UNSET, headers: Mapping[str, str] | Unset | None = UNSET,
        command: str | Unset | None = UNSET, args: Sequence[str] | Unset | None = UNSET,
        env: Mapping[str, str] | Unset | None = UNSET, cwd: str | Unset | None = UNSET, name: str | Unset | None = UNSET,
        tagline: str | Unset | None = UNSET, description: str | Unset | None = UNSET, icon: str | Unset | None = UNSET,
        status: Literal["available", "beta", "deprecated"] | Unset | None = UNSET, use_when: str | Unset | None = UNSET,
        related_servers: Sequence[str] | Unset | None = UNSET, enabled: bool | Unset | None = UNSET,
        sandbox: bool | Unset | None = UNSET,
        isolation: Literal["per_workspace", "shared", "per_key", "per_session"] | Unset | None = UNSET,
        replicas: int | Unset | None = UNSET, lifecycle: Literal["lazy", "eager"] | Unset | None = UNSET,
        idle_s: float | Unset | None = UNSET, timeout_s: float | Unset | None = UNSET, max_concurrency: int | Unset | None = UNSET,
        forward_headers: Sequence[str] | Unset | None = UNSET, tools: inputs.ToolRulesBody | Unset | None = UNSET,
        auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """Change a tool server that the workspace added."""
        return await self._session.send(Call(
            operation="update_added_server", method="PATCH", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
            headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, tools=tools, auth=auth, roots=roots,
                deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, secrets=secrets,
            ),
        ))

    async def remove_server(self, id: str, *, if_match: str | Unset = UNSET) -> None:
        """Remove a tool server that the workspace added."""
        return await self._session.send(Call(
            operation="remove_server", method="DELETE", path=fill_path("/api/v1/servers/{id}", id=id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def check_server(self, id: str) -> models.Check:
        """Check a tool server that the workspace added."""
        return await self._session.send(Call(
            operation="check_server", method="POST", path=fill_path("/api/v1/servers/{id}/check", id=id), result=models.Check,
        ))

    async def get_server_login(self, server_id: str) -> models.Login:
        """Show whether the workspace is logged in at a tool server."""
        return await self._session.send(Call(
            operation="get_server_login", method="GET", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.Login,
        ))

    async def start_server_login(self, server_id: str) -> models.LoginBegun:
        """Start a login at a tool server."""
        return await self._session.send(Call(
            operation="start_server_login", method="POST", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.LoginBegun,
        ))

    async def delete_server_login(self, server_id: str) -> None:
        """Log out at a tool server."""
        return await self._session.send(Call(
            operation="delete_server_login", method="DELETE", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=type(None), reader="nothing",
        ))
