"""The operations of the tools domain: spec 4.1 under /api/v1/mcp, and additional ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rookery.kernel.http import Operation
from rookery.tools.api.analytics import AnalyticsApi
from rookery.tools.api.calls import ToolCallApi
from rookery.tools.api.discovery import DiscoveryApi
from rookery.tools.api.listing import ListingApi
from rookery.tools.api.logins import LoginApi
from rookery.tools.api.pages import HtmlPages
from rookery.tools.api.servers import WorkspaceServerApi
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.documents import Discovery
from rookery.tools.discovery.tool_search import ToolSearch
from rookery.tools.resources import ResourceReader
from rookery.tools.serializers import ServerSerializer
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.servers.workspace_servers import WorkspaceServers
from rookery.tools.supervision.session_pool import SessionPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsApi:
    """
    All operations of the tools domain.

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
    logins: LoginApi
    discovery: Discovery
    search: ToolSearch
    api: str
    is_discovery_public: bool
    has_docs: bool = False

    def gateway_operations(self) -> list[Operation]:
        """Return the operations under {base_url}'s prefix."""
        serializer = ServerSerializer(self.catalogue, self.sessions, self.resources, self.discovery)
        return [
            *ListingApi(self.catalogue, self.resources, serializer).operations(),
            *self._calls().operations(),
            *self._discovery().api_operations(),
        ]

    def agent_operations(self) -> list[Operation]:
        """Return the operations under {mcp_url}'s prefix of the agents domain."""
        return AnalyticsApi(self.catalogue, self.analytics).operations()

    def host_operations(self) -> list[Operation]:
        """Return the operations at the root of {mcp_url}: discovery, and the spec's second path of a call."""
        calls = [operation for operation in self._calls().operations() if operation.path == "/tools/call"]
        aliases = [replace(operation, path=f"/mcp{operation.path}") for operation in calls]
        return [*self._discovery().host_operations(), *aliases, *self.logins.host_operations()]

    def platform_operations(self) -> list[Operation]:
        """Return the operations under {api_url}'s prefix: servers that workspaces added, and logins."""
        servers = WorkspaceServerApi(self.workspace_servers, self.catalogue, self.sessions, self.checker)
        return [*servers.operations(), *self.logins.operations()]

    def _calls(self) -> ToolCallApi:
        return ToolCallApi(self.catalogue, self.runner, self.resources)

    def _discovery(self) -> DiscoveryApi:
        return DiscoveryApi(
            catalogue=self.catalogue,
            discovery=self.discovery,
            search=self.search,
            api=self.api,
            is_public=self.is_discovery_public,
            pages=HtmlPages(has_docs=self.has_docs),
        )
