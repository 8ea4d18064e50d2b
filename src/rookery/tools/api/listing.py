"""What tool servers there are and what they offer: the reading half of spec 4.1, under /api/v1/mcp."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import Route, allowed_on_full_disk, describe, reply
from rookery.tools.calling.asked import Manner
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import Disabled, PromptFailed, PromptNotFound, ServerBusy, ServerNotFound, ServerUnavailable, SessionNotOpen
from rookery.tools.models import DEPRECATION_PERIOD, Server, Status
from rookery.tools.portraits import ServerPortraits, definitions
from rookery.tools.resources import Resources
from rookery.tools.schemas import (
    PromptAnswer,
    PromptList,
    PromptRequest,
    ResourceList,
    ServerAnswer,
    ServerList,
    TemplateList,
    ToolList,
)
from rookery.tools.supervision.sessions import Sessions

READ = "mcp:read"

_of_server = describe(errors=(PermissionDenied, Disabled, ServerNotFound))


@dataclass(frozen=True, slots=True)
class ListingRoutes:
    """Lists servers and what they offer; a list never waits for an upstream."""

    catalogue: Catalogue
    sessions: Sessions
    resources: Resources

    def routes(self) -> list[Route]:
        """Return the table, paths relative to the prefix."""
        discovery = ("Discovery",)
        return [
            Route(
                method="GET",
                path="/servers",
                handler=self.get_servers,
                needs=READ,
                answers=ServerList,
                operation_id="list_servers",
                summary="List the tool servers",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}",
                handler=self.get_server,
                needs=READ,
                answers=ServerAnswer,
                operation_id="get_server",
                summary="Show one server with its tools and resources",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/tools",
                handler=self.get_tools,
                needs=READ,
                answers=ToolList,
                operation_id="list_tools",
                summary="List a server's tools",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/resources",
                handler=self.get_resources,
                needs=READ,
                answers=ResourceList,
                operation_id="list_resources",
                summary="List a server's resources",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/resource-templates",
                handler=self.get_templates,
                needs=READ,
                answers=TemplateList,
                operation_id="list_resource_templates",
                summary="List a server's resource templates",
                tags=discovery,
            ),
            Route(
                method="GET",
                path="/servers/{server_id}/prompts",
                handler=self.get_prompts,
                needs=READ,
                answers=PromptList,
                operation_id="list_prompts",
                summary="List a server's prompts",
                tags=discovery,
            ),
            Route(
                method="POST",
                path="/servers/{server_id}/prompts/{name:path}",
                handler=self.post_prompt,
                needs=READ,
                answers=PromptAnswer,
                operation_id="get_prompt",
                summary="Fill in a prompt",
                tags=discovery,
            ),
        ]

    async def get_servers(self, request: Request) -> Response:
        """
        List the tool servers that the key may use, built-in ones included.

        Answered from the stored catalogue: no server is contacted.
        """
        caller = caller_of(request)
        found = self.catalogue.servers(caller)
        known = {server.id for server in found}
        servers = [self._portraits.summary(caller, server, known) for server in found]
        return reply(ServerList(servers=servers, count=len(servers)))

    @_of_server
    @describe(sends=("Deprecation", "Sunset"))
    async def get_server(self, request: Request, server_id: str) -> Response:
        """Return a tool server with its tools and resources. Waits up to 5 seconds if the server was never listed before."""
        caller, server = await self._seen(request, server_id)
        answer = self._portraits.whole(caller, server, with_standing=caller.may("servers:read"))
        return reply(answer, headers=deprecation(self.catalogue, server))

    @_of_server
    @describe(sends=("Deprecation", "Sunset"))
    async def get_tools(self, request: Request, server_id: str) -> Response:
        """
        List the tools of a server, each with the JSON Schema of its arguments.

        Waits up to 5 seconds if the server was never listed before.
        """
        caller, server = await self._seen(request, server_id)
        tools = definitions(self.catalogue.tools(caller, server))
        return reply(ToolList(server=server.id, tools=tools, count=len(tools)), headers=deprecation(self.catalogue, server))

    @_of_server
    @describe(sends=("Deprecation", "Sunset"))
    async def get_resources(self, request: Request, server_id: str) -> Response:
        """List the resources of a server. Waits up to 5 seconds if the server was never listed before."""
        caller, server = await self._seen(request, server_id)
        resources = self.resources.listed(server, caller)
        return reply(ResourceList(server=server.id, resources=resources, count=len(resources)), headers=deprecation(self.catalogue, server))

    @_of_server
    async def get_templates(self, request: Request, server_id: str) -> Response:
        """List the URI templates of a server's resources. Waits up to 5 seconds if the server was never listed before."""
        _, server = await self._seen(request, server_id)
        templates = self.resources.templates(server)
        return reply(TemplateList(server=server.id, resource_templates=templates, count=len(templates)))

    @_of_server
    async def get_prompts(self, request: Request, server_id: str) -> Response:
        """List the prompts of a server, each with its arguments. Waits up to 5 seconds if the server was never listed before."""
        _, server = await self._seen(request, server_id)
        prompts = [dict(prompt) for prompt in self.catalogue.offer(server).prompts]
        return reply(PromptList(server=server.id, prompts=prompts, count=len(prompts)))

    @allowed_on_full_disk
    @_of_server
    @describe(errors=(PromptNotFound, PromptFailed, ServerUnavailable, SessionNotOpen, ServerBusy), reads=("X-Session-ID",))
    async def post_prompt(self, request: Request, server_id: str, name: str, body: PromptRequest) -> Response:
        """Return the messages of a prompt, filled in by its server with the arguments of the body."""
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        result = await self.resources.prompt(caller, server, name, body.arguments, manner=Manner(session_id=session_of(request)))
        description, messages = result.get("description"), result.get("messages")
        return reply(
            PromptAnswer(
                server=server.id,
                prompt=name,
                description=description if isinstance(description, str) else None,
                messages=cast("list[object]", messages if isinstance(messages, list) else []),
            )
        )

    async def _seen(self, request: Request, server_id: str) -> tuple[Caller, Server]:
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        await self.catalogue.seen(server, caller)
        return caller, server

    @property
    def _portraits(self) -> ServerPortraits:
        return ServerPortraits(self.catalogue, self.sessions, self.resources)


def deprecation(catalogue: Catalogue, server: Server) -> dict[str, str] | None:
    """Return the headers of a deprecated server: since when it is (RFC 9745), and when it may be gone (RFC 8594, D-08)."""
    if server.status is not Status.DEPRECATED:
        return None
    since = catalogue.deprecated_at(server)
    sunset = max(server.sunset_at or since, since + DEPRECATION_PERIOD)
    return {"Deprecation": f"@{int(since.timestamp())}", "Sunset": format_datetime(sunset, usegmt=True)}


def session_of(request: Request) -> str | None:
    """Return the agent session that the request belongs to (D-38)."""
    return request.headers.get("x-session-id") or None
