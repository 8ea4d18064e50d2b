"""The data of the webhook events of tool calls and tool servers."""

from __future__ import annotations

from rookery.access.event_rendering import EventContext, EventData, Renderers, StateRenderers
from rookery.access.models import Caller
from rookery.kernel.runtime import Runtime
from rookery.tools.build import ToolServices
from rookery.tools.events import ServerHealthChanged, ToolCalled
from rookery.tools.serializers import serialize_call


def _render_call(context: EventContext, event: ToolCalled) -> EventData:
    return serialize_call(context.tx, context.viewer.workspace_id, event.call_id)


def _render_server(runtime: Runtime, viewer: Caller, event: ServerHealthChanged) -> EventData | None:
    return runtime.use(ToolServices).serializer.serialize_health_event(viewer, event.key, event.health)


RENDERERS: Renderers = {ToolCalled: _render_call}
STATE_RENDERERS: StateRenderers = {ServerHealthChanged: _render_server}
