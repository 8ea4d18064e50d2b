"""Servers that are part of this process: another domain's tools, called as themselves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.tools.builtin_schemas import publish
from rookery.tools.errors import ConnectFailed, UpstreamRefused
from rookery.tools.models import BuiltIn, Facts, JsonObject, Offer, Server
from rookery.tools.ports import Asking, BuiltinServer, Method

_CALLERS_OWN = frozenset({403, 429})
"""Statuses that answer the caller as they are; anything else is the tool's failure (`BuiltinServer.call`)."""

_NOT_FOUND = -32602
_MOST_TOLD = 50


def entry_of(builtin: BuiltinServer) -> Server:
    """Return the catalogue's entry of a built-in server: seen by every workspace, also by test keys (their twin is the sandbox)."""
    return Server(
        id=builtin.id,
        name=builtin.name,
        tagline=builtin.tagline,
        description=builtin.description,
        target=BuiltIn(),
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
    ) -> AsyncGenerator[InProcess]:
        """Return the built-in server of that id."""
        del on_changed, workspace_id, on_stderr
        builtin = self._builtins.get(server.id)
        if builtin is None:
            raise ConnectFailed(f"{server.id!r} is no built-in server.")
        yield InProcess(builtin)


class InProcess:
    """A built-in server as a `Connection`."""

    def __init__(self, builtin: BuiltinServer) -> None:
        self._builtin = builtin

    @property
    def facts(self) -> Facts:
        """It is of this process; see `Connection`."""
        return Facts(software=self._builtin.id, capabilities={"tools": {}})

    async def ask(self, method: Method, params: JsonObject, asking: Asking) -> JsonObject:
        """Run a tool as its caller; it has no resources, prompts and completions."""
        if method != "tools/call":
            raise UpstreamRefused(_NOT_FOUND, f"A built-in server has nothing to answer to {method}.")
        arguments = params.get("arguments")
        return await self._call(
            str(params["name"]), cast("Mapping[str, object]", arguments if isinstance(arguments, Mapping) else {}), asking.caller
        )

    async def _call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> JsonObject:
        """See `BuiltinServer.call`."""
        try:
            found = await self._builtin.call(tool, arguments, caller)
        except RookeryError as error:
            if error.status in _CALLERS_OWN:
                raise
            return {"content": [{"type": "text", "text": _told(error)}], "structuredContent": error.body(), "isError": True}
        content = dict(found)
        return {"content": [{"type": "text", "text": self._builtin.text(tool, content)}], "structuredContent": content, "isError": False}

    async def offer(self) -> Offer:
        """Return its tools in the protocol's words."""
        tools = self._builtin.tools()
        return Offer(
            tools=tuple(
                {
                    "name": tool.name,
                    "description": tool.description,
                    "inputSchema": publish(tool.input_schema),
                    "annotations": {name: hint for name, hint in tool.annotations.items() if name != "title"},
                }
                for tool in tools
            ),
            needs={tool.name: tool.needs for tool in tools},
        )

    async def wait_closed(self) -> str:
        """Never return: it lives as long as we."""
        await asyncio.Event().wait()
        return ""


def _told(error: RookeryError) -> str:
    """Return the words of *error*, with every field that is wrong: most models are shown this text and not what is beside it."""
    if not isinstance(error, ValidationFailed):
        return error.message
    errors = cast("Mapping[str, Sequence[str]]", error.detail["errors"])
    lines = [f"{field}: {text}" for field, texts in errors.items() for text in texts]
    return "\n".join(lines[:_MOST_TOLD]) or error.message
