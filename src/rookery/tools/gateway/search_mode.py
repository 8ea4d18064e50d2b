"""Search mode: two tools in the place of all, for catalogues too large for a context window (D-36)."""

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
        "query": {"type": "string", "minLength": 1, "maxLength": 2000, "description": "What you need, in your own words."},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20, "description": "By default 5."},
        "server": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Only tools of this server."},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The tool's name, as find_tool gave it."},
        "arguments": {"type": "object", "description": "By the tool's own inputSchema; none by default."},
    },
    "required": ["name"],
    "additionalProperties": False,
}
INPUT_SCHEMAS = {FIND_TOOL: _FIND_SCHEMA, CALL_TOOL: _CALL_SCHEMA}

SEARCH_MODE_TOOLS: tuple[JsonObject, ...] = (
    {
        "name": FIND_TOOL,
        "title": "Find a tool",
        "description": "Find the tools that fit a need, the best first, each with its inputSchema. Call them with call_tool.",
        "inputSchema": to_published_schema(_FIND_SCHEMA),
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": CALL_TOOL,
        "title": "Call a tool",
        "description": "Call a tool that find_tool found, by its name, with arguments by its inputSchema; its result is returned as it is.",
        "inputSchema": to_published_schema(_CALL_SCHEMA),
    },
)


class SearchModeTools:
    """The first of the two; the second is the ordinary call by another name."""

    def __init__(self, views: CatalogueViews, search: ToolSearch) -> None:
        self._views = views
        self._search = search

    async def find_tools(self, mcp_request: McpRequest, arguments: JsonObject) -> JsonObject:
        """
        Return the tools that fit, as a tool's result.

        Raises:
            ArgumentsInvalid: They do not fit find_tool.
        """
        ArgumentValidator(_FIND_SCHEMA).validate(arguments)
        plain = GatewayView(server_id=mcp_request.view.server_id)
        server = mcp_request.view.server_id or cast("str | None", arguments.get("server"))
        limit = cast("int", arguments.get("limit", 5))
        found = await self._search.find(mcp_request.caller, cast("str", arguments["query"]), limit, server)
        tools = [
            {**each.tool.definition, "name": self._views.get_gateway_name(plain, each.server, each.tool.name), "server": each.server.id}
            for each in found
        ]
        content: JsonObject = {"tools": tools}
        return {"content": [{"type": "text", "text": orjson.dumps(content).decode()}], "structuredContent": content, "isError": False}


def parse_call(arguments: JsonObject) -> tuple[str, JsonObject]:
    """
    Return which tool call_tool is to call, and with what.

    Raises:
        ArgumentsInvalid: They do not fit call_tool.
    """
    ArgumentValidator(_CALL_SCHEMA).validate(arguments)
    return cast("str", arguments["name"]), cast("JsonObject", arguments.get("arguments") or {})
