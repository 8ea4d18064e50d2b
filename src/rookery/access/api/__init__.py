"""The operations of access: keys of both kinds, workspaces, the audit log and the calling key."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.agent_keys import AgentKeys
from rookery.access.api.agent_keys import AgentKeyOperations
from rookery.access.api.api_keys import ApiKeyOperations
from rookery.access.api.audit import AuditOperations
from rookery.access.api.current_key import CurrentKeyOperations
from rookery.access.api.workspaces import WorkspaceOperations
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.guard import Guard
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.http import Operation


def list_key_operations(api_keys: ApiKeys, agent_keys: AgentKeys, usage: UsageLog, clock: Clock) -> list[Operation]:
    """Return the operations of both kinds of key."""
    return [*ApiKeyOperations(api_keys, usage, clock).operations(), *AgentKeyOperations(agent_keys, usage, clock).operations()]


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

    def platform_operations(self) -> list[Operation]:
        """Return the operations under the platform's prefix."""
        return [
            *list_key_operations(self.api_keys, self.agent_keys, self.usage, self.clock),
            *WorkspaceOperations(self.workspaces, self.api_keys, self.clock).operations(),
            *AuditOperations(self.audit).operations(),
            *self._current_key_operations().operations(),
        ]

    def agent_operations(self) -> list[Operation]:
        """Return the operations under the agents' prefix."""
        return [self._current_key_operations().rate_limit_operation()]

    def _current_key_operations(self) -> CurrentKeyOperations:
        return CurrentKeyOperations(self.guard, self.api_keys, self.agent_keys, self.workspaces, self.clock)
