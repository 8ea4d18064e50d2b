"""What others are told of our tool servers: catalogues and cards, each with our own addresses alone (D-35)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from urllib.parse import urlsplit

from rookery.access.models import Caller
from rookery.kernel.clock import iso
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ServerNotFound
from rookery.tools.models import Health, JsonObject, Server, Status
from rookery.tools.supervision.sessions import Sessions
from rookery.tools.tool import is_off

REGISTRY_VERSION = "1.0"
PROTOCOLS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26")
"""The revisions that `/mcp` speaks, the newest first."""

_CARD_SCHEMA = "https://static.modelcontextprotocol.io/schemas/v2/server-card.schema.json"
_ENTRY_SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_REGISTRY_META = "io.modelcontextprotocol.registry/official"
_NOBODYS = 0
"""No workspace has this number: how a server does for one of them is nobody else's business."""
_MAX_SHORT = 100
"""What both schemas allow a title and a description."""
_NEVER = datetime.fromisoformat("2026-01-01T00:00:00Z")
"""Stands for when a server was seen that never was: the registry's shape wants a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """
    One server as somebody may see it, with how much it offers him.

    Attributes:
        related: Those of the servers that its entry names which he sees too.
    """

    server: Server
    related: tuple[str, ...]
    health: Health
    tool_count: int
    resource_count: int
    prompt_count: int
    changed_at: datetime | None

    @property
    def capabilities(self) -> list[str]:
        """What kinds of things it offers."""
        counts = {"tools": self.tool_count, "resources": self.resource_count, "prompts": self.prompt_count}
        return [name for name, count in counts.items() if count]


class Discovery:
    """
    Writes every document of discovery from one list of servers.

    Nobody in particular sees the built-in servers and those of the file that are neither private nor for some workspaces only.
    """

    def __init__(self, catalogue: Catalogue, sessions: Sessions, *, mcp_address: str, organization: str) -> None:
        """
        Do nothing yet.

        Args:
            mcp_address: Scheme and host under which `/mcp` is reached, never from a request.
        """
        self._catalogue = catalogue
        self._sessions = sessions
        self._address = mcp_address
        self.organization = organization

    def servers(self, caller: Caller | None) -> list[Listed]:
        """Return the servers that *caller* sees; None is nobody in particular."""
        visible = self._visible(caller)
        known = {server.id for server in visible}
        return [self._listed(caller, server, known) for server in visible]

    def server(self, caller: Caller | None, server_id: str) -> Listed:
        """
        Return one of those.

        Raises:
            ServerNotFound: It is none of them.
            RookeryError: The key does not reach it, or it is switched off.
        """
        if caller is not None:
            self._catalogue.server(caller, server_id)
        for each in self.servers(caller):
            if each.server.id == server_id:
                return each
        raise ServerNotFound(server_id)

    def url(self, server_id: str | None = None) -> str:
        """Return where an MCP client connects: to one server, or to all at once."""
        return f"{self._address}/mcp" if server_id is None else f"{self._address}/mcp/{server_id}"

    def registry(self, listed: Sequence[Listed]) -> JsonObject:
        """Return `/.well-known/mcp-servers.json`, a shape of our own: no standard has this path."""
        return {
            "registry_version": REGISTRY_VERSION,
            "organization": self.organization,
            "servers": [
                {
                    "id": each.server.id,
                    "name": each.server.name,
                    "description": each.server.description or each.server.tagline,
                    "tagline": each.server.tagline,
                    "icon": each.server.icon,
                    "status": each.server.status.value,
                    "use_when": each.server.use_when,
                    "connection": {"type": "streamable-http", "url": self.url(each.server.id)},
                    "capabilities": each.capabilities,
                    "related_servers": list(each.related),
                }
                for each in listed
            ],
        }

    def ai_catalog(self, listed: Sequence[Listed]) -> JsonObject:
        """Return `/.well-known/ai-catalog.json`: the AI Catalog 1.0, each entry the address of a server's card."""
        host = urlsplit(self._address).hostname or "localhost"
        return {
            "specVersion": "1.0",
            "host": {"displayName": self.organization, "identifier": host, "documentationUrl": f"{self._address}/connect"},
            "entries": [
                {
                    "identifier": f"urn:air:{host}:mcp:{each.server.id}",
                    "displayName": each.server.name,
                    "type": "application/mcp-server-card+json",
                    "url": f"{self.url(each.server.id)}/server-card",
                    "description": _short(each.server),
                    "version": version(),
                }
                for each in listed
            ],
        }

    def card(self, listed: Listed) -> JsonObject:
        """Return a server's card (SEP-2127): who it is and where; deliberately not its tools."""
        return {**self._identity(listed.server.id, listed.server.name, _short(listed.server)), "remotes": [self._remote(listed.server.id)]}

    def own_card(self) -> JsonObject:
        """Return the card of `/mcp`: all servers that a key sees behind one address."""
        about = f"Every tool server of {self.organization} behind one address."
        return {**self._identity("rookery", self.organization, about), "remotes": [self._remote(None)]}

    def entry(self, listed: Listed) -> JsonObject:
        """Return a server as the official registry's API answers it: its server.json, and what the registry knows of it."""
        server = listed.server
        changed = iso(listed.changed_at or _NEVER)
        content: JsonObject = {
            "$schema": _ENTRY_SCHEMA,
            "name": self.name_of(server.id),
            "title": server.name[:_MAX_SHORT],
            "description": _short(server),
            "version": version(),
            "remotes": [{key: value for key, value in self._remote(server.id).items() if key != "supportedProtocolVersions"}],
        }
        status = "deprecated" if server.status is Status.DEPRECATED else "active"
        return {
            "server": content,
            "_meta": {_REGISTRY_META: {"status": status, "publishedAt": changed, "updatedAt": changed, "isLatest": True}},
        }

    def name_of(self, server_id: str) -> str:
        """Return a server's name in the registry's form: our host the other way round, and the server's id."""
        host = urlsplit(self._address).hostname or "localhost"
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return f"{'.'.join(reversed(host.split('.')))}/{server_id}"
        return f"localhost/{server_id}"

    def _identity(self, server_id: str, title: str, about: str) -> JsonObject:
        return {
            "$schema": _CARD_SCHEMA,
            "name": self.name_of(server_id),
            "title": title[:_MAX_SHORT],
            "description": about[:_MAX_SHORT],
            "version": version(),
            "websiteUrl": f"{self._address}/servers",
        }

    def _remote(self, server_id: str | None) -> JsonObject:
        key: JsonObject = {"description": "A key of this platform.", "isRequired": True, "isSecret": True}
        return {
            "type": "streamable-http",
            "url": self.url(server_id),
            "headers": [{"name": "Authorization", **key, "value": "Bearer {key}", "variables": {"key": key}}],
            "supportedProtocolVersions": list(PROTOCOLS),
        }

    def _visible(self, caller: Caller | None) -> list[Server]:
        if caller is not None:
            return self._catalogue.servers(caller)
        return [server for server in self._catalogue.all_servers() if not server.private and server.workspaces is None]

    def _listed(self, caller: Caller | None, server: Server, known: Collection[str]) -> Listed:
        offer = self._catalogue.offer(server, caller)
        if caller is None:
            tool_count = sum(not is_off(server, str(tool.get("name", ""))) for tool in offer.tools)
        else:
            tool_count = len(self._catalogue.tools(caller, server))
        return Listed(
            server=server,
            related=tuple(each for each in server.related_servers if each in known),
            health=self._sessions.condition(server, _NOBODYS if caller is None else caller.workspace_id).health,
            tool_count=tool_count,
            resource_count=len(offer.resources),
            prompt_count=len(offer.prompts),
            changed_at=self._catalogue.changed_at(server),
        )


def version() -> str:
    """Return the version that servers have here: ours, since it is we who answer for them."""
    return metadata.version("rookery")


def _short(server: Server) -> str:
    """Return a description of 1 to 100 characters, cut between words."""
    text = " ".join((server.tagline or server.description or server.name).split())
    if len(text) <= _MAX_SHORT:
        return text
    cut = text[: _MAX_SHORT - 1].rsplit(" ", 1)[0]
    return f"{cut[: _MAX_SHORT - 1]}…"
