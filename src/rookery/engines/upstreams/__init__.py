"""Connectors to tool servers, one for each kind of server. All are available at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.imports import import_in_thread
from rookery.tools.errors import ConnectFailed, UpstreamErrorResponse
from rookery.tools.models import AuthorizationRequest, BuiltinTarget, ConnectionInfo, JsonObject, Login, Server, ServerFeatures, ServerKind
from rookery.tools.ports import (
    AuthorizationServers,
    BuiltinServer,
    Connector,
    NegotiatedProtocols,
    RequestOptions,
    TokenProvider,
    UpstreamConnection,
    UpstreamMethod,
)

__all__ = ["authorities", "build_builtin_entry", "open"]

_PASSED_STATUSES = frozenset({403, 429})
"""Statuses that are returned to the caller as they are. Others become the tool's error (`BuiltinServer.call`)."""

_INVALID_PARAMS = -32602
_MAX_ERROR_LINES = 50


def open(  # noqa: A001 - each engine folder has an `open`
    builtins: Sequence[BuiltinServer],
    *,
    egress: EgressGuard | None = None,
    tokens: TokenProvider | None = None,
    protocols: NegotiatedProtocols | None = None,
) -> Mapping[ServerKind, Connector]:
    """
    Return a connector for each kind of server. The MCP SDK is imported when needed.

    Args:
        builtins: Servers that run in this process.
        egress: Checks the addresses of servers that workspaces added.
        tokens: Access tokens of logins. Without it, servers that require a login cannot be reached.
        protocols: The protocol revision of each server. Without it, every start probes the server.
    """

    def stdio() -> Connector:
        from rookery.engines.upstreams.process import StdioConnector

        return StdioConnector(protocols)

    def http() -> Connector:
        from rookery.engines.upstreams.http import HttpConnector

        return HttpConnector(tokens, egress, protocols)

    over_http = _LazyConnector(http)
    return {"stdio": _LazyConnector(stdio), "http": over_http, "sse": over_http, "builtin": _BuiltinConnector(builtins)}


def authorities(egress: EgressGuard | None = None, *, clock: Callable[[], float] = time.time) -> AuthorizationServers:
    """Return the client for authorisation servers. It is imported with the first login."""

    def load() -> AuthorizationServers:
        from rookery.engines.upstreams.oauth import OAuthAuthorities

        return OAuthAuthorities(egress, clock=clock)

    return _LazyAuthorities(load)


class _LazyConnector:
    """A `Connector` that creates the real one with *load* at the first session."""

    def __init__(self, load: Callable[[], Connector]) -> None:
        self._load = load
        self._connector: Connector | None = None

    @asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_output: Callable[[str], None] | None = None,
        on_process: Callable[[int], None] | None = None,
        opener: RequestOptions | None = None,
    ) -> AsyncGenerator[UpstreamConnection]:
        """Open a session. The first one waits for the import, which runs in a thread and does not block the event loop."""
        if self._connector is None:
            self._connector = await import_in_thread(self._load)
            # Imported objects are never freed. Without this, every full garbage collection would visit them and block for 50 ms.
            gc.freeze()
        async with self._connector.connect(
            server, on_changed=on_changed, workspace_id=workspace_id, on_output=on_output, on_process=on_process, opener=opener
        ) as connection:
            yield connection


class _LazyAuthorities:
    """An `AuthorizationServers` that creates the real one with *load* at the first call."""

    def __init__(self, load: Callable[[], AuthorizationServers]) -> None:
        self._load = load
        self._loaded: AuthorizationServers | None = None

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        return await (await self._load_once()).begin(server, redirect_uri=redirect_uri, document=document)

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        return await (await self._load_once()).finish(server, start, code=code, issuer=issuer)

    async def renew(self, server: Server, login: Login) -> Login:
        return await (await self._load_once()).renew(server, login)

    async def _load_once(self) -> AuthorizationServers:
        if self._loaded is None:
            self._loaded = await import_in_thread(self._load)
        return self._loaded


def build_builtin_entry(builtin: BuiltinServer) -> Server:
    """Return the catalogue entry of a built-in server. All workspaces see it, test keys too (they use the sandbox)."""
    return Server(
        id=builtin.id,
        name=builtin.name,
        tagline=builtin.tagline,
        description=builtin.description,
        target=BuiltinTarget(),
        sandbox=True,
    )


class _BuiltinConnector:
    """A `Connector` for built-in servers."""

    def __init__(self, builtins: Sequence[BuiltinServer]) -> None:
        self._builtins = {builtin.id: builtin for builtin in builtins}

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_output: Callable[[str], None] | None = None,
        on_process: Callable[[int], None] | None = None,
        opener: RequestOptions | None = None,
    ) -> AsyncGenerator[_BuiltinConnection]:
        """Yield a connection to the built-in server with the id of *server*."""
        del on_changed, workspace_id, on_output, on_process, opener
        builtin = self._builtins.get(server.id)
        if builtin is None:
            raise ConnectFailed(f"{server.id!r} is not a built-in server.")
        yield _BuiltinConnection(builtin)


class _BuiltinConnection:
    """An `UpstreamConnection` to a built-in server."""

    def __init__(self, builtin: BuiltinServer) -> None:
        self._builtin = builtin

    @property
    def info(self) -> ConnectionInfo:
        """Facts about the server. It has no process and no session of its own."""
        return ConnectionInfo(software=self._builtin.id, capabilities={"tools": {}})

    @property
    def has_subscribers(self) -> bool:
        """Built-in servers have no resources."""
        return False

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Run a tool in the name of its caller. Built-in servers have no resources, prompts and completions."""
        if method != "tools/call":
            raise UpstreamErrorResponse(_INVALID_PARAMS, f"Built-in servers do not support {method}.")
        arguments = params.get("arguments")
        return await self._call(
            str(params["name"]), cast("Mapping[str, object]", arguments if isinstance(arguments, Mapping) else {}), options
        )

    async def _call(self, tool: str, arguments: Mapping[str, object], options: RequestOptions) -> JsonObject:
        """Call the tool; see `BuiltinServer.call`."""
        try:
            result = await self._builtin.call(tool, arguments, options.caller, session=options.session)
        except RookeryError as error:
            if error.status in _PASSED_STATUSES:
                raise
            return {"content": [{"type": "text", "text": _error_text(error)}], "structuredContent": error.body(), "isError": True}
        output = self._builtin.render(tool, result, arguments)
        return {"content": [{"type": "text", "text": output.text}], "structuredContent": dict(output.structured), "isError": False}

    async def list_features(self, opener: RequestOptions | None = None) -> ServerFeatures:
        """Return the tools in the format of the protocol. They are built in a thread, because their schemas take 0.1 s."""
        del opener
        tools = await asyncio.to_thread(self._builtin.tools)
        return ServerFeatures(
            tools=tuple(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": dict(tool.input_schema),
                    "outputSchema": dict(tool.output_schema),
                    "annotations": {name: hint for name, hint in tool.annotations.items() if name != "title"},
                    **({"_meta": dict(tool.meta)} if tool.meta else {}),
                }
                for tool in tools
            ),
            required_scopes={tool.name: tool.required_scope for tool in tools},
            accepted_schemas={tool.name: dict(tool.accepted_schema) for tool in tools},
        )

    async def wait_closed(self) -> str:
        """Never return: the server lives as long as the process."""
        await asyncio.Event().wait()
        return ""


def _error_text(error: RookeryError) -> str:
    """Return the message of *error* with one line per invalid field. Most models see only this text and not the structured content."""
    if not isinstance(error, ValidationFailed):
        return error.message
    errors = error.field_errors
    lines = [f"{field}: {text}" for field, texts in errors.items() for text in texts]
    return "\n".join(lines[:_MAX_ERROR_LINES]) or error.message
