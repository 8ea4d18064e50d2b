"""
Search mode: three tools in place of all, for catalogues too large for a context window.

call_tool may call any tool, so clients that ask before each call ask for it, and those that never ask refuse it. call_read_only_tool is
marked as read-only and calls only tools that are.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import cast

from pydantic import Field

from rookery.kernel.http import ToolDeclaration
from rookery.kernel.http.tool_schemas import build_input_schema
from rookery.kernel.schema import RequestModel, SchemaGenerator
from rookery.tools.arguments import ArgumentValidator
from rookery.tools.calling.results import to_json
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.gateway.catalogue_views import CatalogueViews
from rookery.tools.gateway.client_forms import shows_both_forms
from rookery.tools.gateway.mcp_requests import McpRequest
from rookery.tools.models import JsonObject

FIND_TOOL, CALL_TOOL, CALL_READ_ONLY_TOOL = "find_tool", "call_tool", "call_read_only_tool"
CALLING_TOOLS = frozenset({CALL_TOOL, CALL_READ_ONLY_TOOL})


class FindToolArguments(RequestModel):
    query: str = Field(min_length=1, max_length=2000)
    limit: int = Field(default=5, ge=1, le=20)
    server: str = Field(default="", min_length=1, max_length=64)


class CallToolArguments(RequestModel):
    """The arguments of call_tool and call_read_only_tool."""

    name: str = Field(min_length=1, max_length=256)
    arguments: dict[str, object] = Field(default_factory=dict[str, object])


_ARGUMENTS: dict[str, type[RequestModel]] = {
    FIND_TOOL: FindToolArguments,
    CALL_TOOL: CallToolArguments,
    CALL_READ_ONLY_TOOL: CallToolArguments,
}
_DECLARATIONS = (
    ToolDeclaration(
        name=FIND_TOOL,
        description="Find tools for a need, best first, each with its inputSchema. Call those with readOnlyHint with "
        "call_read_only_tool, and the others with call_tool.",
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
    ToolDeclaration(
        name=CALL_READ_ONLY_TOOL,
        description="Call a tool returned by find_tool whose annotations have readOnlyHint. Other tools are refused.",
        effect="reads",
        arguments={"name": "", "arguments": ""},
        schemas={"arguments": {"type": "object"}},
    ),
)
_TITLES = {FIND_TOOL: "Find a tool", CALL_TOOL: "Call a tool", CALL_READ_ONLY_TOOL: "Call a read-only tool"}
INPUT_SCHEMAS: dict[str, JsonObject] = {
    name: model.model_json_schema(schema_generator=SchemaGenerator) for name, model in _ARGUMENTS.items()
}
"""The schemas that arguments are validated against, by tool."""

SEARCH_MODE_TOOLS: tuple[JsonObject, ...] = tuple(
    {
        "name": tool.name,
        "title": _TITLES[tool.name],
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
        completed = _get_validator(FIND_TOOL).validate(arguments)
        view = replace(mcp_request.view, is_search=False)
        server = mcp_request.view.server_id or cast("str | None", completed.get("server"))
        limit = int(cast("float", completed.get("limit", 5)))  # 3.0 is an integer in JSON Schema
        matches = await self._search.find(mcp_request.caller, cast("str", completed["query"]), limit, server, view.session_id)
        tools = [
            {**self._views.describe_tool(mcp_request.caller, view, match.server, match.tool.definition), "server": match.server.id}
            for match in matches
        ]
        # An outputSchema is often longer than all other fields, and a model does not need it.
        texts = [{name: value for name, value in tool.items() if name != "outputSchema"} for tool in tools]
        result: JsonObject = {"content": [{"type": "text", "text": to_json({"tools": texts}).decode()}], "isError": False}
        return result if shows_both_forms(mcp_request.client_name) else {**result, "structuredContent": {"tools": tools}}


def parse_call(arguments: JsonObject) -> tuple[str, JsonObject]:
    """
    Return the name and the arguments of the tool that call_tool or call_read_only_tool is to call.

    Raises:
        ArgumentsInvalid: The arguments do not match call_tool's schema.
    """
    completed = _get_validator(CALL_TOOL).validate(arguments)
    return cast("str", completed["name"]), cast("JsonObject", completed.get("arguments") or {})


@cache
def _get_validator(tool: str) -> ArgumentValidator:
    return ArgumentValidator(INPUT_SCHEMAS[tool], is_builtin=True)
