"""The events of tool calls and tool servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import Event, EventType, StateEvent

_CALL_DATA, _CALLS_ROUTE = "the call, as in the list of calls", "/api/agent/tools/calls"


def _server_type(name: str, description: str) -> EventType:
    resource = "/api/v1/mcp/servers/{server_id}"
    return EventType(name=name, description=description, data="the server", scope="mcp:read", resource=resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled(Event):
    """A tool call succeeded, failed or was refused, and its row is committed."""

    types = (
        EventType(
            name="tool.called",
            description="A tool call ended, successfully or not. Wildcards do not include it; subscribe by name.",
            data=_CALL_DATA,
            scope="tools.read",
            resource=_CALLS_ROUTE,
            in_wildcard=False,
        ),
        EventType(name="tool.failed", description="A tool call failed.", data=_CALL_DATA, scope="tools.read", resource=_CALLS_ROUTE),
    )

    workspace_id: int
    call_id: str
    server: str
    tool: str
    success: bool
    code: str | None
    duration_ms: int
    at: datetime

    def select_types(self) -> Sequence[EventType]:
        has_failed = not self.success and self.code != "input_required"
        return self.types if has_failed else self.types[:1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerHealthChanged(StateEvent):
    """
    The health of a tool server changed, as this process sees it.

    *health* is the new value, *reason* the error, *key* a name that is unique over all workspaces. *workspace_id* owns the sessions; null
    means all workspaces except those in *excluded_workspaces*, which have their own sessions.

    Attributes:
        key: Distinguishes servers of different workspaces that have the same id.
        workspace_id: The one workspace concerned. None: all workspaces except *excluded_workspaces*.
    """

    types = (
        _server_type("server.online", "A tool server is reachable."),
        _server_type("server.offline", "A tool server is unreachable."),
    )

    server: str
    key: str
    health: str
    reason: str | None
    at: datetime
    workspace_id: int | None
    excluded_workspaces: frozenset[int]

    def select_types(self) -> Sequence[EventType]:
        return [event_type for event_type in self.types if event_type.name == f"server.{self.health}"]

    def concerns(self, tenant: int) -> bool:
        return self.workspace_id in {None, tenant} and tenant not in self.excluded_workspaces
