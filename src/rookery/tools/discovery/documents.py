"""Published discovery documents: registries, catalogues and server cards, with Rookery's own URLs only."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from urllib.parse import urlsplit

from rookery.access.models import Caller
from rookery.kernel.clock import format_iso
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import list_tool_names
from rookery.tools.errors import ServerNotFound
from rookery.tools.models import BuiltinTarget, HealthStatus, JsonObject, Server, ServerFeatures, ServerStatus
from rookery.tools.server_info import complete_server, shorten
from rookery.tools.servers.health_file import ReportedHealth, shorten_reason
from rookery.tools.supervision.session_pool import SessionPool

REGISTRY_VERSION = "1.0"
PROTOCOL_VERSIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26")
"""The protocol revisions that `/mcp` supports, newest first."""

_CARD_SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/v2/server-card.schema.json"
_ENTRY_SCHEMA_URL = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
_REGISTRY_META = "io.modelcontextprotocol.registry/official"
_REASON_SCOPE = "servers:read"
"""The scope to read why a server does not work."""
_NO_WORKSPACE = 0
"""No workspace has this number. It selects the health that is not specific to a workspace."""
_MAX_SHORT_LENGTH = 100
"""Maximum length of titles and descriptions in both schemas."""
_NEVER_SEEN_AT = datetime.fromisoformat("2026-01-01T00:00:00Z")
"""The time for servers that were never listed. The registry's schema requires one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerListing:
    """
    One server as a caller may see it, with the number of its features.

    Attributes:
        server: What its entry does not say is filled in from what the server says about itself.
        related: The related servers of its entry that the caller sees too.
        last_error: The reason of its health, in one line, if the caller may read it.
    """

    server: Server
    related: tuple[str, ...]
    health: HealthStatus
    tool_count: int
    resource_count: int
    prompt_count: int
    changed_at: datetime | None
    last_error: str | None = None

    @property
    def capabilities(self) -> list[str]:
        """The kinds of features that the server offers."""
        counts = {"tools": self.tool_count, "resources": self.resource_count, "prompts": self.prompt_count}
        return [name for name, count in counts.items() if count]


class Discovery:
    """
    Builds every discovery document from one list of servers.

    Without a key, the list has the built-in servers and those of the file that are neither private nor limited to some workspaces.
    """

    def __init__(self, catalogue: Catalogue, sessions: SessionPool, *, mcp_address: str, organization: str) -> None:
        """
        Create the builder.

        Args:
            mcp_address: Scheme and host of `/mcp`. It never comes from a request.
        """
        self._catalogue = catalogue
        self._sessions = sessions
        self._address = mcp_address
        self._tool_counts: dict[str, tuple[Server, ServerFeatures, int]] = {}
        self.organization = organization

    def list_servers(self, caller: Caller | None) -> list[ServerListing]:
        """Return the servers that *caller* sees. None: a request without a key."""
        visible = self._list_visible(caller)
        visible_ids = {server.id for server in visible}
        return [self._to_listing(caller, server, visible_ids) for server in visible]

    def build_listing(self, caller: Caller, server: Server) -> ServerListing:
        """Return one server as *caller* sees it."""
        return self._to_listing(caller, server, {visible.id for visible in self._list_visible(caller)})

    def get_server(self, caller: Caller | None, server_id: str) -> ServerListing:
        """
        Return one server that *caller* sees.

        Raises:
            ServerNotFound: The server does not exist or is not visible.
            RookeryError: The server is disabled or not allowed for this key.
        """
        if caller is not None:
            self._catalogue.get_server(caller, server_id)
        for listing in self.list_servers(caller):
            if listing.server.id == server_id:
                return listing
        raise ServerNotFound(server_id, [listing.server.id for listing in self.list_servers(caller)])

    def report_health(self) -> dict[str, ReportedHealth]:
        """Return the health of the servers of the file, by id, with its reason: for the operator, so also of private servers."""
        reports: dict[str, ReportedHealth] = {}
        for server in self._catalogue.list_shared_servers():
            if isinstance(server.target, BuiltinTarget):
                continue
            state, features = self._sessions.get_shown_health(server, _NO_WORKSPACE), self._catalogue.get_features(server)
            tool_count = self._count_tools(server, features)
            reports[server.id] = ReportedHealth(
                health=state.health.value,
                reason=shorten_reason(state.last_error),
                tool_count=tool_count,
                feature_count=tool_count + len(features.resources) + len(features.templates) + len(features.prompts),
            )
        self._tool_counts = {server_id: self._tool_counts[server_id] for server_id in reports}
        return reports

    def _count_tools(self, server: Server, features: ServerFeatures) -> int:
        """Return the number of listed tools. It is counted again only for another entry or another list."""
        counted = self._tool_counts.get(server.id)
        if counted is None or counted[0] is not server or counted[1] is not features:
            counted = self._tool_counts[server.id] = (server, features, len(list_tool_names(server, features)))
        return counted[2]

    def get_mcp_url(self, server_id: str | None = None) -> str:
        """Return the MCP URL of one server, or of all servers together."""
        return f"{self._address}/mcp" if server_id is None else f"{self._address}/mcp/{server_id}"

    def build_registry(self, listings: Sequence[ServerListing]) -> JsonObject:
        """Return `/.well-known/mcp-servers.json`. Its format is Rookery's own; no standard defines this path."""
        return {
            "registry_version": REGISTRY_VERSION,
            "organization": self.organization,
            "servers": [
                {
                    "id": listing.server.id,
                    "name": listing.server.name,
                    "description": listing.server.description or listing.server.tagline,
                    "tagline": listing.server.tagline,
                    "icon": listing.server.icon,
                    "status": listing.server.status.value,
                    "use_when": listing.server.use_when,
                    "connection": {"type": "streamable-http", "url": self.get_mcp_url(listing.server.id)},
                    "capabilities": listing.capabilities,
                    "related_servers": list(listing.related),
                }
                for listing in listings
            ],
        }

    def build_ai_catalog(self, listings: Sequence[ServerListing]) -> JsonObject:
        """Return `/.well-known/ai-catalog.json` in the format AI Catalog 1.0. Each entry links to a server's card."""
        host = urlsplit(self._address).hostname or "localhost"
        return {
            "specVersion": "1.0",
            "host": {"displayName": self.organization, "identifier": host, "documentationUrl": f"{self._address}/connect"},
            "entries": [
                {
                    "identifier": f"urn:air:{host}:mcp:{listing.server.id}",
                    "displayName": listing.server.name,
                    "type": "application/mcp-server-card+json",
                    "url": f"{self.get_mcp_url(listing.server.id)}/server-card",
                    "description": _shorten_description(listing.server),
                    "version": get_version(),
                }
                for listing in listings
            ],
        }

    def build_card(self, listing: ServerListing) -> JsonObject:
        """Return a server's card (SEP-2127): identity and URL. It deliberately omits the tools."""
        return {
            **self._build_identity(listing.server.id, listing.server.name, _shorten_description(listing.server)),
            "remotes": [self._build_remote(listing.server.id)],
        }

    def build_gateway_card(self) -> JsonObject:
        """Return the card of `/mcp`, which serves all servers that a key sees."""
        about = f"All tool servers of {self.organization} at one URL."
        return {**self._build_identity("rookery", self.organization, about), "remotes": [self._build_remote(None)]}

    def build_registry_entry(self, listing: ServerListing) -> JsonObject:
        """Return a server in the format of the official registry's API: its server.json and the registry's metadata."""
        server = listing.server
        changed_at = format_iso(listing.changed_at or _NEVER_SEEN_AT)
        content: JsonObject = {
            "$schema": _ENTRY_SCHEMA_URL,
            "name": self.get_registry_name(server.id),
            "title": server.name[:_MAX_SHORT_LENGTH],
            "description": _shorten_description(server),
            "version": get_version(),
            "remotes": [{key: value for key, value in self._build_remote(server.id).items() if key != "supportedProtocolVersions"}],
        }
        status = "deprecated" if server.status is ServerStatus.DEPRECATED else "active"
        return {
            "server": content,
            "_meta": {_REGISTRY_META: {"status": status, "publishedAt": changed_at, "updatedAt": changed_at, "isLatest": True}},
        }

    def get_registry_name(self, server_id: str) -> str:
        """Return a server's name in the registry's form: the reversed host name and the server's id."""
        host = urlsplit(self._address).hostname or "localhost"
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return f"{'.'.join(reversed(host.split('.')))}/{server_id}"
        return f"localhost/{server_id}"

    def _build_identity(self, server_id: str, title: str, about: str) -> JsonObject:
        return {
            "$schema": _CARD_SCHEMA_URL,
            "name": self.get_registry_name(server_id),
            "title": title[:_MAX_SHORT_LENGTH],
            "description": about[:_MAX_SHORT_LENGTH],
            "version": get_version(),
            "websiteUrl": f"{self._address}/servers",
        }

    def _build_remote(self, server_id: str | None) -> JsonObject:
        key: JsonObject = {"description": "A Rookery API key.", "isRequired": True, "isSecret": True}
        return {
            "type": "streamable-http",
            "url": self.get_mcp_url(server_id),
            "headers": [{"name": "Authorization", **key, "value": "Bearer {key}", "variables": {"key": key}}],
            "supportedProtocolVersions": list(PROTOCOL_VERSIONS),
        }

    def _list_visible(self, caller: Caller | None) -> list[Server]:
        if caller is not None:
            return self._catalogue.list_servers(caller)
        return [server for server in self._catalogue.list_shared_servers() if not server.private and server.workspaces is None]

    def _to_listing(self, caller: Caller | None, server: Server, visible_ids: Collection[str]) -> ServerListing:
        features = self._catalogue.get_features(server, caller)
        state = self._sessions.get_shown_health(server, _NO_WORKSPACE if caller is None else caller.workspace_id)
        return ServerListing(
            # Instructions are for agents that use the server, so that visitors without a key do not see them.
            server=complete_server(server, features, has_instructions=caller is not None),
            related=tuple(related_id for related_id in server.related_servers if related_id in visible_ids),
            health=state.health,
            last_error=shorten_reason(state.last_error) if caller is not None and caller.has_scope(_REASON_SCOPE) else None,
            tool_count=len(list_tool_names(server, features)) if caller is None else len(self._catalogue.list_tools(caller, server)),
            resource_count=len(features.resources),
            prompt_count=len(features.prompts),
            changed_at=self._catalogue.changed_at(server, caller),
        )


def get_version() -> str:
    """Return the version published for all servers: that of Rookery, which serves them."""
    return metadata.version("rookery")


def _shorten_description(server: Server) -> str:
    """Return a description of 1 to 100 characters, truncated between words."""
    return shorten(server.tagline or server.description or server.name, _MAX_SHORT_LENGTH)
