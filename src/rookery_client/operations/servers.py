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
        """
        Return the client metadata document that authorisation servers read.
        """
        return self._session.send(Call(operation="get_oauth_client", method="GET", path="/oauth/client.json", result=dict[str, object]))

    def list_added_servers(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.AddedServer]:
        """
        List the tool servers that the workspace added over the API, by id. A test key sees those of the sandbox.

        Requires the scope `servers:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_added_servers", method="GET", path="/api/v1/servers", result=PageBody[models.AddedServer],
            query=given(cursor=cursor, page=page, per_page=per_page),
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
        forward_headers: Sequence[str] | Unset | None = UNSET, forward_meta: Sequence[str] | Unset | None = UNSET,
        tools: inputs.ToolRulesBody | Unset | None = UNSET, auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        protocol: Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.AddedServer:
        """
        Add a tool server to the workspace. Its tools are listed in the background.

        Requires the scope `servers:write`.

        Args:
            id: Letters, digits and dashes.
            url: The server's URL; may refer to each of `secrets` as ${NAME}.
            type: http: Streamable HTTP; sse: the older HTTP with SSE.
            headers: Headers of each request; a value may refer to each of `secrets` as ${NAME}.
            command: A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.
            args: The arguments of the program.
            env: Environment variables of the program, in addition to PATH, HOME and a few others.
            cwd: The working directory of the program.
            name: The displayed name; by default the title that the server gives itself, else the id.
            tagline: One sentence on the server.
            description: A description for people.
            icon: The address of an image.
            status: Set by you. A deprecated server works, and its answers say so.
            use_when: Shown to agents: when to use this server.
            related_servers: The ids of servers that complement this one.
            enabled: false: the server is not listed, and calls fail with 403 disabled.
            sandbox: Whether test keys may call all its tools.
            isolation: Which callers share a session with the server.
            replicas: The number of parallel sessions.
            lifecycle: lazy: the session opens with the first call; eager: at the start.
            idle_s: Idle seconds after which a session is closed; null: never.
            timeout_s: Time-out of a call in seconds.
            max_concurrency: Concurrent calls of any kind in a session. By default 64; those of a command that may change something run
                one at a time.
            forward_headers: Names of headers of the caller that are sent on with a call.
            forward_meta: Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by
                default.
            tools: Which tools are offered, with their time-outs and caches.
            auth: oauth, or its settings, if the server requires a login by OAuth.
            roots: Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none.
            deprecated_at: Date of deprecation; null: the date on which the status changed.
            sunset_at: Planned date of removal, at least six months after deprecated_at.
            start_timeout_s: Time-out of a start in seconds.
            protocol: The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: the
                newest one that begins with `initialize`.
            secrets: Values for ${NAME}; never shown again.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="add_server", method="POST", path="/api/v1/servers", result=models.AddedServer,
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, forward_meta=forward_meta, tools=tools, auth=auth,
                roots=roots, deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, protocol=protocol, id=id,
                secrets=secrets,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_added_server(self, id: str) -> models.AddedServer:
        """
        Return the settings of a tool server. Of its secrets, only the names are returned.

        Its ETag changes with its settings and secrets, not with its health and the number of its tools.

        Requires the scope `servers:read`.

        Args:
            id: The id of a server that the workspace has added.
        """
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
        forward_headers: Sequence[str] | Unset | None = UNSET, forward_meta: Sequence[str] | Unset | None = UNSET,
        tools: inputs.ToolRulesBody | Unset | None = UNSET, auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        protocol: Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """
        Change settings of a tool server. Fields that are left out keep their value; the next call uses the new settings.

        Requires the scope `servers:write`.

        Args:
            id: The id of a server that the workspace has added.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            url: The server's URL; may refer to each of `secrets` as ${NAME}.
            type: http: Streamable HTTP; sse: the older HTTP with SSE.
            headers: Headers of each request; a value may refer to each of `secrets` as ${NAME}.
            command: A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.
            args: The arguments of the program.
            env: Environment variables of the program, in addition to PATH, HOME and a few others.
            cwd: The working directory of the program.
            name: The displayed name; by default the title that the server gives itself, else the id.
            tagline: One sentence on the server.
            description: A description for people.
            icon: The address of an image.
            status: Set by you. A deprecated server works, and its answers say so.
            use_when: Shown to agents: when to use this server.
            related_servers: The ids of servers that complement this one.
            enabled: false: the server is not listed, and calls fail with 403 disabled.
            sandbox: Whether test keys may call all its tools.
            isolation: Which callers share a session with the server.
            replicas: The number of parallel sessions.
            lifecycle: lazy: the session opens with the first call; eager: at the start.
            idle_s: Idle seconds after which a session is closed; null: never.
            timeout_s: Time-out of a call in seconds.
            max_concurrency: Concurrent calls of any kind in a session. By default 64; those of a command that may change something run
                one at a time.
            forward_headers: Names of headers of the caller that are sent on with a call.
            forward_meta: Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by
                default.
            tools: Which tools are offered, with their time-outs and caches.
            auth: oauth, or its settings, if the server requires a login by OAuth.
            roots: Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none.
            deprecated_at: Date of deprecation; null: the date on which the status changed.
            sunset_at: Planned date of removal, at least six months after deprecated_at.
            start_timeout_s: Time-out of a start in seconds.
            protocol: The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: the
                newest one that begins with `initialize`.
            secrets: Each value replaces the old one; null removes the secret.
        """
        return self._session.send(Call(
            operation="update_added_server", method="PATCH", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
            headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, forward_meta=forward_meta, tools=tools, auth=auth,
                roots=roots, deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, protocol=protocol,
                secrets=secrets,
            ),
        ))

    def remove_server(self, id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Remove a tool server and its secrets. Its calls stay in the log.

        Requires the scope `servers:delete`.

        Args:
            id: The id of a server that the workspace has added.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="remove_server", method="DELETE", path=fill_path("/api/v1/servers/{id}", id=id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def check_server(self, id: str) -> models.Check:
        """
        Connect to a tool server in a separate session and return the tools it lists, or what is wrong.

        Any server that the key may use can be checked: one that the workspace added, or one of the installation. Headers of the request
        that the entry forwards (`forward_headers`) are sent to the server.

        Requires the scope `servers:write`.

        Args:
            id: The id of a server that the workspace has added.
        """
        return self._session.send(Call(
            operation="check_server", method="POST", path=fill_path("/api/v1/servers/{id}/check", id=id), result=models.Check,
        ))

    def get_server_login(self, server_id: str) -> models.Login:
        """
        Return whether there is a login at the tool server. Tokens are never returned.

        Requires the scope `servers:read`.

        Args:
            server_id: The id of a tool server.
        """
        return self._session.send(Call(
            operation="get_server_login", method="GET", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.Login,
        ))

    def start_server_login(self, server_id: str) -> models.LoginBegun:
        """
        Discover the authorisation server of a tool server, and return the address to open in a browser.

        Requires the scope `servers:write`.

        Args:
            server_id: The id of a tool server.
        """
        return self._session.send(Call(
            operation="start_server_login", method="POST", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.LoginBegun,
        ))

    def delete_server_login(self, server_id: str) -> None:
        """
        Delete the workspace's tokens of a tool server. Every process stops using them within a second.

        Requires the scope `servers:write`.

        Args:
            server_id: The id of a tool server.
        """
        return self._session.send(Call(
            operation="delete_server_login", method="DELETE", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=type(None), reader="nothing",
        ))


class AsyncServersOperations:
    """Operations of `client.servers`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_oauth_client(self) -> dict[str, object]:
        """
        Return the client metadata document that authorisation servers read.
        """
        return await self._session.send(Call(
            operation="get_oauth_client", method="GET", path="/oauth/client.json", result=dict[str, object],
        ))

    async def list_added_servers(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.AddedServer]:
        """
        List the tool servers that the workspace added over the API, by id. A test key sees those of the sandbox.

        Requires the scope `servers:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_added_servers", method="GET", path="/api/v1/servers", result=PageBody[models.AddedServer],
            query=given(cursor=cursor, page=page, per_page=per_page),
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
        forward_headers: Sequence[str] | Unset | None = UNSET, forward_meta: Sequence[str] | Unset | None = UNSET,
        tools: inputs.ToolRulesBody | Unset | None = UNSET, auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        protocol: Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.AddedServer:
        """
        Add a tool server to the workspace. Its tools are listed in the background.

        Requires the scope `servers:write`.

        Args:
            id: Letters, digits and dashes.
            url: The server's URL; may refer to each of `secrets` as ${NAME}.
            type: http: Streamable HTTP; sse: the older HTTP with SSE.
            headers: Headers of each request; a value may refer to each of `secrets` as ${NAME}.
            command: A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.
            args: The arguments of the program.
            env: Environment variables of the program, in addition to PATH, HOME and a few others.
            cwd: The working directory of the program.
            name: The displayed name; by default the title that the server gives itself, else the id.
            tagline: One sentence on the server.
            description: A description for people.
            icon: The address of an image.
            status: Set by you. A deprecated server works, and its answers say so.
            use_when: Shown to agents: when to use this server.
            related_servers: The ids of servers that complement this one.
            enabled: false: the server is not listed, and calls fail with 403 disabled.
            sandbox: Whether test keys may call all its tools.
            isolation: Which callers share a session with the server.
            replicas: The number of parallel sessions.
            lifecycle: lazy: the session opens with the first call; eager: at the start.
            idle_s: Idle seconds after which a session is closed; null: never.
            timeout_s: Time-out of a call in seconds.
            max_concurrency: Concurrent calls of any kind in a session. By default 64; those of a command that may change something run
                one at a time.
            forward_headers: Names of headers of the caller that are sent on with a call.
            forward_meta: Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by
                default.
            tools: Which tools are offered, with their time-outs and caches.
            auth: oauth, or its settings, if the server requires a login by OAuth.
            roots: Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none.
            deprecated_at: Date of deprecation; null: the date on which the status changed.
            sunset_at: Planned date of removal, at least six months after deprecated_at.
            start_timeout_s: Time-out of a start in seconds.
            protocol: The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: the
                newest one that begins with `initialize`.
            secrets: Values for ${NAME}; never shown again.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="add_server", method="POST", path="/api/v1/servers", result=models.AddedServer,
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, forward_meta=forward_meta, tools=tools, auth=auth,
                roots=roots, deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, protocol=protocol, id=id,
                secrets=secrets,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_added_server(self, id: str) -> models.AddedServer:
        """
        Return the settings of a tool server. Of its secrets, only the names are returned.

        Its ETag changes with its settings and secrets, not with its health and the number of its tools.

        Requires the scope `servers:read`.

        Args:
            id: The id of a server that the workspace has added.
        """
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
        forward_headers: Sequence[str] | Unset | None = UNSET, forward_meta: Sequence[str] | Unset | None = UNSET,
        tools: inputs.ToolRulesBody | Unset | None = UNSET, auth: Literal["oauth"] | inputs.OAuthBody | Unset | None = UNSET,
        roots: Literal["caller"] | Sequence[str | inputs.RootBody] | Unset | None = UNSET, deprecated_at: str | Unset | None = UNSET,
        sunset_at: str | Unset | None = UNSET, start_timeout_s: float | Unset | None = UNSET,
        protocol: Literal["auto", "handshake", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] | Unset | None = UNSET,
        secrets: Mapping[str, object] | Unset = UNSET,
    ) -> models.AddedServer:
        """
        Change settings of a tool server. Fields that are left out keep their value; the next call uses the new settings.

        Requires the scope `servers:write`.

        Args:
            id: The id of a server that the workspace has added.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            url: The server's URL; may refer to each of `secrets` as ${NAME}.
            type: http: Streamable HTTP; sse: the older HTTP with SSE.
            headers: Headers of each request; a value may refer to each of `secrets` as ${NAME}.
            command: A program on Rookery's host. Allowed only with ROOKERY_SERVER_COMMANDS.
            args: The arguments of the program.
            env: Environment variables of the program, in addition to PATH, HOME and a few others.
            cwd: The working directory of the program.
            name: The displayed name; by default the title that the server gives itself, else the id.
            tagline: One sentence on the server.
            description: A description for people.
            icon: The address of an image.
            status: Set by you. A deprecated server works, and its answers say so.
            use_when: Shown to agents: when to use this server.
            related_servers: The ids of servers that complement this one.
            enabled: false: the server is not listed, and calls fail with 403 disabled.
            sandbox: Whether test keys may call all its tools.
            isolation: Which callers share a session with the server.
            replicas: The number of parallel sessions.
            lifecycle: lazy: the session opens with the first call; eager: at the start.
            idle_s: Idle seconds after which a session is closed; null: never.
            timeout_s: Time-out of a call in seconds.
            max_concurrency: Concurrent calls of any kind in a session. By default 64; those of a command that may change something run
                one at a time.
            forward_headers: Names of headers of the caller that are sent on with a call.
            forward_meta: Keys of `_meta` in a message of an MCP client that are sent on with it, such as `claudecode/*`; none by
                default.
            tools: Which tools are offered, with their time-outs and caches.
            auth: oauth, or its settings, if the server requires a login by OAuth.
            roots: Folders announced to the server: file URIs, or `caller`, which requires a session per key; null: none.
            deprecated_at: Date of deprecation; null: the date on which the status changed.
            sunset_at: Planned date of removal, at least six months after deprecated_at.
            start_timeout_s: Time-out of a start in seconds.
            protocol: The protocol revision in which the server is addressed; auto: negotiated and remembered (default); handshake: the
                newest one that begins with `initialize`.
            secrets: Each value replaces the old one; null removes the secret.
        """
        return await self._session.send(Call(
            operation="update_added_server", method="PATCH", path=fill_path("/api/v1/servers/{id}", id=id), result=models.AddedServer,
            headers=given(**{"If-Match": if_match}),
            body=given(
                url=url, type=type, headers=headers, command=command, args=args, env=env, cwd=cwd, name=name, tagline=tagline,
                description=description, icon=icon, status=status, use_when=use_when, related_servers=related_servers, enabled=enabled,
                sandbox=sandbox, isolation=isolation, replicas=replicas, lifecycle=lifecycle, idle_s=idle_s, timeout_s=timeout_s,
                max_concurrency=max_concurrency, forward_headers=forward_headers, forward_meta=forward_meta, tools=tools, auth=auth,
                roots=roots, deprecated_at=deprecated_at, sunset_at=sunset_at, start_timeout_s=start_timeout_s, protocol=protocol,
                secrets=secrets,
            ),
        ))

    async def remove_server(self, id: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Remove a tool server and its secrets. Its calls stay in the log.

        Requires the scope `servers:delete`.

        Args:
            id: The id of a server that the workspace has added.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="remove_server", method="DELETE", path=fill_path("/api/v1/servers/{id}", id=id), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def check_server(self, id: str) -> models.Check:
        """
        Connect to a tool server in a separate session and return the tools it lists, or what is wrong.

        Any server that the key may use can be checked: one that the workspace added, or one of the installation. Headers of the request
        that the entry forwards (`forward_headers`) are sent to the server.

        Requires the scope `servers:write`.

        Args:
            id: The id of a server that the workspace has added.
        """
        return await self._session.send(Call(
            operation="check_server", method="POST", path=fill_path("/api/v1/servers/{id}/check", id=id), result=models.Check,
        ))

    async def get_server_login(self, server_id: str) -> models.Login:
        """
        Return whether there is a login at the tool server. Tokens are never returned.

        Requires the scope `servers:read`.

        Args:
            server_id: The id of a tool server.
        """
        return await self._session.send(Call(
            operation="get_server_login", method="GET", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.Login,
        ))

    async def start_server_login(self, server_id: str) -> models.LoginBegun:
        """
        Discover the authorisation server of a tool server, and return the address to open in a browser.

        Requires the scope `servers:write`.

        Args:
            server_id: The id of a tool server.
        """
        return await self._session.send(Call(
            operation="start_server_login", method="POST", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=models.LoginBegun,
        ))

    async def delete_server_login(self, server_id: str) -> None:
        """
        Delete the workspace's tokens of a tool server. Every process stops using them within a second.

        Requires the scope `servers:write`.

        Args:
            server_id: The id of a tool server.
        """
        return await self._session.send(Call(
            operation="delete_server_login", method="DELETE", path=fill_path("/api/v1/servers/{server_id}/login", server_id=server_id),
            result=type(None), reader="nothing",
        ))
