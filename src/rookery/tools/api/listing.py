"""Operations that list tool servers and their features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import format_datetime
from functools import partial
from typing import cast

from pydantic import BaseModel
from starlette.requests import Request

from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied
from rookery.kernel.http import Operation, Output
from rookery.tools.call_options import CallOptions
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
from rookery.tools.serializers import ServerSerializer

READ_SCOPE = "mcp:read"
SERVER_ERRORS = (PermissionDenied, ToolDisabled, ServerNotFound)

_operation = partial(Operation, required_scope=READ_SCOPE, tags=("Discovery",))


@dataclass(frozen=True, slots=True)
class ListingApi:
    """Lists servers and their features. A list never waits for an upstream."""

    catalogue: Catalogue
    resources: ResourceReader
    serializer: ServerSerializer

    def operations(self) -> list[Operation]:
        """Return the operations, with paths relative to the prefix."""
        one = "/servers/{server_id}"
        listing = partial(_operation, method="GET", errors=SERVER_ERRORS)
        listing = partial(listing, request_headers=("X-Session-ID",))
        dated = partial(listing, response_headers=("Deprecation", "Sunset"))
        return [
            _operation(method="GET", path="/servers", handler=self.get_servers, response_model=ServerList,
                       operation_id="list_servers", summary="List the tool servers"),
            dated(path=one, handler=self.get_server, response_model=ServerResponse, operation_id="get_server",
                  summary="Show one server with its tools and resources"),
            dated(path=f"{one}/tools", handler=self.get_tools, response_model=ToolList, operation_id="list_tools",
                  summary="List a server's tools"),
            dated(path=f"{one}/resources", handler=self.get_resources, response_model=ResourceList, operation_id="list_resources",
                  summary="List a server's resources"),
            listing(path=f"{one}/resource-templates", handler=self.get_templates, response_model=TemplateList,
                    operation_id="list_resource_templates", summary="List a server's resource templates"),
            listing(path=f"{one}/prompts", handler=self.get_prompts, response_model=PromptList, operation_id="list_prompts",
                    summary="List a server's prompts"),
            _operation(method="POST", path=f"{one}/prompts/{{name:path}}", handler=self.post_prompt, response_model=PromptResponse,
                       operation_id="get_prompt", summary="Fill in a prompt", request_headers=("X-Session-ID",),
                       errors=(*SERVER_ERRORS, PromptNotFound, PromptFailed, ServerUnavailable, SessionNotOpen, ServerBusy),
                       allowed_on_full_disk=True),
        ]  # fmt: skip

    async def get_servers(self, caller: Caller) -> ServerList:
        """
        List the tool servers that the key may use, built-in ones included.

        Answered from the stored catalogue: no server is contacted.
        """
        return ServerList.from_listings(self.serializer.discovery.list_servers(caller))

    async def get_server(self, caller: Caller, request: Request, server_id: str) -> Output:
        """Return a tool server with its tools and resources. Waits up to 5 seconds if the server was never listed before."""
        with_health, options = caller.has_scope("servers:read"), to_call_options(request)

        def present(server: Server) -> ServerResponse:
            return self.serializer.serialize_server(caller, server, with_health=with_health, session_id=options.session_id)

        return await self._respond(caller, server_id, options, present)

    async def get_tools(self, caller: Caller, request: Request, server_id: str) -> Output:
        """
        List the tools of a server, each with the JSON Schema of its arguments.

        Waits up to 5 seconds if the server was never listed before.
        """
        options = to_call_options(request)

        def present(server: Server) -> ToolList:
            tools = [tool.definition for tool in self.catalogue.list_tools(caller, server, options.session_id)]
            return ToolList(server=server.id, tools=tools, count=len(tools))

        return await self._respond(caller, server_id, options, present)

    async def get_resources(self, caller: Caller, request: Request, server_id: str) -> Output:
        """List the resources of a server. Waits up to 5 seconds if the server was never listed before."""
        options = to_call_options(request)

        def present(server: Server) -> ResourceList:
            resources = self.resources.list_resources(server, caller, options.session_id)
            return ResourceList(server=server.id, resources=resources, count=len(resources))

        return await self._respond(caller, server_id, options, present)

    async def get_templates(self, caller: Caller, request: Request, server_id: str) -> TemplateList:
        """List the URI templates of a server's resources. Waits up to 5 seconds if the server was never listed before."""
        options = to_call_options(request)
        server = await self._wait_listed(caller, server_id, options)
        templates = self.resources.list_templates(server, caller, options.session_id)
        return TemplateList(server=server.id, resource_templates=templates, count=len(templates))

    async def get_prompts(self, caller: Caller, request: Request, server_id: str) -> PromptList:
        """List the prompts of a server, each with its arguments. Waits up to 5 seconds if the server was never listed before."""
        options = to_call_options(request)
        server = await self._wait_listed(caller, server_id, options)
        prompts = self.catalogue.get_features(server, caller, options.session_id).prompts
        return PromptList(server=server.id, prompts=list(prompts), count=len(prompts))

    async def post_prompt(self, caller: Caller, request: Request, server_id: str, name: str, body: PromptRequest) -> PromptResponse:
        """Return the messages of a prompt, filled in by its server with the arguments of the body."""
        server = self.catalogue.get_server(caller, server_id)
        result = await self.resources.get_prompt(caller, server, name, body.arguments, options=to_call_options(request))
        description, messages, meta = result.get("description"), result.get("messages"), result.get("_meta")
        return PromptResponse(
            server=server.id,
            prompt=name,
            description=description if isinstance(description, str) else None,
            messages=cast("list[object]", messages if isinstance(messages, list) else []),
            meta=cast("dict[str, object]", meta) if isinstance(meta, dict) else None,
        )

    async def _respond(self, caller: Caller, server_id: str, options: CallOptions, present: Callable[[Server], BaseModel]) -> Output:
        server = await self._wait_listed(caller, server_id, options)
        return Output(body=present(server), headers=build_deprecation_headers(self.catalogue, server))

    async def _wait_listed(self, caller: Caller, server_id: str, options: CallOptions) -> Server:
        server = self.catalogue.get_server(caller, server_id)
        await self.catalogue.wait_listed(server, caller, options)
        return server


def build_deprecation_headers(catalogue: Catalogue, server: Server) -> Mapping[str, str]:
    """Return the headers of a deprecated server: its date of deprecation (RFC 9745) and of removal (RFC 8594)."""
    if server.status is not ServerStatus.DEPRECATED:
        return {}
    since = catalogue.deprecated_at(server)
    sunset = max(server.sunset_at or since, since + DEPRECATION_PERIOD)
    return {"Deprecation": f"@{int(since.timestamp())}", "Sunset": format_datetime(sunset, usegmt=True)}


def to_call_options(request: Request) -> CallOptions:
    """Return the options in the headers of a request: the agent session, headers to forward, and use of the cache."""
    headers = request.headers
    return CallOptions(
        session_id=headers.get("x-session-id") or None,
        headers=headers,
        no_cache="no-cache" in headers.get("cache-control", "").lower(),
    )
