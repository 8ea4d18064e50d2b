"""Connections to built-in servers, whose tools are methods of this process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.tools.errors import ConnectFailed, UpstreamErrorResponse
from rookery.tools.models import BuiltinTarget, ConnectionInfo, JsonObject, Server, ServerFeatures
from rookery.tools.ports import BuiltinServer, RequestOptions, UpstreamMethod

_PASSED_STATUSES = frozenset({403, 429})
"""Statuses that are returned to the caller as they are. Others become the tool's error (`BuiltinServer.call`)."""

_INVALID_PARAMS = -32602
_MAX_ERROR_LINES = 50


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


class InProcessConnector:
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
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[InProcessConnection]:
        """Yield a connection to the built-in server with the id of *server*."""
        del on_changed, workspace_id, on_stderr
        builtin = self._builtins.get(server.id)
        if builtin is None:
            raise ConnectFailed(f"{server.id!r} is not a built-in server.")
        yield InProcessConnection(builtin)


class InProcessConnection:
    """An `UpstreamConnection` to a built-in server."""

    def __init__(self, builtin: BuiltinServer) -> None:
        self._builtin = builtin

    @property
    def info(self) -> ConnectionInfo:
        """Facts about the server. It has no process and no session of its own."""
        return ConnectionInfo(software=self._builtin.id, capabilities={"tools": {}})

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Run a tool in the name of its caller. Built-in servers have no resources, prompts and completions."""
        if method != "tools/call":
            raise UpstreamErrorResponse(_INVALID_PARAMS, f"Built-in servers do not support {method}.")
        arguments = params.get("arguments")
        return await self._call(
            str(params["name"]), cast("Mapping[str, object]", arguments if isinstance(arguments, Mapping) else {}), options.caller
        )

    async def _call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> JsonObject:
        """Call the tool; see `BuiltinServer.call`."""
        try:
            result = await self._builtin.call(tool, arguments, caller)
        except RookeryError as error:
            if error.status in _PASSED_STATUSES:
                raise
            return {"content": [{"type": "text", "text": _error_text(error)}], "structuredContent": error.body(), "isError": True}
        content = dict(result)
        return {"content": [{"type": "text", "text": self._builtin.text(tool, content)}], "structuredContent": content, "isError": False}

    async def list_features(self) -> ServerFeatures:
        """Return the tools in the format of the protocol."""
        tools = self._builtin.tools()
        return ServerFeatures(
            tools=tuple(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": dict(tool.input_schema),
                    "outputSchema": dict(tool.output_schema),
                    "annotations": {name: hint for name, hint in tool.annotations.items() if name != "title"},
                }
                for tool in tools
            ),
            required_scopes={tool.name: tool.required_scope for tool in tools},
        )

    async def wait_closed(self) -> str:
        """Never return: the server lives as long as the process."""
        await asyncio.Event().wait()
        return ""


def _error_text(error: RookeryError) -> str:
    """Return the message of *error* with one line per invalid field. Most models see only this text and not the structured content."""
    if not isinstance(error, ValidationFailed):
        return error.message
    errors = cast("Mapping[str, Sequence[str]]", error.detail["errors"])
    lines = [f"{field}: {text}" for field, texts in errors.items() for text in texts]
    return "\n".join(lines[:_MAX_ERROR_LINES]) or error.message
