"""The routes of tool servers: spec 4.1 under /api/v1/mcp, and what stands beside it."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.kernel.http import Route
from rookery.tools.api.calls import CallRoutes
from rookery.tools.api.listing import ListingRoutes
from rookery.tools.calls import Calls
from rookery.tools.catalogue import Catalogue
from rookery.tools.resources import Resources
from rookery.tools.sessions import Sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsApi:
    """All of tool servers over HTTP."""

    catalogue: Catalogue
    sessions: Sessions
    calls: Calls
    resources: Resources

    def gateway_routes(self) -> list[Route]:
        """Return the routes under {base_url}'s prefix."""
        return [
            *ListingRoutes(self.catalogue, self.sessions, self.resources).routes(),
            *CallRoutes(self.catalogue, self.calls, self.resources).routes(),
        ]
