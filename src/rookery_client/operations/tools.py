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
        """
        List the tool servers that the key may use, built-in ones included.

        Answered from the stored catalogue: no server is contacted.

        Requires the scope `mcp:read`.
        """
        return self._session.send(Call(operation="list_servers", method="GET", path="/api/v1/mcp/servers", result=models.ServerList))

    def get_server(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.Server:
        """
        Return a tool server with its tools and resources. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="get_server", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}", server_id=server_id),
            result=models.Server, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def list_tools(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.ToolList:
        """
        List the tools of a server, each with the JSON Schema of its arguments.

        Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="list_tools", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/tools", server_id=server_id),
            result=models.ToolList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def list_resources(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceList:
        """
        List the resources of a server. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="list_resources", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/resources", server_id=server_id),
            result=models.ResourceList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def list_resource_templates(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.TemplateList:
        """
        List the URI templates of a server's resources. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="list_resource_templates", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/resource-templates", server_id=server_id), result=models.TemplateList,
            headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def list_prompts(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.PromptList:
        """
        List the prompts of a server, each with its arguments. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="list_prompts", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/prompts", server_id=server_id),
            result=models.PromptList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def get_prompt(
        self, server_id: str, name: str, *, x_session_id: str | Unset = UNSET, arguments: Mapping[str, str] | Unset = UNSET,
    ) -> models.Prompt:
        """
        Return the messages of a prompt, filled in by its server with the arguments of the body.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            name: The name.
            x_session_id: The agent session that the request belongs to.
            arguments: The values of the prompt's arguments. A null counts as not set.
        """
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
        """
        Call the tool that the body names. `input_responses` and `request_state` answer an earlier request for input.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server: The id of the server, as in the list of servers.
            tool: The name of the tool.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
            arguments: The arguments, which must match the inputSchema of the tool.
            input_responses: The responses to an earlier `input_required` result, by the names in its `inputRequests`.
            request_state: The `requestState` of that result, unchanged.
        """
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
        """
        Call a tool, and return its events as they happen.

        Call the tool that the body names. `input_responses` and `request_state` answer an earlier request for input.

        With `Accept: text/event-stream` the response is a stream of server-sent events: `progress` and `log` while the tool runs, then
        `result` with the same body as the plain response. A call that is rejected, or fails before any event was sent, is a plain
        response.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server: The id of the server, as in the list of servers.
            tool: The name of the tool.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
            arguments: The arguments, which must match the inputSchema of the tool.
            input_responses: The responses to an earlier `input_required` result, by the names in its `inputRequests`.
            request_state: The `requestState` of that result, unchanged.
        """
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
        """
        Call the tool that the path names.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            body: The arguments of a call whose server and tool are in the path.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
        """
        return self._session.send(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool),
            result=models.ToolCallResponse, headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body,
        ))

    def call_server_tool_stream(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> AbstractContextManager[EventSource]:
        """
        Call a tool with the bare arguments, and return its events as they happen.

        Call the tool that the path names.

        With `Accept: text/event-stream` the response is a stream of server-sent events: `progress` and `log` while the tool runs, then
        `result` with the same body as the plain response. A call that is rejected, or fails before any event was sent, is a plain
        response.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            body: The arguments of a call whose server and tool are in the path.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
        """
        return self._session.stream(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool), result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body, accept="text/event-stream",
        ))

    def read_resource(self, uri: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceResponse:
        """
        Return the contents of a resource.

        The URI is one of a list, or one that a tool server gave in a result, if only one server has it. It is part of the path, either
        as it is or percent-encoded once; a URI with `?` must be encoded.

        Requires the scope `mcp:read`.

        Args:
            uri: The resource as `server://path`, as in the lists. It may be percent-encoded once.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="read_resource", method="GET", path=fill_path("/api/v1/mcp/resources/{uri}", uri=uri),
            result=models.ResourceResponse, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def search_tools(self, *, q: str, limit: int | Unset = UNSET, server: str | Unset = UNSET) -> models.FoundTools:
        """
        Return the tools that fit a description best, compared by meaning and by words. No tool server is contacted.

        Requires the scope `mcp:read`.

        Args:
            q: A need in plain language, words, or a tool's name.
            limit: Maximum number of tools.
            server: Only tools of this server.
        """
        return self._session.send(Call(
            operation="search_tools", method="GET", path="/api/v1/mcp/tools/search", result=models.FoundTools,
            query=given(q=q, limit=limit, server=server),
        ))

    def get_server_openapi(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> dict[str, object]:
        """
        Return an OpenAPI 3.1 document with one operation per tool of the server.

        Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return self._session.send(Call(
            operation="get_server_openapi", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/openapi.json", server_id=server_id), result=dict[str, object],
            headers=given(**{"X-Session-ID": x_session_id}),
        ))

    def get_server_registry(self) -> dict[str, object]:
        """
        Return the tool servers that this key, or a caller without a key, may discover.

        No key is required. With a key, the response includes what the key may see.
        """
        return self._session.send(Call(
            operation="get_server_registry", method="GET", path="/.well-known/mcp-servers.json", result=dict[str, object],
        ))

    def get_ai_catalog(self) -> dict[str, object]:
        """
        Return the tool servers in the format of AI Catalog 1.0.

        No key is required. With a key, the response includes what the key may see.
        """
        return self._session.send(Call(
            operation="get_ai_catalog", method="GET", path="/.well-known/ai-catalog.json", result=dict[str, object],
        ))

    def get_gateway_card(self) -> dict[str, object]:
        """
        Return the MCP server card of `/mcp`, which serves the tools of all servers.

        No key is required. With a key, the response includes what the key may see.
        """
        return self._session.send(Call(
            operation="get_gateway_card", method="GET", path="/mcp/server-card", result=dict[str, object],
            accept="application/mcp-server-card+json",
        ))

    def get_server_card(self, server_id: str) -> dict[str, object]:
        """
        Return the MCP server card of `/mcp/{server_id}`, which serves the tools of one server.

        No key is required. With a key, the response includes what the key may see.

        Args:
            server_id: The id of a tool server.
        """
        return self._session.send(Call(
            operation="get_server_card", method="GET", path=fill_path("/mcp/{server_id}/server-card", server_id=server_id),
            result=dict[str, object], accept="application/mcp-server-card+json",
        ))

    def list_registry_servers(
        self, *, cursor: str | Unset = UNSET, limit: int | Unset = UNSET, search: str | Unset = UNSET,
        updated_since: datetime | str | Unset = UNSET, version: str | Unset = UNSET,
    ) -> dict[str, object]:
        """
        Return a page of tool servers in the format of the official MCP registry, ordered by name.

        `cursor` continues after the last one.

        No key is required. With a key, the response includes what the key may see.

        Args:
            cursor: The nextCursor of the previous page.
            limit: Maximum number of servers.
            search: Part of a name or title.
            updated_since: Updated at or after this time.
            version: latest, or an exact version.
        """
        return self._session.send(Call(
            operation="list_registry_servers", method="GET", path="/v0.1/servers", result=dict[str, object],
            query=given(cursor=cursor, limit=limit, search=search, updated_since=updated_since, version=version),
        ))

    def list_registry_versions(self, name: str) -> dict[str, object]:
        """
        Return the versions of a tool server. Each server has one.

        No key is required. With a key, the response includes what the key may see.

        Args:
            name: The name.
        """
        return self._session.send(Call(
            operation="list_registry_versions", method="GET", path=fill_path("/v0.1/servers/{name}/versions", name=name),
            result=dict[str, object],
        ))

    def get_registry_version(self, name: str, version: str) -> dict[str, object]:
        """
        Return one version of a tool server, or the latest.

        No key is required. With a key, the response includes what the key may see.

        Args:
            name: The name.
            version: The version, or `latest`.
        """
        return self._session.send(Call(
            operation="get_registry_version", method="GET",
            path=fill_path("/v0.1/servers/{name}/versions/{version}", name=name, version=version), result=dict[str, object],
        ))

    def browse_servers(self) -> models.ServerList:
        """
        Return the list of tool servers as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do.

        No key is required. With a key, the response includes what the key may see.
        """
        return self._session.send(Call(operation="browse_servers", method="GET", path="/servers", result=models.ServerList))

    def get_connect_guide(self, *, server: str | Unset = UNSET, mode: Literal["search"] | Unset = UNSET) -> models.Connect:
        """
        Return the set-up of each supported MCP client as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do.

        No key is required. With a key, the response includes what the key may see.

        Args:
            server: Only this server; without it, all servers.
            mode: search: serve three tools that find and call all others.
        """
        return self._session.send(Call(
            operation="get_connect_guide", method="GET", path="/connect", result=models.Connect, query=given(server=server, mode=mode),
        ))


class AsyncToolsOperations:
    """Operations of `client.tools`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_servers(self) -> models.ServerList:
        """
        List the tool servers that the key may use, built-in ones included.

        Answered from the stored catalogue: no server is contacted.

        Requires the scope `mcp:read`.
        """
        return await self._session.send(Call(
            operation="list_servers", method="GET", path="/api/v1/mcp/servers", result=models.ServerList,
        ))

    async def get_server(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.Server:
        """
        Return a tool server with its tools and resources. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="get_server", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}", server_id=server_id),
            result=models.Server, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def list_tools(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.ToolList:
        """
        List the tools of a server, each with the JSON Schema of its arguments.

        Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="list_tools", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/tools", server_id=server_id),
            result=models.ToolList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def list_resources(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceList:
        """
        List the resources of a server. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="list_resources", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/resources", server_id=server_id),
            result=models.ResourceList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def list_resource_templates(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.TemplateList:
        """
        List the URI templates of a server's resources. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="list_resource_templates", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/resource-templates", server_id=server_id), result=models.TemplateList,
            headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def list_prompts(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> models.PromptList:
        """
        List the prompts of a server, each with its arguments. Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="list_prompts", method="GET", path=fill_path("/api/v1/mcp/servers/{server_id}/prompts", server_id=server_id),
            result=models.PromptList, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def get_prompt(
        self, server_id: str, name: str, *, x_session_id: str | Unset = UNSET, arguments: Mapping[str, str] | Unset = UNSET,
    ) -> models.Prompt:
        """
        Return the messages of a prompt, filled in by its server with the arguments of the body.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            name: The name.
            x_session_id: The agent session that the request belongs to.
            arguments: The values of the prompt's arguments. A null counts as not set.
        """
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
        """
        Call the tool that the body names. `input_responses` and `request_state` answer an earlier request for input.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server: The id of the server, as in the list of servers.
            tool: The name of the tool.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
            arguments: The arguments, which must match the inputSchema of the tool.
            input_responses: The responses to an earlier `input_required` result, by the names in its `inputRequests`.
            request_state: The `requestState` of that result, unchanged.
        """
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
        """
        Call a tool, and return its events as they happen.

        Call the tool that the body names. `input_responses` and `request_state` answer an earlier request for input.

        With `Accept: text/event-stream` the response is a stream of server-sent events: `progress` and `log` while the tool runs, then
        `result` with the same body as the plain response. A call that is rejected, or fails before any event was sent, is a plain
        response.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server: The id of the server, as in the list of servers.
            tool: The name of the tool.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
            arguments: The arguments, which must match the inputSchema of the tool.
            input_responses: The responses to an earlier `input_required` result, by the names in its `inputRequests`.
            request_state: The `requestState` of that result, unchanged.
        """
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
        """
        Call the tool that the path names.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            body: The arguments of a call whose server and tool are in the path.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
        """
        return await self._session.send(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool),
            result=models.ToolCallResponse, headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body,
        ))

    def call_server_tool_stream(
        self, server_id: str, tool: str, *, body: Mapping[str, object], x_session_id: str | Unset = UNSET,
        cache_control: str | Unset = UNSET,
    ) -> AbstractAsyncContextManager[EventSource]:
        """
        Call a tool with the bare arguments, and return its events as they happen.

        Call the tool that the path names.

        With `Accept: text/event-stream` the response is a stream of server-sent events: `progress` and `log` while the tool runs, then
        `result` with the same body as the plain response. A call that is rejected, or fails before any event was sent, is a plain
        response.

        A tool's own error is a 500 with `success: false`.  Do not repeat a failed call blindly: the tool may have acted.

        Requires the scope `mcp:write`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            body: The arguments of a call whose server and tool are in the path.
            x_session_id: The agent session that the request belongs to.
            cache_control: `no-cache` prevents a cached result.
        """
        return self._session.stream(Call(
            operation="call_server_tool", method="POST",
            path=fill_path("/api/v1/mcp/servers/{server_id}/tools/{tool}", server_id=server_id, tool=tool), result=type(None),
            headers=given(**{"X-Session-ID": x_session_id, "Cache-Control": cache_control}), body=body, accept="text/event-stream",
        ))

    async def read_resource(self, uri: str, *, x_session_id: str | Unset = UNSET) -> models.ResourceResponse:
        """
        Return the contents of a resource.

        The URI is one of a list, or one that a tool server gave in a result, if only one server has it. It is part of the path, either
        as it is or percent-encoded once; a URI with `?` must be encoded.

        Requires the scope `mcp:read`.

        Args:
            uri: The resource as `server://path`, as in the lists. It may be percent-encoded once.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="read_resource", method="GET", path=fill_path("/api/v1/mcp/resources/{uri}", uri=uri),
            result=models.ResourceResponse, headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def search_tools(self, *, q: str, limit: int | Unset = UNSET, server: str | Unset = UNSET) -> models.FoundTools:
        """
        Return the tools that fit a description best, compared by meaning and by words. No tool server is contacted.

        Requires the scope `mcp:read`.

        Args:
            q: A need in plain language, words, or a tool's name.
            limit: Maximum number of tools.
            server: Only tools of this server.
        """
        return await self._session.send(Call(
            operation="search_tools", method="GET", path="/api/v1/mcp/tools/search", result=models.FoundTools,
            query=given(q=q, limit=limit, server=server),
        ))

    async def get_server_openapi(self, server_id: str, *, x_session_id: str | Unset = UNSET) -> dict[str, object]:
        """
        Return an OpenAPI 3.1 document with one operation per tool of the server.

        Waits up to 5 seconds if the server was never listed before.

        Requires the scope `mcp:read`.

        Args:
            server_id: The id of a tool server.
            x_session_id: The agent session that the request belongs to.
        """
        return await self._session.send(Call(
            operation="get_server_openapi", method="GET",
            path=fill_path("/api/v1/mcp/servers/{server_id}/openapi.json", server_id=server_id), result=dict[str, object],
            headers=given(**{"X-Session-ID": x_session_id}),
        ))

    async def get_server_registry(self) -> dict[str, object]:
        """
        Return the tool servers that this key, or a caller without a key, may discover.

        No key is required. With a key, the response includes what the key may see.
        """
        return await self._session.send(Call(
            operation="get_server_registry", method="GET", path="/.well-known/mcp-servers.json", result=dict[str, object],
        ))

    async def get_ai_catalog(self) -> dict[str, object]:
        """
        Return the tool servers in the format of AI Catalog 1.0.

        No key is required. With a key, the response includes what the key may see.
        """
        return await self._session.send(Call(
            operation="get_ai_catalog", method="GET", path="/.well-known/ai-catalog.json", result=dict[str, object],
        ))

    async def get_gateway_card(self) -> dict[str, object]:
        """
        Return the MCP server card of `/mcp`, which serves the tools of all servers.

        No key is required. With a key, the response includes what the key may see.
        """
        return await self._session.send(Call(
            operation="get_gateway_card", method="GET", path="/mcp/server-card", result=dict[str, object],
            accept="application/mcp-server-card+json",
        ))

    async def get_server_card(self, server_id: str) -> dict[str, object]:
        """
        Return the MCP server card of `/mcp/{server_id}`, which serves the tools of one server.

        No key is required. With a key, the response includes what the key may see.

        Args:
            server_id: The id of a tool server.
        """
        return await self._session.send(Call(
            operation="get_server_card", method="GET", path=fill_path("/mcp/{server_id}/server-card", server_id=server_id),
            result=dict[str, object], accept="application/mcp-server-card+json",
        ))

    async def list_registry_servers(
        self, *, cursor: str | Unset = UNSET, limit: int | Unset = UNSET, search: str | Unset = UNSET,
        updated_since: datetime | str | Unset = UNSET, version: str | Unset = UNSET,
    ) -> dict[str, object]:
        """
        Return a page of tool servers in the format of the official MCP registry, ordered by name.

        `cursor` continues after the last one.

        No key is required. With a key, the response includes what the key may see.

        Args:
            cursor: The nextCursor of the previous page.
            limit: Maximum number of servers.
            search: Part of a name or title.
            updated_since: Updated at or after this time.
            version: latest, or an exact version.
        """
        return await self._session.send(Call(
            operation="list_registry_servers", method="GET", path="/v0.1/servers", result=dict[str, object],
            query=given(cursor=cursor, limit=limit, search=search, updated_since=updated_since, version=version),
        ))

    async def list_registry_versions(self, name: str) -> dict[str, object]:
        """
        Return the versions of a tool server. Each server has one.

        No key is required. With a key, the response includes what the key may see.

        Args:
            name: The name.
        """
        return await self._session.send(Call(
            operation="list_registry_versions", method="GET", path=fill_path("/v0.1/servers/{name}/versions", name=name),
            result=dict[str, object],
        ))

    async def get_registry_version(self, name: str, version: str) -> dict[str, object]:
        """
        Return one version of a tool server, or the latest.

        No key is required. With a key, the response includes what the key may see.

        Args:
            name: The name.
            version: The version, or `latest`.
        """
        return await self._session.send(Call(
            operation="get_registry_version", method="GET",
            path=fill_path("/v0.1/servers/{name}/versions/{version}", name=name, version=version), result=dict[str, object],
        ))

    async def browse_servers(self) -> models.ServerList:
        """
        Return the list of tool servers as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do.

        No key is required. With a key, the response includes what the key may see.
        """
        return await self._session.send(Call(operation="browse_servers", method="GET", path="/servers", result=models.ServerList))

    async def get_connect_guide(self, *, server: str | Unset = UNSET, mode: Literal["search"] | Unset = UNSET) -> models.Connect:
        """
        Return the set-up of each supported MCP client as JSON, or as an HTML page if `Accept` names `text/html`, as browsers do.

        No key is required. With a key, the response includes what the key may see.

        Args:
            server: Only this server; without it, all servers.
            mode: search: serve three tools that find and call all others.
        """
        return await self._session.send(Call(
            operation="get_connect_guide", method="GET", path="/connect", result=models.Connect, query=given(server=server, mode=mode),
        ))
