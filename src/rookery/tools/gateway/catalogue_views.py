"""The part of the catalogue that one caller sees at /mcp or /mcp/{server}, with or without search mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.errors import NotFound
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerNotFound
from rookery.tools.gateway_names import map_gateway_names, split_gateway_name, to_gateway_name
from rookery.tools.models import JsonObject, Server
from rookery.tools.resources import ResourceReader

VIEW_STATE_KEY = "view"
"""The key of the `GatewayView` in the request's state."""


@dataclass(frozen=True, slots=True)
class GatewayView:
    """
    One path of the gateway.

    Attributes:
        server_id: Serve this server alone, with its own names and URIs. None: serve all servers with gateway names.
        is_search: Serve find_tool and call_tool in place of all tools.
    """

    server_id: str | None = None
    is_search: bool = False

    def __str__(self) -> str:
        """Return the view in the form that sessions are bound to."""
        return f"{self.server_id or '*'}{'?search' if self.is_search else ''}"


class ServerItem(NamedTuple):
    """A tool or prompt of a server, by its original name."""

    server: Server
    name: str


class CatalogueViews:
    """Lists and resolves what callers see, with the names of each view."""

    def __init__(self, catalogue: Catalogue, resources: ResourceReader) -> None:
        self._catalogue = catalogue
        self._resources = resources

    async def wait_listed(self, caller: Caller, view: GatewayView) -> None:
        """Wait at most 5 seconds for the first list of a single server. A view of all servers never waits (D-32)."""
        if view.server_id is not None:
            await self._catalogue.wait_listed(self._catalogue.get_server(caller, view.server_id), caller)

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
            for definition in _rename(view, server, [tool.definition for tool in self._catalogue.list_tools(caller, server)])
        ]

    def resolve_tool(self, caller: Caller, view: GatewayView, gateway_name: str) -> ServerItem:
        """
        Return the server and original name of a tool of this view. The tool itself may not exist; `ToolRunner` checks that.

        Raises:
            NotFound: No server has a tool that maps to this name.
        """
        if view.server_id is not None:
            return ServerItem(self._catalogue.get_server(caller, view.server_id), gateway_name)
        direct = self._resolve_directly(caller, gateway_name)
        if direct is not None and self._catalogue.find_tool(direct.server, direct.name) is not None:
            return direct
        for server in self._catalogue.list_servers(caller):
            name = _map_names(server, self._catalogue.get_features(server).tools).get(gateway_name)
            if name is not None:
                return ServerItem(server, name)
        if direct is None:
            raise NotFound("tool", gateway_name)
        return direct

    def get_input_schema(self, caller: Caller, view: GatewayView, gateway_name: str) -> JsonObject | None:
        """Return the inputSchema of a tool that the caller sees, else None."""
        item = self.resolve_tool(caller, view, gateway_name)
        tool = self._catalogue.find_tool(item.server, item.name)
        if tool is None or not self._catalogue.can_see_tool(caller, item.server, tool):
            return None
        schema = tool.definition.get("inputSchema")
        return schema if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType] - an object of JSON

    def get_gateway_name(self, view: GatewayView, server: Server, name: str) -> str:
        """Return the name of a tool in this view."""
        if view.server_id is not None:
            return name
        names = _map_names(server, self._catalogue.get_features(server).tools)
        return next((gateway_name for gateway_name, own_name in names.items() if own_name == name), to_gateway_name(server.id, name))

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
            for definition in _rename(view, server, self._catalogue.get_features(server).prompts)
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
            name = _map_names(server, self._catalogue.get_features(server).prompts).get(gateway_name)
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
                self._resources.list_resources(server, caller)
                if view.server_id is None
                else self._catalogue.get_features(server, caller).resources
            )

    def iter_templates(self, caller: Caller, view: GatewayView) -> Iterator[JsonObject]:
        """Yield the resource templates, with URIs as in `iter_resources`."""
        for server in self.list_servers(caller, view):
            yield from self._resources.list_templates(server) if view.server_id is None else self._catalogue.get_features(server).templates

    # Explanations.

    def explain_empty(self, caller: Caller, view: GatewayView) -> str | None:
        """Return an explanation if the key sees no tool although servers have some, else None (D-36)."""
        servers = self.list_servers(caller, view)
        if not servers:
            return (
                "This key cannot use any tool server: its allow-lists exclude all of them. "
                "Ask the operator to extend the key (`rookery keys`), then list the tools again."
            )
        if any(self._catalogue.list_tools(caller, server) for server in servers):
            return None
        scopes = sorted(
            {
                scope
                for server in servers
                for scope in self._catalogue.get_features(server).required_scopes.values()
                if not caller.has_scope(scope)
            }
        )
        if not any(self._catalogue.get_features(server).tools for server in servers):
            return None
        servers_text = f"the server {view.server_id!r}" if view.server_id is not None else "any server"
        missing = f" It lacks the scopes {', '.join(scopes)}, which the built-in tools require." if scopes else ""
        return f"This key may not see any tool of {servers_text}.{missing} Ask the operator to extend the key, then list the tools again."

    def build_instructions(self, caller: Caller, view: GatewayView) -> str:
        """Return the instructions of this view for a model."""
        servers = self.list_servers(caller, view)
        explanation = self.explain_empty(caller, view)
        if explanation is not None:
            return explanation
        if view.server_id is not None and not view.is_search:
            return self._catalogue.get_features(servers[0]).instructions or servers[0].description or servers[0].tagline
        usage = (
            "find_tool searches tools by a description of your need. call_tool calls one by the name that find_tool returned."
            if view.is_search
            else "Tools of several servers. Each tool's name begins with the id of its server."
        )
        offline = [server.id for server in servers if self._catalogue.is_offline(server, caller)]
        lines = [
            f"- {server.id}: {_describe(server)}"
            for server in servers
            if server.id not in offline and self._offers_something(caller, server)
        ]
        return "\n".join([usage, *lines, *([f"Offline now, not usable: {', '.join(offline)}."] if offline else [])])

    def _offers_something(self, caller: Caller, server: Server) -> bool:
        """Return False for a server all of whose tools the key may not see. A server without known tools may have some later."""
        features = self._catalogue.get_features(server)
        return bool(not features.tools or features.prompts or features.resources or self._catalogue.list_tools(caller, server))


def _describe(server: Server) -> str:
    """Return when to use a server. The descriptions of the built-in servers say it; those of other servers may be long."""
    own_description = server.description if server.kind == "builtin" else ""
    return server.use_when or own_description or server.tagline or server.name


def _rename(view: GatewayView, server: Server, definitions: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the definitions of a server's tools or prompts, with their names in this view."""
    by_name = {str(definition.get("name", "")): definition for definition in definitions}
    if view.server_id is not None:
        return [{**definition, "name": name} for name, definition in by_name.items()]
    return [{**by_name[name], "name": gateway_name} for gateway_name, name in map_gateway_names(server.id, by_name).items()]


def _map_names(server: Server, definitions: Iterable[JsonObject]) -> dict[str, str]:
    """Return the names of a server's tools or prompts by their gateway names."""
    return map_gateway_names(server.id, [str(definition.get("name", "")) for definition in definitions])
