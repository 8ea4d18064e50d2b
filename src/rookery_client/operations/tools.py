"""
Operations of `client.tools`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Literal

from httpx2 import EventSource

from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.sessions import AsyncSession, Session


class ToolsOperations:
    """Operations of `client.tools`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_servers(self) -> models.ServerList:
        """List the tool servers."""
        return self._session.send(Call(operation="list_servers", method="GET", path="/api/v1/mcp/servers", result=models.ServerList))

    def get_server(self, server_id: str) -> models.Server:
        """Show one server with its tools and resources."""
        return self._session.send(Call(
            operation="get_server", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}", server_id=server_id),
            result=models.Server,
        ))

    def list_tools(self, server_id: str) -> models.ToolList:
        """List a server's tools."""
        return self._session.send(Call(
            operation="list_tools", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/tools", server_id=server_id),
            result=models.ToolList,
        ))

    def list_resources(self, server_id: str) -> models.ResourceList:
        """List a server's resources."""
        return self._session.send(Call(
            operation="list_resources", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/resources", server_id=server_id),
            result=models.ResourceList,
        ))

    def list_resource_templates(self, server_id: str) -> models.TemplateList:
        """List a server's resource templates."""
        return self._session.send(Call(
            operation="list_resource_templates", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/resource-templates", server_id=server_id), result=models.TemplateList,
        ))

    def list_prompts(self, server_id: str) -> models.PromptList:
        """List a server's prompts."""
        return self._session.send(Call(
            operation="list_prompts", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/prompts", server_id=server_id),
            result=models.PromptList,
        ))

    def get_prompt(
        self, server_id: str, name: str, *, x_session_id: str | Unset = UNSET, arguments: Mapping[str, str] | Unset = UNSET,
    ) -> models.Prompt:
        """Fill in a prompt."""
        return self._session.send(Call(
            operation="get_prompt", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/prompts/{name}", server_id=server_id, name=name), result=models.Prompt,
            headers=given(**{"X-Session-ID": x_session_id}), body=given(arguments=arguments),
        ))

    def call_tool(
        self, *, server: str, tool: str, x_session_id: str | Unset = UNSET, cache_control: str | Unset = UNSET,
        arguments: Mapping[str, object] | Unset | None = UNSET,
        input_responses: Mapping[str, Mapping[str, object]] | Unset | None = UNSET, request_state: str | Unset | None = UNSET,
    ) -> models.ToolCallResponse:
        """Call a tool."""
        return self._session.send(Call(
            operation="call_tool", method="POST", path="/api/v1/mcp/tools/call", result=models.ToolCallResponse,
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}),
            body=given(server=server, tool=tool, arguments=arguments, input_responses=input_responses, request_state=request_state),
        ))

    def call_tool_stream(
        self, *, server: str, tool: str, x_session_id: str | Unset = UNSET, cache_control: str | Unset = UNSET,
        arguments: Mapping[str, object] | Unset | None = UNSET,
        input_responses: Mapping[str, Mapping[str, object]] | Unset | None = UNSET, request_state: str | Unset | None = UNSET,
    ) -> AbstractContextManager[EventSource]:
        """Call a tool, and return its events as they happen."""
        return self._session.stream(Call(
            operation="call_tool", method="POST", path="/api/v1/mcp/tools/call", result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}),
            body=given(server=server, tool=tool, arguments=arguments, input_responses=input_responses, request_state=request_state),
            accept="text/event-stream",
        ))

    def call_server_tool(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> models.ToolCallResponse:
        """Call a tool with the bare arguments."""
        return self._session.send(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool),
            result=models.ToolCallResponse, headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body,
        ))

    def call_server_tool_stream(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> AbstractContextManager[EventSource]:
        """Call a tool with the bare arguments, and return its events as they happen."""
        return self._session.stream(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool), result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body, accept="text/event-stream",
        ))

    def read_resource(self, uri: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceResponse:
        """Read a resource."""
        return self._session.send(Call(
            operation="read_resource", method="GET", path=fill_path("/api/v1/mcp/resources/{uri}", uri=uri),
            result=models.ResourceResponse, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def search_tools(self, *, q: str, limit: int | Unset = UNSET, server: str | Unset = UNSET) -> models.FoundTools:
        """Find tools by meaning and by word."""
        return self._session.send(Call(
            operation="search_tools", method="GET", path="/api/v1/mcp/tools/search", result=models.FoundTools,
            query=given(q=q, limit=limit, server=server),
        ))

    def get_server_openapi(self, server_id: str) -> dict[str, object]:
        """Describe a server's tools in OpenAPI 3.1."""
        return self._session.send(Call(
            operation="get_server_openapi", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/openapi.json", server_id=server_id), result=dict[str, object],
        ))

    def get_server_registry(self) -> dict[str, object]:
        """List the tool servers in Rookery's own discovery format."""
        return self._session.send(Call(
            operation="get_server_registry", method="GET", path="/.well-known/mcp-servers.json", result=dict[str, object],
        ))

    def get_ai_catalog(self) -> dict[str, object]:
        """List the tool servers as an AI Catalog."""
        return self._session.send(Call(
            operation="get_ai_catalog", method="GET", path="/.well-known/ai-catalog.json", result=dict[str, object],
        ))

    def get_gateway_card(self) -> dict[str, object]:
        """Show the server card of `/mcp`."""
        return self._session.send(Call(
            operation="get_gateway_card", method="GET", path="/mcp/server-card", result=dict[str, object],
            accept="application/mcp-server-card+json",
        ))

    def get_server_card(self, server_id: str) -> dict[str, object]:
        """Show the server card of one tool server."""
        return self._session.send(Call(
            operation="get_server_card", method="GET", path=fill_path("/mcp/{server_id}/server-card", server_id=server_id),
            result=dict[str, object], accept="application/mcp-server-card+json",
        ))

    def list_registry_servers(
        self, *, cursor: str | Unset = UNSET, limit: int | Unset = UNSET, search: str | Unset = UNSET,
        updated_since: datetime | str | Unset = UNSET, version: str | Unset = UNSET,
    ) -> dict[str, object]:
        """List the tool servers in the format of the MCP registry."""
        return self._session.send(Call(
            operation="list_registry_servers", method="GET", path="/v0.1/servers", result=dict[str, object],
            query=given(cursor=cursor, limit=limit, search=search, updated_since=updated_since, version=version),
        ))

    def list_registry_versions(self, name: str) -> dict[str, object]:
        """List a server's versions in the format of the MCP registry."""
        return self._session.send(Call(
            operation="list_registry_versions", method="GET", path=fill_path("/v0.1/servers/{name}/versions", name=name),
            result=dict[str, object],
        ))

    def get_registry_version(self, name: str, version: str) -> dict[str, object]:
        """Show a server's version in the format of the MCP registry."""
        return self._session.send(Call(
            operation="get_registry_version", method="GET",
            path=fill_path("/v0.1/servers/{name}/versions/{version}", name=name, version=version), result=dict[str, object],
        ))

    def browse_servers(self) -> models.ServerList:
        """Show the tool servers as a page or as JSON."""
        return self._session.send(Call(operation="browse_servers", method="GET", path="/servers", result=models.ServerList))

    def get_connect_guide(self, *, server: str | Unset = UNSET, mode: Literal["search"] | Unset = UNSET) -> models.Connect:
        """Show how to connect an MCP client."""
        return self._session.send(Call(
            operation="get_connect_guide", method="GET", path="/connect", result=models.Connect, query=given(server=server, mode=mode),
        ))


class AsyncToolsOperations:
    """Operations of `client.tools`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_servers(self) -> models.ServerList:
        """List the tool servers."""
        return await self._session.send(Call(
            operation="list_servers", method="GET", path="/api/v1/mcp/servers", result=models.ServerList,
        ))

    async def get_server(self, server_id: str) -> models.Server:
        """Show one server with its tools and resources."""
        return await self._session.send(Call(
            operation="get_server", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}", server_id=server_id),
            result=models.Server,
        ))

    async def list_tools(self, server_id: str) -> models.ToolList:
        """List a server's tools."""
        return await self._session.send(Call(
            operation="list_tools", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/tools", server_id=server_id),
            result=models.ToolList,
        ))

    async def list_resources(self, server_id: str) -> models.ResourceList:
        """List a server's resources."""
        return await self._session.send(Call(
            operation="list_resources", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/resources", server_id=server_id),
            result=models.ResourceList,
        ))

    async def list_resource_templates(self, server_id: str) -> models.TemplateList:
        """List a server's resource templates."""
        return await self._session.send(Call(
            operation="list_resource_templates", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/resource-templates", server_id=server_id), result=models.TemplateList,
        ))

    async def list_prompts(self, server_id: str) -> models.PromptList:
        """List a server's prompts."""
        return await self._session.send(Call(
            operation="list_prompts", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/prompts", server_id=server_id),
            result=models.PromptList,
        ))

    async def get_prompt(
        self, server_id: str, name: str, *, x_session_id: str | Unset = UNSET, arguments: Mapping[str, str] | Unset = UNSET,
    ) -> models.Prompt:
        """Fill in a prompt."""
        return await self._session.send(Call(
            operation="get_prompt", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/prompts/{name}", server_id=server_id, name=name), result=models.Prompt,
            headers=given(**{"X-Session-ID": x_session_id}), body=given(arguments=arguments),
        ))

    async def call_tool(
        self, *, server: str, tool: str, x_session_id: str | Unset = UNSET, cache_control: str | Unset = UNSET,
        arguments: Mapping[str, object] | Unset | None = UNSET,
        input_responses: Mapping[str, Mapping[str, object]] | Unset | None = UNSET, request_state: str | Unset | None = UNSET,
    ) -> models.ToolCallResponse:
        """Call a tool."""
        return await self._session.send(Call(
            operation="call_tool", method="POST", path="/api/v1/mcp/tools/call", result=models.ToolCallResponse,
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}),
            body=given(server=server, tool=tool, arguments=arguments, input_responses=input_responses, request_state=request_state),
        ))

    def call_tool_stream(
        self, *, server: str, tool: str, x_session_id: str | Unset = UNSET, cache_control: str | Unset = UNSET,
        arguments: Mapping[str, object] | Unset | None = UNSET,
        input_responses: Mapping[str, Mapping[str, object]] | Unset | None = UNSET, request_state: str | Unset | None = UNSET,
    ) -> AbstractAsyncContextManager[EventSource]:
        """Call a tool, and return its events as they happen."""
        return self._session.stream(Call(
            operation="call_tool", method="POST", path="/api/v1/mcp/tools/call", result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}),
            body=given(server=server, tool=tool, arguments=arguments, input_responses=input_responses, request_state=request_state),
            accept="text/event-stream",
        ))

    async def call_server_tool(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> models.ToolCallResponse:
        """Call a tool with the bare arguments."""
        return await self._session.send(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool),
            result=models.ToolCallResponse, headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body,
        ))

    def call_server_tool_stream(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> AbstractAsyncContextManager[EventSource]:
        """Call a tool with the bare arguments, and return its events as they happen."""
        return self._session.stream(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool), result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body, accept="text/event-stream",
        ))

    async def read_resource(self, uri: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceResponse:
        """Read a resource."""
        return await self._session.send(Call(
            operation="read_resource", method="GET", path=fill_path("/api/v1/mcp/resources/{uri}", uri=uri),
            result=models.ResourceResponse, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def search_tools(self, *, q: str, limit: int | Unset = UNSET, server: str | Unset = UNSET) -> models.FoundTools:
        """Find tools by meaning and by word."""
        return await self._session.send(Call(
            operation="search_tools", method="GET", path="/api/v1/mcp/tools/search", result=models.FoundTools,
            query=given(q=q, limit=limit, server=server),
        ))

    async def get_server_openapi(self, server_id: str) -> dict[str, object]:
        """Describe a server's tools in OpenAPI 3.1."""
        return await self._session.send(Call(
            operation="get_server_openapi", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/openapi.json", server_id=server_id), result=dict[str, object],
        ))

    async def get_server_registry(self) -> dict[str, object]:
        """List the tool servers in Rookery's own discovery format."""
        return await self._session.send(Call(
            operation="get_server_registry", method="GET", path="/.well-known/mcp-servers.json", result=dict[str, object],
        ))

    async def get_ai_catalog(self) -> dict[str, object]:
        """List the tool servers as an AI Catalog."""
        return await self._session.send(Call(
            operation="get_ai_catalog", method="GET", path="/.well-known/ai-catalog.json", result=dict[str, object],
        ))

    async def get_gateway_card(self) -> dict[str, object]:
        """Show the server card of `/mcp`."""
        return await self._session.send(Call(
            operation="get_gateway_card", method="GET", path="/mcp/server-card", result=dict[str, object],
            accept="application/mcp-server-card+json",
        ))

    async def get_server_card(self, server_id: str) -> dict[str, object]:
        """Show the server card of one tool server."""
        return await self._session.send(Call(
            operation="get_server_card", method="GET", path=fill_path("/mcp/{server_id}/server-card", server_id=server_id),
            result=dict[str, object], accept="application/mcp-server-card+json",
        ))

    async def list_registry_servers(
        self, *, cursor: str | Unset = UNSET, limit: int | Unset = UNSET, search: str | Unset = UNSET,
        updated_since: datetime | str | Unset = UNSET, version: str | Unset = UNSET,
    ) -> dict[str, object]:
        """List the tool servers in the format of the MCP registry."""
        return await self._session.send(Call(
            operation="list_registry_servers", method="GET", path="/v0.1/servers", result=dict[str, object],
            query=given(cursor=cursor, limit=limit, search=search, updated_since=updated_since, version=version),
        ))

    async def list_registry_versions(self, name: str) -> dict[str, object]:
        """List a server's versions in the format of the MCP registry."""
        return await self._session.send(Call(
            operation="list_registry_versions", method="GET", path=fill_path("/v0.1/servers/{name}/versions", name=name),
            result=dict[str, object],
        ))

    async def get_registry_version(self, name: str, version: str) -> dict[str, object]:
        """Show a server's version in the format of the MCP registry."""
        return await self._session.send(Call(
            operation="get_registry_version", method="GET",
            path=fill_path("/v0.1/servers/{name}/versions/{version}", name=name, version=version), result=dict[str, object],
        ))

    async def browse_servers(self) -> models.ServerList:
        """Show the tool servers as a page or as JSON."""
        return await self._session.send(Call(operation="browse_servers", method="GET", path="/servers", result=models.ServerList))

    async def get_connect_guide(self, *, server: str | Unset = UNSET, mode: Literal["search"] | Unset = UNSET) -> models.Connect:
        """Show how to connect an MCP client."""
        return await self._session.send(Call(
            operation="get_connect_guide", method="GET", path="/connect", result=models.Connect, query=given(server=server, mode=mode),
        ))
