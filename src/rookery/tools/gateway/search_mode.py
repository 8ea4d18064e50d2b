"""Search mode: two tools in place of all, for catalogues too large for a context window (D-36)."""

from __future__ import annotations

from typing import cast

import orjson
from pydantic import Field

from rookery.kernel.http import ToolDeclaration
from rookery.kernel.http.tool_schemas import build_input_schema
from rookery.kernel.schema import RequestModel, SchemaGenerator
from rookery.tools.arguments import ArgumentValidator
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.catalogue_views import CatalogueViews, GatewayView
from rookery.tools.gateway.mcp_requests import McpRequest
from rookery.tools.models import JsonObject

FIND_TOOL, CALL_TOOL = "find_tool", "call_tool"


class FindToolArguments(RequestModel):
    """The arguments of find_tool."""

    query: str = Field(min_length=1, max_length=2000)
    limit: int = Field(default=5, ge=1, le=20)
    server: str = Field(default="", min_length=1, max_length=64)


class CallToolArguments(RequestModel):
    """The arguments of call_tool."""

    name: str = Field(min_length=1, max_length=256)
    arguments: dict[str, object] = Field(default_factory=dict[str, object])


_ARGUMENTS: dict[str, type[RequestModel]] = {FIND_TOOL: FindToolArguments, CALL_TOOL: CallToolArguments}
_DECLARATIONS = (
    ToolDeclaration(
        name=FIND_TOOL,
        description="Find tools for a need, best first, each with its inputSchema. Call them with call_tool.",
        effect="reads",
        arguments={
            "query": "A description of what you need.",
            "limit": "Maximum number of tools; default 5.",
            "server": "Only tools of this server.",
        },
    ),
    ToolDeclaration(
        name=CALL_TOOL,
        description="Call a tool returned by find_tool. Its result is returned unchanged.",
        effect="destroys",
        arguments={
            "name": "The tool's name, as returned by find_tool.",
            "arguments": "The tool's arguments, as its inputSchema describes. Default: none.",
        },
        schemas={"arguments": {"type": "object"}},
    ),
)
INPUT_SCHEMAS: dict[str, JsonObject] = {
    name: model.model_json_schema(schema_generator=SchemaGenerator) for name, model in _ARGUMENTS.items()
}
"""The schemas that arguments are validated against, by tool."""

SEARCH_MODE_TOOLS: tuple[JsonObject, ...] = tuple(
    {
        "name": tool.name,
        "title": tool.name.replace("_", " a ").capitalize(),
        "description": tool.description,
        "inputSchema": build_input_schema(tool, [_ARGUMENTS[tool.name]], {}),
        **({"annotations": {"readOnlyHint": True}} if tool.effect == "reads" else {}),
    }
    for tool in _DECLARATIONS
)


class SearchModeTools:
    """The implementation of find_tool. call_tool is an ordinary call of another tool."""

    def __init__(self, views: CatalogueViews, search: ToolSearch) -> None:
        self._views = views
        self._search = search

    async def find_tools(self, mcp_request: McpRequest, arguments: JsonObject) -> JsonObject:
        """
        Return the matching tools as a tool result.

        Raises:
            ArgumentsInvalid: The arguments do not match find_tool's schema.
        """
        ArgumentValidator(INPUT_SCHEMAS[FIND_TOOL]).validate(arguments)
        view = GatewayView(server_id=mcp_request.view.server_id)
        server = mcp_request.view.server_id or cast("str | None", arguments.get("server"))
        limit = cast("int", arguments.get("limit", 5))
        matches = await self._search.find(mcp_request.caller, cast("str", arguments["query"]), limit, server)
        tools = [
            {**match.tool.definition, "name": self._views.get_gateway_name(view, match.server, match.tool.name), "server": match.server.id}
            for match in matches
        ]
        # The text is for the model's context window: an outputSchema is often longer than all other fields, and only programs use it.
        texts = [{name: value for name, value in tool.items() if name != "outputSchema"} for tool in tools]
        return {
            "content": [{"type": "text", "text": orjson.dumps({"tools": texts}).decode()}],
            "structuredContent": {"tools": tools},
            "isError": False,
        }


def parse_call(arguments: JsonObject) -> tuple[str, JsonObject]:
    """
    Return the name and the arguments of the tool that call_tool is to call.

    Raises:
        ArgumentsInvalid: The arguments do not match call_tool's schema.
    """
    ArgumentValidator(INPUT_SCHEMAS[CALL_TOOL]).validate(arguments)
    return cast("str", arguments["name"]), cast("JsonObject", arguments.get("arguments") or {})
