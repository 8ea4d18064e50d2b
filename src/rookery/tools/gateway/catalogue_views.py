"""What one caller finds at /mcp, at /mcp/{server}, and there in search mode."""

from __future__ import annotations

from collections.abc import Iterator
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
"""Where the request's state has its `GatewayView`."""


@dataclass(frozen=True, slots=True)
class GatewayView:
    """
    One address of the gateway.

    Attributes:
        server_id: The one server that it serves, by the server's own names and uris; None: all, by the gateway's.
        is_search: find_tool and call_tool stand for all tools.
    """

    server_id: str | None = None
    is_search: bool = False

    def __str__(self) -> str:
        """Return it as a session remembers it."""
        return f"{self.server_id or '*'}{'?search' if self.is_search else ''}"


class ServerItem(NamedTuple):
    """A thing of a server by its own name."""

    server: Server
    name: str


class CatalogueViews:
    """Lists and finds what callers see; the names of each address are made here."""

    def __init__(self, catalogue: Catalogue, resources: ResourceReader) -> None:
        self._catalogue = catalogue
        self._resources = resources

    async def wait_listed(self, caller: Caller, view: GatewayView) -> None:
        """Wait, 5 seconds at most, for a single server that was never seen; all of them are never waited for (D-32)."""
        if view.server_id is not None:
            await self._catalogue.wait_listed(self._catalogue.get_server(caller, view.server_id), caller)

    def list_missing(self, caller: Caller, view: GatewayView) -> None:
        """Have servers tried again that could not be listed yet, without waiting for them."""
        if view.server_id is None:
            self._catalogue.list_missing(caller)

    def list_servers(self, caller: Caller, view: GatewayView) -> list[Server]:
        """
        Return the servers behind *view* that the caller sees.

        Raises:
            RookeryError: The one that it names is not there, not for this key, or switched off.
        """
        if view.server_id is not None:
            return [self._catalogue.get_server(caller, view.server_id)]
        return self._catalogue.list_servers(caller)

    # Tools.

    def list_tools(self, caller: Caller, view: GatewayView) -> list[JsonObject]:
        """Return the definitions of the tools, each by its name here."""
        found: list[JsonObject] = []
        for server in self.list_servers(caller, view):
            tools = {tool.name: tool for tool in self._catalogue.list_tools(caller, server)}
            shown = map_gateway_names(server.id, tools) if view.server_id is None else dict(zip(tools, tools, strict=True))
            found += [{**tools[name].definition, "name": each} for each, name in shown.items()]
        return found

    def resolve_tool(self, caller: Caller, view: GatewayView, gateway_name: str) -> ServerItem:
        """
        Return the tool that is called *gateway_name* here; whether there is one is for `Calls` to say, where that can only be its server's.

        Raises:
            NotFound: No server's tool can be called so.
        """
        if view.server_id is not None:
            return ServerItem(self._catalogue.get_server(caller, view.server_id), gateway_name)
        direct = self._resolve_directly(caller, gateway_name)
        if direct is not None and self._catalogue.find_tool(direct.server, direct.name) is not None:
            return direct
        for server in self._catalogue.list_servers(caller):
            name = map_gateway_names(server.id, [str(each.get("name", "")) for each in self._catalogue.get_features(server).tools]).get(
                gateway_name
            )
            if name is not None:
                return ServerItem(server, name)
        if direct is None:
            raise NotFound("tool", gateway_name)
        return direct

    def get_input_schema(self, caller: Caller, view: GatewayView, gateway_name: str) -> JsonObject | None:
        """Return the inputSchema of a tool that the caller sees."""
        named = self.resolve_tool(caller, view, gateway_name)
        tool = self._catalogue.find_tool(named.server, named.name)
        if tool is None or not self._catalogue.can_see_tool(caller, named.server, tool):
            return None
        schema = tool.definition.get("inputSchema")
        return schema if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType] - an object of JSON

    def get_gateway_name(self, view: GatewayView, server: Server, name: str) -> str:
        """Return what a tool that was found is called here."""
        if view.server_id is not None:
            return name
        names = map_gateway_names(server.id, [str(each.get("name", "")) for each in self._catalogue.get_features(server).tools])
        return next((shown for shown, own in names.items() if own == name), to_gateway_name(server.id, name))

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
        """Return the prompts, each by its name here."""
        found: list[JsonObject] = []
        for server in self.list_servers(caller, view):
            prompts = {str(each.get("name", "")): each for each in self._catalogue.get_features(server).prompts}
            shown = map_gateway_names(server.id, prompts) if view.server_id is None else dict(zip(prompts, prompts, strict=True))
            found += [{**prompts[name], "name": each} for each, name in shown.items()]
        return found

    def resolve_prompt(self, caller: Caller, view: GatewayView, gateway_name: str) -> ServerItem:
        """
        Return the prompt that is called *gateway_name* here.

        Raises:
            NotFound: No server's prompt can be called so.
        """
        if view.server_id is not None:
            return ServerItem(self._catalogue.get_server(caller, view.server_id), gateway_name)
        for server in self._catalogue.list_servers(caller):
            name = map_gateway_names(server.id, [str(each.get("name", "")) for each in self._catalogue.get_features(server).prompts]).get(
                gateway_name
            )
            if name is not None:
                return ServerItem(server, name)
        direct = self._resolve_directly(caller, gateway_name)
        if direct is None:
            raise NotFound("prompt", gateway_name)
        return direct

    # Resources.

    def iter_resources(self, caller: Caller, view: GatewayView) -> Iterator[JsonObject]:
        """Yield the resources, by the gateway's uris or the server's own."""
        for server in self.list_servers(caller, view):
            yield from (
                self._resources.list_resources(server, caller)
                if view.server_id is None
                else self._catalogue.get_features(server, caller).resources
            )

    def iter_templates(self, caller: Caller, view: GatewayView) -> Iterator[JsonObject]:
        """Yield the templates of resources, as `iter_resources`."""
        for server in self.list_servers(caller, view):
            yield from self._resources.list_templates(server) if view.server_id is None else self._catalogue.get_features(server).templates

    # In words.

    def explain_empty(self, caller: Caller, view: GatewayView) -> str | None:
        """Return what to say to a key that sees no tool although there are some, None if it is not so (D-36)."""
        servers = self.list_servers(caller, view)
        if not servers:
            return (
                "This key reaches no tool server: its list of servers or tools leaves out every one there is. "
                "Ask whoever made the key to add some (`rookery keys`), and list again."
            )
        if any(self._catalogue.list_tools(caller, server) for server in servers):
            return None
        scopes = sorted(
            {
                tool
                for server in servers
                for tool in self._catalogue.get_features(server).required_scopes.values()
                if not caller.has_scope(tool)
            }
        )
        if not any(self._catalogue.get_features(server).tools for server in servers):
            return None
        which = f"the server {view.server_id!r}" if view.server_id is not None else "any server"
        missing = f" It lacks the scopes {', '.join(scopes)}, which the built-in tools ask for." if scopes else ""
        return f"This key may see no tool of {which}.{missing} Ask whoever made the key to widen it, and list again."

    def build_instructions(self, caller: Caller, view: GatewayView) -> str:
        """Return what a model is told of this address."""
        servers = self.list_servers(caller, view)
        nothing = self.explain_empty(caller, view)
        if nothing is not None:
            return nothing
        if view.server_id is not None and not view.is_search:
            return self._catalogue.get_features(servers[0]).instructions or servers[0].description or servers[0].tagline
        how = (
            "find_tool finds tools by what you need; call_tool calls one by the name that find_tool gave."
            if view.is_search
            else "Tools of several servers; a tool's name begins with its server's."
        )
        offline = [server.id for server in servers if self._catalogue.is_offline(server, caller)]
        lines = [f"- {server.id}: {server.use_when or server.tagline or server.name}" for server in servers if server.id not in offline]
        return "\n".join([how, *lines, *([f"Offline now, not usable: {', '.join(offline)}."] if offline else [])])
