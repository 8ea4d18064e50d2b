"""Serializers of servers and calls, for HTTP responses and webhook events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.schema import to_json
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import TASK_REASON
from rookery.tools.discovery.documents import Discovery
from rookery.tools.models import Server
from rookery.tools.resources import ResourceReader
from rookery.tools.schemas import CallRecordResponse, HiddenTool, ServerResponse
from rookery.tools.session_sharing import describe_concurrency, describe_sharing
from rookery.tools.store.calls import CALLS
from rookery.tools.supervision.session_pool import SessionPool


@dataclass(frozen=True, slots=True)
class ServerSerializer:
    """A serializer of servers as one caller may see them. It sends no upstream requests."""

    catalogue: Catalogue
    sessions: SessionPool
    resources: ResourceReader
    discovery: Discovery
    process_count: int

    def serialize_server(self, caller: Caller, server: Server, *, with_health: bool, session_id: str | None = None) -> ServerResponse:
        """Return a server with its features. *with_health* adds the state of its sessions, including process ids."""
        listing = self.discovery.build_listing(caller, server)
        state: dict[str, object] = {"last_error": None}
        if with_health:
            health_state = self.sessions.get_shown_health(server, caller.workspace_id)
            reason = f"It {TASK_REASON}."
            state = {
                "last_error": health_state.last_error or None,
                "stderr": list(health_state.stderr) or None,
                "standing": self.sessions.get_server_health(server, caller.workspace_id),
                "hidden_tools": [HiddenTool(name=name, reason=reason) for name in self.catalogue.list_task_tool_names(caller, server)],
            }
        return ServerResponse.from_parts(
            listing,
            description=listing.server.description,
            isolation=server.isolation.value,
            sharing=describe_sharing(server, process_count=self.process_count),
            concurrency=describe_concurrency(server),
            instructions=self.catalogue.get_features(server, caller, session_id).instructions,
            seen_at=self.catalogue.seen_at(server, caller),
            tools=[tool.definition for tool in self.catalogue.list_tools(caller, server, session_id)],
            resources=self.resources.list_resources(server, caller, session_id),
            **state,
        )

    def serialize_health_event(self, viewer: Caller, server_key: str, health: str) -> Mapping[str, object] | None:
        """Return a server with the *health* of the event, which may differ from its current health. None if *viewer* may not see it."""
        server = next((candidate for candidate in self.catalogue.list_servers(viewer) if candidate.key == server_key), None)
        return None if server is None else {**to_json(self.serialize_server(viewer, server, with_health=False)), "health": health}


def serialize_call(tx: Tx, workspace_id: int, call_id: str) -> Mapping[str, object]:
    """Return a call as the list of calls returns it, or only its id if the record no longer exists."""
    row = CALLS.find(tx, workspace_id, id=call_id)
    return {"id": call_id} if row is None else to_json(CallRecordResponse.model_validate(row, from_attributes=True))
