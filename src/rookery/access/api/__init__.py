"""The routes of access (D-27, D-29): keys of both kinds, workspaces, the audit log and the calling key."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.agent_keys import AgentKeys
from rookery.access.api.agent_keys import AgentKeyRoutes
from rookery.access.api.api_keys import ApiKeyRoutes
from rookery.access.api.audit import AuditRoutes
from rookery.access.api.current_key import CurrentKeyRoutes
from rookery.access.api.workspaces import WorkspaceRoutes
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.guard import Guard
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.http import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessApi:
    """The HTTP API of access."""

    guard: Guard
    api_keys: ApiKeys
    agent_keys: AgentKeys
    workspaces: Workspaces
    usage: UsageLog
    audit: AuditLog
    clock: Clock

    def platform_routes(self) -> list[Route]:
        """Return the routes under the platform's prefix."""
        return [
            *ApiKeyRoutes(self.api_keys, self.usage, self.clock).routes(),
            *AgentKeyRoutes(self.agent_keys, self.usage, self.clock).routes(),
            *WorkspaceRoutes(self.workspaces, self.api_keys, self.clock).routes(),
            *AuditRoutes(self.audit).routes(),
            *self._current_key_routes().routes(),
        ]

    def agent_routes(self) -> list[Route]:
        """Return the routes under the agents' prefix."""
        return [self._current_key_routes().rate_limit_route()]

    def _current_key_routes(self) -> CurrentKeyRoutes:
        return CurrentKeyRoutes(self.guard, self.api_keys, self.agent_keys, self.workspaces, self.clock)
