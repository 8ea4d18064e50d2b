"""Calling tools and reading resources: the executing half of spec 4.1, and D-34's beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http import Route, reply
from rookery.kernel.http.bodies import ClientLeft, InvalidJson
from rookery.tools.api.listing import READ, deprecation, session_of
from rookery.tools.calls import Calls
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import CallInvalid
from rookery.tools.models import JsonObject, Outcome
from rookery.tools.resources import Resources
from rookery.tools.schemas import ResourceResponse, ToolArguments, ToolCallRequest, ToolCallResponse

WRITE = "mcp:write"
_WATCH_AFTER_S = 0.1
"""A call that takes longer is watched for its caller leaving; most are over by then, and watching costs a task."""


@dataclass(frozen=True, slots=True)
class CallRoutes:
    """Runs tools, reads resources."""

    catalogue: Catalogue
    calls: Calls
    resources: Resources

    def routes(self) -> list[Route]:
        """Return the table, paths relative to the prefix."""
        execution = ("Execution",)
        return [
            Route(
                method="POST",
                path="/tools/call",
                handler=self.post_call,
                needs=WRITE,
                answers=ToolCallResponse,
                summary="Call a tool",
                tags=execution,
                refuse=_refusal_of_call,
            ),
            Route(
                method="POST",
                path="/servers/{server_id}/tools/{tool:path}",
                handler=self.post_tool,
                needs=WRITE,
                answers=ToolCallResponse,
                summary="Call a tool with the bare arguments",
                tags=execution,
                refuse=_refusal_of_tool,
            ),
            Route(
                method="GET",
                path="/resources/{uri:path}",
                handler=self.get_resource,
                needs=READ,
                answers=ResourceResponse,
                summary="Read a resource",
                tags=execution,
            ),
        ]

    async def post_call(self, request: Request, body: ToolCallRequest) -> Response:
        """Call the tool that the body names."""
        return await self._call(request, body.server, body.tool, body.arguments or {})

    async def post_tool(self, request: Request, server_id: str, tool: str, body: ToolArguments) -> Response:
        """Call the tool that the path names."""
        return await self._call(request, server_id, tool, body.root)

    async def get_resource(self, request: Request, uri: str) -> Response:
        """Read a resource by the gateway's uri, raw in the path or percent-encoded."""
        content = await self.resources.read(caller_of(request), uri, session_id=session_of(request))
        return reply({"uri": uri, "content": content})

    async def _call(self, request: Request, server_id: str, tool: str, arguments: Mapping[str, object]) -> Response:
        async with _while_connected(request):
            outcome = await self.calls.call(caller_of(request), server_id, tool, arguments, session_id=session_of(request))
        return reply(_shown(outcome), status=200 if outcome.code is None else 500, headers=deprecation(self.catalogue, outcome.server))


def _shown(outcome: Outcome) -> JsonObject:
    shown: JsonObject = {"success": outcome.code is None, "server": outcome.server.id, "tool": outcome.tool}
    if outcome.result is not None:
        shown["result"] = orjson.Fragment(outcome.result)
    shown["duration_ms"] = round(outcome.duration_ms)
    if outcome.code is not None:
        shown["error"], shown["code"] = outcome.error, outcome.code
    return shown


def _refusal_of_call(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    """Return *error* as D-34 wants it: 400 for a body of the wrong form, and what was to be called beside every one."""
    del path
    called: dict[str, object] = {}
    if isinstance(body, dict):
        fields = cast("dict[object, object]", body)
        called = {name: value for name in ("server", "tool") if isinstance(value := fields.get(name), str)}
    return _refusal(error, called)


def _refusal_of_tool(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    del body
    return _refusal(error, {"server": path["server_id"], "tool": path["tool"]})


def _refusal(error: RookeryError, called: Mapping[str, object]) -> RookeryError:
    if isinstance(error, (ValidationFailed, InvalidJson)):
        refused = CallInvalid(error.message)
        refused.detail.update(error.detail)
        error = refused
    error.detail.update({**called, "success": False})
    return error


@contextlib.asynccontextmanager
async def _while_connected(request: Request) -> AsyncGenerator[None]:
    """
    Run the body for as long as the caller is there; once it left, the body is cancelled (D-34).

    Raises:
        ClientLeft: In the place of that cancellation.
    """
    here = asyncio.current_task()
    watching: list[asyncio.Task[None]] = []
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            continue
        has_left = True
        if here is not None:
            here.cancel()

    later = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, lambda: watching.append(asyncio.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if not has_left or here is None:
            raise
        here.uncancel()
        raise ClientLeft from None
    finally:
        later.cancel()
        for task in watching:
            task.cancel()
