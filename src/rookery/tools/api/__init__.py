"""The routes of the tools domain: spec 4.1 under /api/v1/mcp, and additional ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rookery.kernel.http import Operation
from rookery.tools.api.analytics import AnalyticsRoutes
from rookery.tools.api.calls import ToolCallRoutes
from rookery.tools.api.discovery import DiscoveryRoutes
from rookery.tools.api.listing import ListingRoutes
from rookery.tools.api.logins import LoginRoutes
from rookery.tools.api.pages import HtmlPages
from rookery.tools.api.servers import WorkspaceServerRoutes
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.documents import Discovery
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.resources import ResourceReader
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.workspace_servers import WorkspaceServers
from rookery.tools.supervision.session_pool import SessionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsApi:
    """
    All routes of the tools domain.

    Attributes:
        api: The absolute URL of the routes under {base_url}, for published documents.
        is_discovery_public: The routes of D-35 require no key.
        has_docs: The pages link to the API documentation.
    """

    catalogue: Catalogue
    sessions: SessionPool
    runner: ToolRunner
    analytics: CallAnalytics
    resources: ResourceReader
    workspace_servers: WorkspaceServers
    checker: ServerChecker
    logins: LoginRoutes
    discovery: Discovery
    search: ToolSearch
    api: str
    is_discovery_public: bool
    has_docs: bool = False

    def gateway_routes(self) -> list[Operation]:
        """Return the routes under {base_url}'s prefix."""
        return [
            *ListingRoutes(self.catalogue, self.sessions, self.resources).routes(),
            *ToolCallRoutes(self.catalogue, self.runner, self.resources).routes(),
            *self._discovery().api_routes(),
        ]

    def agent_routes(self) -> list[Operation]:
        """Return the routes under {mcp_url}'s prefix of the agents domain."""
        return AnalyticsRoutes(self.catalogue, self.analytics).routes()

    def host_routes(self) -> list[Operation]:
        """Return the routes at the root of {mcp_url}: discovery, and the spec's second path of a call."""
        calls = ToolCallRoutes(self.catalogue, self.runner, self.resources).routes()
        aliases = [replace(route, path=f"/mcp{route.path}") for route in calls if route.path == "/tools/call"]
        return [*self._discovery().host_routes(), *aliases, *self.logins.host_routes()]

    def platform_routes(self) -> list[Operation]:
        """Return the routes under {api_url}'s prefix: servers that workspaces added, and logins."""
        return [*WorkspaceServerRoutes(self.workspace_servers, self.catalogue, self.sessions, self.checker).routes(), *self.logins.routes()]

    def _discovery(self) -> DiscoveryRoutes:
        return DiscoveryRoutes(
            catalogue=self.catalogue,
            discovery=self.discovery,
            search=self.search,
            api=self.api,
            is_public=self.is_discovery_public,
            pages=HtmlPages(has_docs=self.has_docs),
        )
