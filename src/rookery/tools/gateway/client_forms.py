"""
The forms in which MCP clients get the tools and results of the built-in servers.

A client shows its model the text of a result, its structured content, or both (`make agents` records which). Each form is short by
itself: the structured content says what the text says, and clients known to show both get the text alone. Tools have no outputSchema,
because some clients pass it on to their model, and a tool that has one must return structured content. Programs that need all fields use
the HTTP API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rookery.tools.models import BuiltinTarget, JsonObject, Server
from rookery.tools.ports import BuiltinServer

_BOTH_SHOWN_PREFIXES = ("copilot-cli", "qwen-cli-mcp-client", "@cline/", "google-adk")
"""
Beginnings of the `clientInfo` names of clients whose models get the text and the structured content: Copilot CLI, Qwen Code, Cline and
Google ADK.
"""


class ClientForms:
    """Rewrites definitions and results of the built-in servers *builtins* for MCP clients."""

    def __init__(self, builtins: Sequence[BuiltinServer]) -> None:
        self._builtins: Mapping[str, BuiltinServer] = {builtin.id: builtin for builtin in builtins}

    def adapt_result(self, server: Server, tool: str, result: JsonObject, client_name: str) -> JsonObject:
        """Return the result of a call of *tool* in the form for the client. Results of other servers stay unchanged."""
        structured = result.get("structuredContent")
        if not isinstance(server.target, BuiltinTarget) or not isinstance(structured, dict):
            return result
        if shows_both_forms(client_name):
            return {name: value for name, value in result.items() if name != "structuredContent"}
        builtin = self._builtins.get(server.id)
        if builtin is None or result.get("isError"):
            return result
        text = str(cast("Sequence[JsonObject]", result["content"])[0]["text"])
        return {**result, "structuredContent": dict(builtin.compact(tool, text, cast("JsonObject", structured)))}


def adapt_definition(server: Server, definition: JsonObject) -> JsonObject:
    """Return the definition of a tool without its outputSchema, if its server is built in."""
    if not isinstance(server.target, BuiltinTarget):
        return definition
    return {name: value for name, value in definition.items() if name != "outputSchema"}


def shows_both_forms(client_name: str) -> bool:
    """Return whether a client shows its model the text and the structured content of a result."""
    return client_name.lower().startswith(_BOTH_SHOWN_PREFIXES)
