"""Serializers of servers and calls, for HTTP responses and webhook events (D-81)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.schema import to_json
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.models import CallRecord, JsonObject, Server
from rookery.tools.resources import ResourceReader
from rookery.tools.schemas import CallRecordResponse, HiddenTool, ServerHealthResponse, ServerResponse, ServerSummary, SessionHealthResponse
from rookery.tools.store import calls
from rookery.tools.supervision.health import ServerHealth, SessionHealth, percentile
from rookery.tools.supervision.session_pool import SessionPool


@dataclass(frozen=True, slots=True)
class ServerSerializer:
    """A serializer of servers as one caller may see them. It sends no upstream requests."""

    catalogue: Catalogue
    sessions: SessionPool
    resources: ResourceReader

    def serialize_summary(self, caller: Caller, server: Server, visible_ids: Collection[str]) -> ServerSummary:
        """Return the summary of a server. Related servers are limited to the ids in *visible_ids*."""
        return ServerSummary(
            id=server.id,
            name=server.name,
            tagline=server.tagline,
            status=server.status.value,
            health=self.sessions.get_health_state(server, caller.workspace_id).health.value,
            tool_count=len(self.catalogue.list_tools(caller, server)),
            resource_count=len(self.catalogue.get_features(server, caller).resources),
            icon=server.icon,
            use_when=server.use_when,
            related_servers=[related_id for related_id in server.related_servers if related_id in visible_ids],
        )

    def serialize_server(self, caller: Caller, server: Server, *, with_health: bool) -> ServerResponse:
        """Return a server with its features. *with_health* adds the state of its sessions, including process ids."""
        health_state, features = self.sessions.get_health_state(server, caller.workspace_id), self.catalogue.get_features(server)
        visible_ids = {server.id for server in self.catalogue.list_servers(caller)}
        return ServerResponse(
            **self.serialize_summary(caller, server, visible_ids).model_dump(),
            description=server.description,
            instructions=features.instructions,
            last_error=(health_state.last_error or None) if with_health else None,
            stderr=(list(health_state.stderr) or None) if with_health else None,
            standing=_to_health_response(self.sessions.get_server_health(server, caller.workspace_id)) if with_health else None,
            hidden_tools=[
                HiddenTool(name=name, reason="It runs only as a task (execution.taskSupport is required), which Rookery does not support.")
                for name in self.catalogue.list_task_tool_names(caller, server)
            ]
            if with_health
            else None,
            seen_at=self.catalogue.seen_at(server),
            tools=list_definitions(self.catalogue.list_tools(caller, server)),
            resources=self.resources.list_resources(server, caller),
        )

    def serialize_health_event(self, viewer: Caller, server_key: str, health: str) -> Mapping[str, object] | None:
        """Return a server with the *health* of the event, which may differ from its current health. None if *viewer* may not see it."""
        server = next((candidate for candidate in self.catalogue.list_servers(viewer) if candidate.key == server_key), None)
        return None if server is None else {**to_json(self.serialize_server(viewer, server, with_health=False)), "health": health}


def serialize_call(tx: Tx, workspace_id: int, call_id: str) -> Mapping[str, object]:
    """Return a call as the list of calls returns it, or only its id if the record no longer exists."""
    row = calls.find_call(tx, workspace_id, call_id)
    return {"id": call_id} if row is None else to_json(to_call_response(row))


def to_call_response(row: CallRecord) -> CallRecordResponse:
    """Return the response model of a call record."""
    return CallRecordResponse(
        id=row.id,
        server=row.server_id,
        tool=row.tool,
        key_id=row.key_id,
        key_kind=row.key_kind,
        agent_id=row.agent_id,
        session_id=row.session_id,
        success=row.success,
        code=row.code,
        error=row.error,
        cached=row.cached,
        duration_ms=round(row.duration_ms),
        duration_exact_ms=round(row.duration_ms, 3),
        arguments_bytes=row.arguments_bytes,
        result_bytes=row.result_bytes,
        arguments=row.arguments,
        request_id=row.request_id,
        called_at=row.called_at,
    )


def list_definitions(tools: list[CatalogueTool]) -> list[JsonObject]:
    """Return the definitions of the tools, as their servers list them."""
    return [tool.definition for tool in tools]


def _to_health_response(health: ServerHealth) -> ServerHealthResponse:
    return ServerHealthResponse(
        state=health.state,
        restarts=health.restarts,
        in_flight=health.in_flight,
        queued=health.queued,
        p50_ms=_round(health.percentile_ms(0.5)),
        p95_ms=_round(health.percentile_ms(0.95)),
        sessions=[_to_session_response(session) for session in health.sessions],
    )


def _to_session_response(session: SessionHealth) -> SessionHealthResponse:
    return SessionHealthResponse(
        state=session.state,
        pid=session.pid,
        era=session.protocol_version,
        software=session.software or None,
        uptime_s=_round(session.uptime_s),
        restarts=session.restarts,
        in_flight=session.in_flight,
        queued=session.queued,
        p50_ms=_round(percentile(session.durations_ms, 0.5)),
        p95_ms=_round(percentile(session.durations_ms, 0.95)),
        last_error=session.last_error or None,
        retry_s=_round(session.retry_s),
    )


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
