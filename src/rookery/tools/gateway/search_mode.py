"""Search mode: two tools in place of all, for catalogues too large for a context window (D-36)."""

from __future__ import annotations

from typing import cast

import orjson

from rookery.tools.arguments import ArgumentValidator
from rookery.tools.builtin_schemas import to_published_schema
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.catalogue_views import CatalogueViews, GatewayView
from rookery.tools.gateway.mcp_requests import McpRequest
from rookery.tools.models import JsonObject

FIND_TOOL, CALL_TOOL = "find_tool", "call_tool"

_FIND_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 2000, "description": "A description of what you need."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "Maximum number of tools; default 5."},
        "server": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Only tools of this server."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The tool's name, as returned by find_tool."},
        "arguments": {"type": "object", "description": "The tool's arguments, as its inputSchema describes. Default: none."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
INPUT_SCHEMAS = {FIND_TOOL: _FIND_SCHEMA, CALL_TOOL: _CALL_SCHEMA}

SEARCH_MODE_TOOLS: tuple[JsonObject, ...] = (
    {
        "name": FIND_TOOL,
        "title": "Find a tool",
        "description": "Find tools for a need, best first, each with its inputSchema. Call them with call_tool.",
        "inputSchema": to_published_schema(_FIND_SCHEMA),
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": CALL_TOOL,
        "title": "Call a tool",
        "description": "Call a tool returned by find_tool. Its result is returned unchanged.",
        "inputSchema": to_published_schema(_CALL_SCHEMA),
    },
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
        ArgumentValidator(_FIND_SCHEMA).validate(arguments)
        view = GatewayView(server_id=mcp_request.view.server_id)
        server = mcp_request.view.server_id or cast("str | None", arguments.get("server"))
        limit = cast("int", arguments.get("limit", 5))
        matches = await self._search.find(mcp_request.caller, cast("str", arguments["query"]), limit, server)
        tools = [
            {**match.tool.definition, "name": self._views.get_gateway_name(view, match.server, match.tool.name), "server": match.server.id}
            for match in matches
        ]
        content: JsonObject = {"tools": tools}
        return {"content": [{"type": "text", "text": orjson.dumps(content).decode()}], "structuredContent": content, "isError": False}


def parse_call(arguments: JsonObject) -> tuple[str, JsonObject]:
    """
    Return the name and the arguments of the tool that call_tool is to call.

    Raises:
        ArgumentsInvalid: The arguments do not match call_tool's schema.
    """
    ArgumentValidator(_CALL_SCHEMA).validate(arguments)
    return cast("str", arguments["name"]), cast("JsonObject", arguments.get("arguments") or {})
