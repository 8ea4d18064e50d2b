"""Routes that list tool servers and their features: the reading half of spec 4.1, under /api/v1/mcp."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import format_datetime
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import Operation, allowed_on_full_disk, document_route, json_response
from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import PromptFailed, PromptNotFound, ServerBusy, ServerNotFound, ServerUnavailable, SessionNotOpen, ToolDisabled
from rookery.tools.models import DEPRECATION_PERIOD, Server, ServerStatus
from rookery.tools.resources import ResourceReader
from rookery.tools.schemas import (
    PromptList,
    PromptRequest,
    PromptResponse,
    ResourceList,
    ServerList,
    ServerResponse,
    TemplateList,
    ToolList,
)
from rookery.tools.serializers import ServerSerializer, list_definitions
from rookery.tools.supervision.session_pool import SessionPool

READ_SCOPE = "mcp:read"

_describes_server = document_route(errors=(PermissionDenied, ToolDisabled, ServerNotFound))


@dataclass(frozen=True, slots=True)
class ListingRoutes:
    """Lists servers and their features. A list never waits for an upstream."""

    catalogue: Catalogue
    sessions: SessionPool
    resources: ResourceReader

    def routes(self) -> list[Operation]:
        """Return the routes, with paths relative to the prefix."""
        discovery = ("Discovery",)
        return [
            Operation(
                method="GET",
                path="/servers",
                handler=self.get_servers,
                required_scope=READ_SCOPE,
                response_model=ServerList,
                operation_id="list_servers",
                summary="List the tool servers",
                tags=discovery,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}",
                handler=self.get_server,
                required_scope=READ_SCOPE,
                response_model=ServerResponse,
                operation_id="get_server",
                summary="Show one server with its tools and resources",
                tags=discovery,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}/tools",
                handler=self.get_tools,
                required_scope=READ_SCOPE,
                response_model=ToolList,
                operation_id="list_tools",
                summary="List a server's tools",
                tags=discovery,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}/resources",
                handler=self.get_resources,
                required_scope=READ_SCOPE,
                response_model=ResourceList,
                operation_id="list_resources",
                summary="List a server's resources",
                tags=discovery,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}/resource-templates",
                handler=self.get_templates,
                required_scope=READ_SCOPE,
                response_model=TemplateList,
                operation_id="list_resource_templates",
                summary="List a server's resource templates",
                tags=discovery,
            ),
            Operation(
                method="GET",
                path="/servers/{server_id}/prompts",
                handler=self.get_prompts,
                required_scope=READ_SCOPE,
                response_model=PromptList,
                operation_id="list_prompts",
                summary="List a server's prompts",
                tags=discovery,
            ),
            Operation(
                method="POST",
                path="/servers/{server_id}/prompts/{name:path}",
                handler=self.post_prompt,
                required_scope=READ_SCOPE,
                response_model=PromptResponse,
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
        caller = get_caller(request)
        visible_servers = self.catalogue.list_servers(caller)
        server_ids = {server.id for server in visible_servers}
        servers = [self._serializer.serialize_summary(caller, server, server_ids) for server in visible_servers]
        return json_response(ServerList(servers=servers, count=len(servers)))

    @_describes_server
    @document_route(response_headers=("Deprecation", "Sunset"))
    async def get_server(self, request: Request, server_id: str) -> Response:
        """Return a tool server with its tools and resources. Waits up to 5 seconds if the server was never listed before."""
        caller, server = await self._wait_listed(request, server_id)
        content = self._serializer.serialize_server(caller, server, with_health=caller.has_scope("servers:read"))
        return json_response(content, headers=build_deprecation_headers(self.catalogue, server))

    @_describes_server
    @document_route(response_headers=("Deprecation", "Sunset"))
    async def get_tools(self, request: Request, server_id: str) -> Response:
        """
        List the tools of a server, each with the JSON Schema of its arguments.

        Waits up to 5 seconds if the server was never listed before.
        """
        caller, server = await self._wait_listed(request, server_id)
        tools = list_definitions(self.catalogue.list_tools(caller, server))
        return json_response(
            ToolList(server=server.id, tools=tools, count=len(tools)), headers=build_deprecation_headers(self.catalogue, server)
        )

    @_describes_server
    @document_route(response_headers=("Deprecation", "Sunset"))
    async def get_resources(self, request: Request, server_id: str) -> Response:
        """List the resources of a server. Waits up to 5 seconds if the server was never listed before."""
        caller, server = await self._wait_listed(request, server_id)
        resources = self.resources.list_resources(server, caller)
        return json_response(
            ResourceList(server=server.id, resources=resources, count=len(resources)),
            headers=build_deprecation_headers(self.catalogue, server),
        )

    @_describes_server
    async def get_templates(self, request: Request, server_id: str) -> Response:
        """List the URI templates of a server's resources. Waits up to 5 seconds if the server was never listed before."""
        _, server = await self._wait_listed(request, server_id)
        templates = self.resources.list_templates(server)
        return json_response(TemplateList(server=server.id, resource_templates=templates, count=len(templates)))

    @_describes_server
    async def get_prompts(self, request: Request, server_id: str) -> Response:
        """List the prompts of a server, each with its arguments. Waits up to 5 seconds if the server was never listed before."""
        _, server = await self._wait_listed(request, server_id)
        prompts = [dict(prompt) for prompt in self.catalogue.get_features(server).prompts]
        return json_response(PromptList(server=server.id, prompts=prompts, count=len(prompts)))

    @allowed_on_full_disk
    @_describes_server
    @document_route(errors=(PromptNotFound, PromptFailed, ServerUnavailable, SessionNotOpen, ServerBusy), request_headers=("X-Session-ID",))
    async def post_prompt(self, request: Request, server_id: str, name: str, body: PromptRequest) -> Response:
        """Return the messages of a prompt, filled in by its server with the arguments of the body."""
        caller = get_caller(request)
        server = self.catalogue.get_server(caller, server_id)
        result = await self.resources.get_prompt(
            caller, server, name, body.arguments, options=CallOptions(session_id=get_session_id(request))
        )
        description, messages = result.get("description"), result.get("messages")
        return json_response(
            PromptResponse(
                server=server.id,
                prompt=name,
                description=description if isinstance(description, str) else None,
                messages=cast("list[object]", messages if isinstance(messages, list) else []),
            )
        )

    async def _wait_listed(self, request: Request, server_id: str) -> tuple[Caller, Server]:
        caller = get_caller(request)
        server = self.catalogue.get_server(caller, server_id)
        await self.catalogue.wait_listed(server, caller)
        return caller, server

    @property
    def _serializer(self) -> ServerSerializer:
        return ServerSerializer(self.catalogue, self.sessions, self.resources)


def build_deprecation_headers(catalogue: Catalogue, server: Server) -> dict[str, str] | None:
    """Return the headers of a deprecated server: its date of deprecation (RFC 9745) and of removal (RFC 8594, D-08)."""
    if server.status is not ServerStatus.DEPRECATED:
        return None
    since = catalogue.deprecated_at(server)
    sunset = max(server.sunset_at or since, since + DEPRECATION_PERIOD)
    return {"Deprecation": f"@{int(since.timestamp())}", "Sunset": format_datetime(sunset, usegmt=True)}


def get_session_id(request: Request) -> str | None:
    """Return the agent session of the request (D-38), or None."""
    return request.headers.get("x-session-id") or None
