"""The webhook events of tool calls and tool servers (D-38, D-80, D-81)."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.access.event_sources import AnyEventSource, EventData, EventSource, EventType, StateEventSource
from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.events import ServerHealthChanged, ToolCalled
from rookery.kernel.runtime import Runtime
from rookery.tools.serializers import serialize_call
from rookery.tools.wiring import ToolServices

_CALL_DATA, _CALLS_ROUTE = "the call, as in the list of calls", "/api/agent/tools/calls"


def _select_call_types(event: ToolCalled) -> list[str]:
    has_failed = not event.success and event.code != "input_required"
    return ["tool.called", "tool.failed"] if has_failed else ["tool.called"]


def _render_call(_: Runtime, tx: Tx, viewer: Caller, event: ToolCalled, __: bool) -> EventData:  # noqa: FBT001
    return serialize_call(tx, viewer.workspace_id, event.call_id)


def _concerns(event: ServerHealthChanged, tenant: int) -> bool:
    return event.workspace_id in {None, tenant} and tenant not in event.excluded_workspaces


def _render_server(runtime: Runtime, viewer: Caller, event: ServerHealthChanged) -> Mapping[str, object] | None:
    return runtime.use(ToolServices).serializer.serialize_health_event(viewer, event.key, event.health)


def _server_type(name: str, description: str) -> EventType:
    resource = "/api/v1/mcp/servers/{server_id}"
    return EventType(name=name, description=description, data="the server", scope="mcp:read", resource=resource)


EVENTS: tuple[AnyEventSource, ...] = (
    EventSource(
        event=ToolCalled,
        types=[
            EventType(
                name="tool.called",
                description="A tool call ended, successfully or not. Wildcards do not include it; subscribe by name.",
                data=_CALL_DATA,
                scope="tools.read",
                resource=_CALLS_ROUTE,
                in_wildcard=False,
            ),
            EventType(name="tool.failed", description="A tool call failed.", data=_CALL_DATA, scope="tools.read", resource=_CALLS_ROUTE),
        ],
        select=_select_call_types,
        render=_render_call,
    ),
    StateEventSource(
        event=ServerHealthChanged,
        types=[
            _server_type("server.online", "A tool server is reachable."),
            _server_type("server.offline", "A tool server is unreachable."),
        ],
        select=lambda event: [f"server.{event.health}"],
        concerns=_concerns,
        render=_render_server,
    ),
)
"""The events of tools and tool servers."""
