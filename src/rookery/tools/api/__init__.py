"""The routes of tool servers: spec 4.1 under /api/v1/mcp, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rookery.kernel.http import Route
from rookery.tools.api.analytics import AnalyticsRoutes
from rookery.tools.api.calls import CallRoutes
from rookery.tools.api.discovery import DiscoveryRoutes
from rookery.tools.api.listing import ListingRoutes
from rookery.tools.api.logins import LoginRoutes
from rookery.tools.api.pages import Pages
from rookery.tools.api.servers import ServerRoutes
from rookery.tools.calling.analytics import Analytics
from rookery.tools.calling.calls import Calls
from rookery.tools.catalogue import Catalogue
from rookery.tools.finding.discovery import Discovery
from rookery.tools.finding.tool_search import ToolSearch
from rookery.tools.resources import Resources
from rookery.tools.servers.checking import Checker
from rookery.tools.servers.owned import Owned
from rookery.tools.supervision.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsApi:
    """
    All of tool servers over HTTP.

    Attributes:
        api: Absolute address of the routes under {base_url}, for documents that others read elsewhere.
        is_discovery_public: Whether what D-35 names asks for no key.
        has_docs: Whether the pages link to the API documentation.
    """

    catalogue: Catalogue
    sessions: Sessions
    calls: Calls
    analytics: Analytics
    resources: Resources
    owned: Owned
    checker: Checker
    logins: LoginRoutes
    discovery: Discovery
    search: ToolSearch
    api: str
    is_discovery_public: bool
    has_docs: bool = False

    def gateway_routes(self) -> list[Route]:
        """Return the routes under {base_url}'s prefix."""
        return [
            *ListingRoutes(self.catalogue, self.sessions, self.resources).routes(),
            *CallRoutes(self.catalogue, self.calls, self.resources).routes(),
            *self._discovery().api_routes(),
        ]

    def agent_routes(self) -> list[Route]:
        """Return the routes under {mcp_url}'s prefix of agents' work."""
        return AnalyticsRoutes(self.catalogue, self.analytics).routes()

    def host_routes(self) -> list[Route]:
        """Return the routes at the root of {mcp_url}: discovery, and the spec's other path of a call."""
        calls = CallRoutes(self.catalogue, self.calls, self.resources).routes()
        again = [replace(route, path=f"/mcp{route.path}") for route in calls if route.path == "/tools/call"]
        return [*self._discovery().host_routes(), *again, *self.logins.host_routes()]

    def platform_routes(self) -> list[Route]:
        """Return the routes under {api_url}'s prefix: the servers that a workspace added."""
        return [*ServerRoutes(self.owned, self.catalogue, self.sessions, self.checker).routes(), *self.logins.routes()]

    def _discovery(self) -> DiscoveryRoutes:
        return DiscoveryRoutes(
            catalogue=self.catalogue,
            discovery=self.discovery,
            search=self.search,
            api=self.api,
            is_public=self.is_discovery_public,
            pages=Pages(has_docs=self.has_docs),
        )
