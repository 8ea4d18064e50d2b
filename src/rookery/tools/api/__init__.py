"""The operations of the tools domain, under /api/v1/mcp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.http import Operation
from rookery.kernel.http.cross_origin import list_allowed_origins
from rookery.tools.api.analytics import AnalyticsApi
from rookery.tools.api.calls import ToolCallApi
from rookery.tools.api.discovery import DiscoveryApi
from rookery.tools.api.listing import ListingApi
from rookery.tools.api.logins import CALLBACK_PATH, LoginApi
from rookery.tools.api.pages import HtmlPages
from rookery.tools.api.servers import WorkspaceServerApi
from rookery.tools.gateway.routes import GatewayApi
from rookery.tools.wiring import ToolServices

TOOLS_PREFIX = "/api/v1/mcp"


def list_operations(services: ToolServices, settings: Settings, clock: Clock) -> list[tuple[str, Sequence[Operation]]]:
    """Return all operations under their prefixes. A call also has a path at the root."""
    catalogue, sessions = services.catalogue, services.sessions
    calls = ToolCallApi(catalogue, services.calls, services.resources).operations()
    logins = LoginApi(services.logins, catalogue, clock, settings.public_url_of(CALLBACK_PATH))
    discovery = DiscoveryApi(
        catalogue=catalogue,
        discovery=services.discovery,
        search=services.search,
        api=settings.public_url_of(TOOLS_PREFIX) + TOOLS_PREFIX,
        is_public=settings.is_discovery_public,
        pages=HtmlPages(has_docs=settings.has_api_docs),
    )
    listing = ListingApi(catalogue, services.resources, services.serializer)
    aliases = [replace(operation, path=f"/mcp{operation.path}") for operation in calls if operation.path == "/tools/call"]
    added_servers = WorkspaceServerApi(services.workspace_servers, catalogue, sessions, services.checker, services.kill_switch)
    return [
        (TOOLS_PREFIX, [*listing.operations(), *calls, *discovery.api_operations()]),
        ("", [*discovery.host_operations(), *aliases, *logins.host_operations()]),
        ("", GatewayApi(services.gateway, list_allowed_origins(settings)).operations()),
        ("/api/v1", [*added_servers.operations(), *logins.operations()]),
        ("/api/agent", AnalyticsApi(catalogue, services.analytics).operations()),
    ]
