"""The part of the catalogue that one caller sees at /mcp or /mcp/{server}, with or without search mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.call_options import CallOptions
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import AmbiguousName, ServerNotFound
from rookery.tools.gateway.client_forms import adapt_definition
from rookery.tools.gateway_names import (
    DEFAULT_NAME_LENGTH,
    find_original_name,
    map_gateway_names,
    rename_interfaces,
    split_gateway_name,
    to_gateway_name,
)
from rookery.tools.models import JsonObject, Server, ServerFeatures
from rookery.tools.resources import ResourceReader
from rookery.tools.server_info import INSTRUCTIONS_TEMPLATE, complete_server

_HEALTH_SCOPE = "servers:read"
_MAX_REASON_CHARS = 200
"""Limit on the reason why a server is offline, in instructions for models."""

VIEW_STATE_KEY = "view"
"""The key of the `GatewayView` in the request's state."""

_INSTRUCTIONS: JsonObject = {
    "uriTemplate": INSTRUCTIONS_TEMPLATE,
    "name": "instructions",
    "title": "Instructions of a server",
    "description": "The full instructions that a tool server has for its use.",
    "mimeType": "text/markdown",
}


@dataclass(frozen=True, slots=True)
class GatewayView:
    """
    One path of the gateway.

    Attributes:
        server_id: Serve this server alone, with its own names and URIs. None: serve all servers with gateway names.
        is_search: Serve the tools of search mode in place of all tools.
        session_id: The agent session of the request. Servers with a session for each have lists for each.
    """

    server_id: str | None = None
    is_search: bool = False
    session_id: str | None = None

    def __str__(self) -> str:
        """Return the view in the form that sessions are bound to."""
        return f"{self.server_id or '*'}{'?search' if self.is_search else ''}"


class ServerItem(NamedTuple):
    """A tool or prompt of a server, by its original name."""

    server: Server
    name: str


class CatalogueViews:
    """Lists and resolves what callers see, with the names of each view."""

    def __init__(self, catalogue: Catalogue, resources: ResourceReader, max_name_length: int = DEFAULT_NAME_LENGTH) -> None:
        self._catalogue = catalogue
        self._resources = resources
        self._max_name_length = max_name_length

    async def wait_listed(self, caller: Caller, view: GatewayView, get_options: Callable[[], CallOptions]) -> None:
        """Wait at most 5 seconds for the first list of a single server. Every message comes here, so that options are built if needed."""
        if view.server_id is not None:
            server = self._catalogue.get_server(caller, view.server_id)
            if not self._catalogue.is_current(server, caller, view.session_id):
                await self._catalogue.wait_listed(server, caller, get_options())

    async def wait_all_listed(self, caller: Caller, view: GatewayView, options: CallOptions) -> None:
        """Wait at most 5 seconds in all for servers that are being listed for the first time. Many clients list once."""
        if view.server_id is None:
            await self._catalogue.wait_all_listed(caller, options)

    def list_missing(self, caller: Caller, view: GatewayView) -> None:
        """Retry servers that could not be listed, in the background."""
        if view.server_id is None:
            self._catalogue.list_missing(caller)

    def list_servers(self, caller: Caller, view: GatewayView) -> list[Server]:
        """
        Return the servers of *view* that the caller sees.

        Raises:
            RookeryError: The view's server does not exist, is disabled, or is excluded for this key.
        """
        if view.server_id is not None:
            return [self._catalogue.get_server(caller, view.server_id)]
        return self._catalogue.list_servers(caller)

    # Tools.

    def list_tools(self, caller: Caller, view: GatewayView) -> list[JsonObject]:
        """Return the definitions of the tools, with their names in this view."""
        return [
            definition
            for server in self.list_servers(caller, view)
            for definition in self._rename(view, server, self._list_definitions(caller, view, server))
        ]

    def _list_definitions(self, caller: Caller, view: GatewayView, server: Server) -> list[JsonObject]:
        return [adapt_definition(server, tool.definition) for tool in self._catalogue.list_tools(caller, server, view.session_id)]

    def _get_features(self, caller: Caller, view: GatewayView, server: Server) -> ServerFeatures:
        return self._catalogue.get_features(server, caller, view.session_id)

    def resolve_tool(self, caller: Caller, view: GatewayView, gateway_name: str) -> ServerItem:
        """
        Return the server and original name of a tool of this view. The tool itself may not exist; `ToolRunner` checks that.

        Raises:
            NotFound: No server has a tool that maps to this name.
            AmbiguousName: The name is no gateway name, and several servers have a tool of this name.
        """
        if view.server_id is not None:
            return ServerItem(self._catalogue.get_server(caller, view.server_id), gateway_name)
        direct = self._resolve_directly(caller, gateway_name)
        if direct is not None and self._catalogue.find_tool(direct.server, direct.name, caller, view.session_id) is not None:
            return direct
        for server in self._catalogue.list_servers(caller):
            names = _list_names(self._get_features(caller, view, server).tools)
            name = find_original_name(server.id, names, gateway_name, self._max_name_length)
            if name is not None:
                return ServerItem(server, name)
        return direct or self._resolve_original_name(caller, view, gateway_name)

    def _resolve_original_name(self, caller: Caller, view: GatewayView, name: str) -> ServerItem:
        """
        Return the tool that has *name* at its server. Interfaces of MCP Apps call the tools of their server by these names.

        Raises:
            NotFound: No server has such a tool.
            AmbiguousName: Several servers have one.
        """
        servers = [
            server
            for server in self._catalogue.list_servers(caller)
            if (tool := self._catalogue.find_tool(server, name, caller, view.session_id)) is not None
            and self._catalogue.can_see_tool(caller, server, tool)
        ]
        if not servers:
            raise NotFound("tool", name)
        if len(servers) > 1:
            raise AmbiguousName("tool", name, [self.get_gateway_name(caller, view, server, name) for server in servers])
        return ServerItem(servers[0], name)

    def is_read_only(self, caller: Caller, view: GatewayView, item: ServerItem) -> bool:
        """Return whether a tool is listed with the annotation readOnlyHint."""
        tool = self._catalogue.find_tool(item.server, item.name, caller, view.session_id)
        return tool is not None and tool.is_read_only

    def describe_tool(self, caller: Caller, view: GatewayView, server: Server, definition: JsonObject) -> JsonObject:
        """Return the definition of one tool, with its name in this view."""
        definition = adapt_definition(server, definition)
        if view.server_id is not None:
            return definition
        name = self.get_gateway_name(caller, view, server, str(definition.get("name", "")))
        return {**rename_interfaces(server.id, definition), "name": name}

    def get_input_schema(self, caller: Caller, view: GatewayView, gateway_name: str) -> JsonObject | None:
        """Return the inputSchema of a tool that the caller sees, else None."""
        item = self.resolve_tool(caller, view, gateway_name)
        tool = self._catalogue.find_tool(item.server, item.name, caller, view.session_id)
        if tool is None or not self._catalogue.can_see_tool(caller, item.server, tool):
            return None
        schema = tool.definition.get("inputSchema")
        return schema if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType] - an object of JSON

    def get_gateway_name(self, caller: Caller, view: GatewayView, server: Server, name: str) -> str:
        """Return the name of a tool in this view."""
        if view.server_id is not None:
            return name
        names = map_gateway_names(server.id, _list_names(self._get_features(caller, view, server).tools), self._max_name_length)
        default = to_gateway_name(server.id, name, self._max_name_length)
        return next((gateway_name for gateway_name, own_name in names.items() if own_name == name), default)

    def _rename(self, view: GatewayView, server: Server, definitions: Iterable[JsonObject]) -> list[JsonObject]:
        """Return the definitions of a server's tools or prompts, with their names in this view."""
        by_name = {str(definition.get("name", "")): definition for definition in definitions}
        if view.server_id is not None:
            return [{**definition, "name": name} for name, definition in by_name.items()]
        names = map_gateway_names(server.id, by_name, self._max_name_length)
        return [{**rename_interfaces(server.id, by_name[name]), "name": gateway_name} for gateway_name, name in names.items()]

    def _resolve_directly(self, caller: Caller, gateway_name: str) -> ServerItem | None:
        parts = split_gateway_name(gateway_name)
        if parts is None:
            return None
        try:
            return ServerItem(self._catalogue.get_server(caller, parts[0]), parts[1])
        except ServerNotFound:
            return None

    # Prompts.

    def list_prompts(self, caller: Caller, view: GatewayView) -> list[JsonObject]:
        """Return the prompts, with their names in this view."""
        return [
            definition
            for server in self.list_servers(caller, view)
            for definition in self._rename(view, server, self._get_features(caller, view, server).prompts)
        ]

    def resolve_prompt(self, caller: Caller, view: GatewayView, gateway_name: str) -> ServerItem:
        """
        Return the server and original name of a prompt of this view. The prompt itself may not exist.

        Raises:
            NotFound: No server has a prompt that maps to this name.
        """
        if view.server_id is not None:
            return ServerItem(self._catalogue.get_server(caller, view.server_id), gateway_name)
        for server in self._catalogue.list_servers(caller):
            names = _list_names(self._get_features(caller, view, server).prompts)
            name = find_original_name(server.id, names, gateway_name, self._max_name_length)
            if name is not None:
                return ServerItem(server, name)
        direct = self._resolve_directly(caller, gateway_name)
        if direct is None:
            raise NotFound("prompt", gateway_name)
        return direct

    # Resources.

    def iter_resources(self, caller: Caller, view: GatewayView) -> Iterator[JsonObject]:
        """Yield the resources, with gateway URIs or, for a view of one server, with its own URIs."""
        for server in self.list_servers(caller, view):
            yield from (
                self._resources.list_resources(server, caller, view.session_id)
                if view.server_id is None
                else self._get_features(caller, view, server).resources
            )

    def iter_templates(self, caller: Caller, view: GatewayView) -> Iterator[JsonObject]:
        """Yield the resource templates, with URIs as in `iter_resources`."""
        for server in self.list_servers(caller, view):
            yield from (
                self._resources.list_templates(server, caller, view.session_id)
                if view.server_id is None
                else self._get_features(caller, view, server).templates
            )
        if view.server_id is None and self.list_instructed_ids(caller):
            yield dict(_INSTRUCTIONS)

    # Explanations.

    def explain_empty(self, caller: Caller, view: GatewayView) -> str | None:
        """Return an explanation if the key sees no tool although servers have some, else None."""
        servers = self.list_servers(caller, view)
        if not servers:
            return (
                "This key cannot use any tool server: its allow-lists exclude all of them. "
                "Ask the operator to extend the key (`rookery keys`), then list the tools again."
            )
        if any(self._list_definitions(caller, view, server) for server in servers):
            return None
        scopes = sorted(
            {
                scope
                for server in servers
                for scope in self._get_features(caller, view, server).required_scopes.values()
                if not caller.has_scope(scope)
            }
        )
        if not any(self._get_features(caller, view, server).tools for server in servers):
            return None
        servers_text = f"the server {view.server_id!r}" if view.server_id is not None else "any server"
        missing = f" It lacks the scopes {', '.join(scopes)}, which the built-in tools require." if scopes else ""
        return f"This key may not see any tool of {servers_text}.{missing} Ask the operator to extend the key, then list the tools again."

    def build_instructions(self, caller: Caller, view: GatewayView) -> str:
        servers = self.list_servers(caller, view)
        explanation = self.explain_empty(caller, view)
        if explanation is not None:
            return explanation
        if view.server_id is not None and not view.is_search:
            return self._build_server_instructions(caller, view, servers[0])
        usage = (
            "find_tool searches tools by a description of your need. call_tool calls one by the name that find_tool returned, and "
            "call_read_only_tool one that only reads."
            if view.is_search
            else "Tools of several servers. Each tool's name begins with the id of its server."
        )
        if view.server_id is not None:
            return "\n".join([usage, self._build_server_instructions(caller, view, servers[0])]).strip()
        offline = [server.id for server in servers if self._catalogue.is_offline(server, caller)]
        listed = [server for server in servers if server.id not in offline and self._offers_something(caller, view, server)]
        lines = [_describe(complete_server(server, self._get_features(caller, view, server))) for server in listed]
        if any(self._has_more_instructions(caller, view, server) for server in listed):
            lines.append(f"The resource {INSTRUCTIONS_TEMPLATE} has the full instructions of a server.")
        if offline:
            lines.append(self._describe_offline(caller, offline))
        starting = [server.id for server in self._catalogue.list_starting(caller) if server in servers]
        if starting:
            described = ", ".join(f"{server_id}{self._describe_last_error(caller, server_id)}" for server_id in starting)
            lines.append(f"Starting now, their tools are listed soon: {described}.")
        return "\n".join([usage, *lines])

    def _describe_offline(self, caller: Caller, server_ids: list[str]) -> str:
        """Return which servers are offline, with the reasons if the key may see them."""
        described = [f"{server_id}{self._describe_last_error(caller, server_id)}" for server_id in server_ids]
        return f"Offline now, not usable: {', '.join(described)}."

    def _describe_last_error(self, caller: Caller, server_id: str) -> str:
        error = self._catalogue.get_last_error(caller, server_id) if caller.has_scope(_HEALTH_SCOPE) else ""
        return error and f" ({error[:_MAX_REASON_CHARS]})"

    def _build_server_instructions(self, caller: Caller, view: GatewayView, server: Server) -> str:
        features = self._get_features(caller, view, server)
        described = complete_server(server, features)
        return features.instructions or described.description or described.tagline

    def _has_more_instructions(self, caller: Caller, view: GatewayView, server: Server) -> bool:
        """Return whether a server has instructions that are not in its line of the instructions for all servers."""
        features = self._get_features(caller, view, server)
        return bool(features.instructions) and features.instructions not in _describe(complete_server(server, features))

    def list_instructed_ids(self, caller: Caller) -> list[str]:
        """Return the ids of the servers that have instructions of their own."""
        return [server.id for server in self._catalogue.list_servers(caller) if self._catalogue.get_features(server, caller).instructions]

    def _offers_something(self, caller: Caller, view: GatewayView, server: Server) -> bool:
        """Return False for a server all of whose tools the key may not see. A server without known tools may have some later."""
        features = self._get_features(caller, view, server)
        return bool(not features.tools or features.prompts or features.resources or self._list_definitions(caller, view, server))


def _describe(server: Server) -> str:
    """Return when to use a server. The descriptions of the built-in servers say it; those of other servers may be long."""
    own_description = server.description if server.kind == "builtin" else ""
    text = server.use_when or own_description or server.tagline or server.name
    return f"- {server.id}" if text == server.id else f"- {server.id}: {text}"


def _list_names(definitions: Iterable[JsonObject]) -> list[str]:
    """Return the names of a server's tools or prompts."""
    return [str(definition.get("name", "")) for definition in definitions]
