"""Servers that are part of this process: another domain's tools, called as themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.tools.builtin_schemas import to_published_schema
from rookery.tools.errors import ConnectFailed, UpstreamErrorResponse
from rookery.tools.models import BuiltinTarget, ConnectionInfo, JsonObject, Server, ServerFeatures
from rookery.tools.ports import BuiltinServer, RequestOptions, UpstreamMethod

_PASSED_STATUSES = frozenset({403, 429})
"""Statuses that answer the caller as they are; anything else is the tool's failure (`BuiltinServer.call`)."""

_INVALID_PARAMS = -32602
_MAX_ERROR_LINES = 50


def build_builtin_entry(builtin: BuiltinServer) -> Server:
    """Return the catalogue's entry of a built-in server: seen by every workspace, also by test keys (their twin is the sandbox)."""
    return Server(
        id=builtin.id,
        name=builtin.name,
        tagline=builtin.tagline,
        description=builtin.description,
        target=BuiltinTarget(),
        sandbox=True,
    )


class InProcessConnector:
    """Hands out the built-in servers as connections; see `Connector`."""

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
        """Return the built-in server of that id."""
        del on_changed, workspace_id, on_stderr
        builtin = self._builtins.get(server.id)
        if builtin is None:
            raise ConnectFailed(f"{server.id!r} is no built-in server.")
        yield InProcessConnection(builtin)


class InProcessConnection:
    """A built-in server as a `Connection`."""

    def __init__(self, builtin: BuiltinServer) -> None:
        self._builtin = builtin

    @property
    def info(self) -> ConnectionInfo:
        """It is of this process; see `Connection`."""
        return ConnectionInfo(software=self._builtin.id, capabilities={"tools": {}})

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Run a tool as its caller; it has no resources, prompts and completions."""
        if method != "tools/call":
            raise UpstreamErrorResponse(_INVALID_PARAMS, f"A built-in server has nothing to answer to {method}.")
        arguments = params.get("arguments")
        return await self._call(
            str(params["name"]), cast("Mapping[str, object]", arguments if isinstance(arguments, Mapping) else {}), options.caller
        )

    async def _call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> JsonObject:
        """See `BuiltinServer.call`."""
        try:
            found = await self._builtin.call(tool, arguments, caller)
        except RookeryError as error:
            if error.status in _PASSED_STATUSES:
                raise
            return {"content": [{"type": "text", "text": _error_text(error)}], "structuredContent": error.body(), "isError": True}
        content = dict(found)
        return {"content": [{"type": "text", "text": self._builtin.text(tool, content)}], "structuredContent": content, "isError": False}

    async def list_features(self) -> ServerFeatures:
        """Return its tools in the protocol's words."""
        tools = self._builtin.tools()
        return ServerFeatures(
            tools=tuple(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": to_published_schema(tool.input_schema),
                    "annotations": {name: hint for name, hint in tool.annotations.items() if name != "title"},
                }
                for tool in tools
            ),
            required_scopes={tool.name: tool.required_scope for tool in tools},
        )

    async def wait_closed(self) -> str:
        """Never return: it lives as long as we."""
        await asyncio.Event().wait()
        return ""


def _error_text(error: RookeryError) -> str:
    """Return the words of *error*, with every field that is wrong: most models are shown this text and not what is beside it."""
    if not isinstance(error, ValidationFailed):
        return error.message
    errors = cast("Mapping[str, Sequence[str]]", error.detail["errors"])
    lines = [f"{field}: {text}" for field, texts in errors.items() for text in texts]
    return "\n".join(lines[:_MAX_ERROR_LINES]) or error.message
