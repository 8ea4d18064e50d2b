"""The table of routes of spec 4.1 under /api/v1/mcp, and a few lines for each."""

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
from rookery.access.models import Caller
from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http import Route, reply
from rookery.kernel.http.bodies import ClientLeft, InvalidJson
from rookery.tools.calls import Calls
from rookery.tools.catalogue import Catalogue, Tool
from rookery.tools.errors import CallInvalid
from rookery.tools.models import JsonObject, Outcome, Server, Status
from rookery.tools.resources import Resources
from rookery.tools.schemas import (
    PromptAnswer,
    PromptList,
    PromptRequest,
    ResourceList,
    ResourceResponse,
    ServerAnswer,
    ServerList,
    ServerSummary,
    TemplateList,
    ToolArguments,
    ToolCallRequest,
    ToolCallResponse,
    ToolList,
)
from rookery.tools.sessions import Sessions

READ, WRITE = "mcp:read", "mcp:write"
_WATCH_AFTER_S = 0.1
"""A call that takes longer is watched for its caller leaving; most are over by then, and watching costs a task."""


@dataclass(frozen=True)
class Api:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    catalogue: Catalogue
    sessions: Sessions
    calls: Calls
    resources: Resources

    def routes(self) -> list[Route]:
        """The table of spec 4.1, paths relative to the prefix, and D-30's and D-34's beside it."""
        discovery, execution = ("Discovery",), ("Execution",)
        return [
            Route(
                method="GET",
                path="/servers",
                handler=self.get_servers,
                needs=READ,
                answers=ServerList,
                summary="List the tool servers",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}",
                handler=self.get_server,
                needs=READ,
                answers=ServerAnswer,
                summary="Show one server with its tools and resources",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/tools",
                handler=self.get_tools,
                needs=READ,
                answers=ToolList,
                summary="List a server's tools",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/resources",
                handler=self.get_resources,
                needs=READ,
                answers=ResourceList,
                summary="List a server's resources",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/resource-templates",
                handler=self.get_templates,
                needs=READ,
                answers=TemplateList,
                summary="List a server's templates of resources",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/prompts",
                handler=self.get_prompts,
                needs=READ,
                answers=PromptList,
                summary="List a server's prompts",
                tags=discovery,
            ),
            Route(
                method="POST",
                path="/servers/{server_id}/prompts/{name:path}",
                handler=self.post_prompt,
                needs=READ,
                answers=PromptAnswer,
                summary="Fill in a prompt",
                tags=discovery,
            ),
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

    async def get_servers(self, request: Request) -> Response:
        """Never waits for an upstream."""
        caller = caller_of(request)
        servers = [self._summary(caller, server) for server in self.catalogue.servers(caller)]
        return reply(ServerList(servers=servers, count=len(servers)))

    async def get_server(self, request: Request, server_id: str) -> Response:
        """Waits 5 seconds at most for a server never seen before."""
        caller, server = await self._seen(request, server_id)
        condition, offer = self.sessions.condition(server), self.catalogue.offer(server)
        answer = ServerAnswer(
            **self._summary(caller, server).model_dump(),
            description=server.description,
            instructions=offer.instructions,
            last_error=(condition.last_error or None) if caller.may("servers:read") else None,
            seen_at=self.catalogue.seen_at(server),
            tools=_definitions(self.catalogue.tools(caller, server)),
            resources=self.resources.listed(server),
        )
        return reply(answer, headers=self._deprecation(server))

    async def get_tools(self, request: Request, server_id: str) -> Response:
        """Waits as `get_server`."""
        caller, server = await self._seen(request, server_id)
        tools = _definitions(self.catalogue.tools(caller, server))
        return reply(ToolList(server=server.id, tools=tools, count=len(tools)), headers=self._deprecation(server))

    async def get_resources(self, request: Request, server_id: str) -> Response:
        """Waits as `get_server`."""
        _, server = await self._seen(request, server_id)
        resources = self.resources.listed(server)
        return reply(ResourceList(server=server.id, resources=resources, count=len(resources)), headers=self._deprecation(server))

    async def get_templates(self, request: Request, server_id: str) -> Response:
        """Waits as `get_server`."""
        _, server = await self._seen(request, server_id)
        templates = self.resources.templates(server)
        return reply(TemplateList(server=server.id, resource_templates=templates, count=len(templates)))

    async def get_prompts(self, request: Request, server_id: str) -> Response:
        """Waits as `get_server`."""
        _, server = await self._seen(request, server_id)
        prompts = [dict(prompt) for prompt in self.catalogue.offer(server).prompts]
        return reply(PromptList(server=server.id, prompts=prompts, count=len(prompts)))

    async def post_prompt(self, request: Request, server_id: str, name: str, body: PromptRequest) -> Response:
        """Ask the upstream for a prompt."""
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        result = await self.resources.prompt(caller, server, name, body.arguments, session_id=_session_of(request))
        description, messages = result.get("description"), result.get("messages")
        return reply(
            PromptAnswer(
                server=server.id,
                prompt=name,
                description=description if isinstance(description, str) else None,
                messages=cast("list[object]", messages if isinstance(messages, list) else []),
            )
        )

    async def post_call(self, request: Request, body: ToolCallRequest) -> Response:
        """Call the tool that the body names."""
        return await self._call(request, body.server, body.tool, body.arguments or {})

    async def post_tool(self, request: Request, server_id: str, tool: str, body: ToolArguments) -> Response:
        """Call the tool that the path names."""
        return await self._call(request, server_id, tool, body.root)

    async def get_resource(self, request: Request, uri: str) -> Response:
        """Read a resource by the gateway's uri, raw in the path or percent-encoded."""
        content = await self.resources.read(caller_of(request), uri, session_id=_session_of(request))
        return reply({"uri": uri, "content": content})

    async def _call(self, request: Request, server_id: str, tool: str, arguments: Mapping[str, object]) -> Response:
        async with _while_connected(request):
            outcome = await self.calls.call(caller_of(request), server_id, tool, arguments, session_id=_session_of(request))
        return reply(_shown(outcome), status=200 if outcome.code is None else 500, headers=self._deprecation(outcome.server))

    async def _seen(self, request: Request, server_id: str) -> tuple[Caller, Server]:
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        await self.catalogue.seen(server)
        return caller, server

    def _summary(self, caller: Caller, server: Server) -> ServerSummary:
        return ServerSummary(
            id=server.id,
            name=server.name,
            tagline=server.tagline,
            status=server.status.value,
            health=self.sessions.condition(server).health.value,
            tool_count=len(self.catalogue.tools(caller, server)),
            resource_count=len(self.catalogue.offer(server).resources),
            icon=server.icon,
            use_when=server.use_when,
            related_servers=list(server.related_servers),
        )

    def _deprecation(self, server: Server) -> dict[str, str] | None:
        """Return the header of RFC 9745 for a deprecated server: since the file said so, as far as we know (D-33)."""
        if server.status is not Status.DEPRECATED:
            return None
        return {"Deprecation": f"@{int(self.catalogue.file_state.changed_at)}"}


def _definitions(tools: list[Tool]) -> list[JsonObject]:
    return [tool.definition for tool in tools]


def _shown(outcome: Outcome) -> JsonObject:
    shown: JsonObject = {"success": outcome.code is None, "server": outcome.server.id, "tool": outcome.tool}
    if outcome.result is not None:
        shown["result"] = orjson.Fragment(outcome.result)
    shown["duration_ms"] = round(outcome.duration_ms)
    if outcome.code is not None:
        shown["error"], shown["code"] = outcome.error, outcome.code
    return shown


def _session_of(request: Request) -> str | None:
    return request.headers.get("x-session-id") or None


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
