"""Handler of the tools for sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.serialization import ToolOutput, to_json, to_json_page, validate_arguments
from rookery.agents.models.sessions import AgentSession
from rookery.agents.schemas.boot import StartedResponse, to_boot_response
from rookery.agents.schemas.session_events import EventBody, SessionEventsQuery, to_session_event_response
from rookery.agents.schemas.sessions import (
    EndBody,
    ResumeBody,
    SessionPatch,
    SessionsQuery,
    StartBody,
    to_heartbeat_response,
    to_session_response,
)
from rookery.agents.sessions.session_services import SessionServices


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionToolHandler:
    """Runs each tool by one operation on sessions."""

    sessions: SessionServices

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        """Run *tool*, or return None if this handler does not have it."""
        match tool:
            case "session_start":
                return await self._show_started(
                    caller, await self.sessions.starter.start(caller, validate_arguments(StartBody, arguments).to_request())
                )
            case "session_resume":
                request = validate_arguments(ResumeBody, arguments, "session_id").to_request()
                return await self._show_started(caller, await self.sessions.starter.resume(caller, _get_session_id(arguments), request))
            case "session_list":
                query = validate_arguments(SessionsQuery, arguments)
                views, total = await self.sessions.records.list_page(
                    caller, query.to_filter(), plan=query.plan, limit=query.per_page, offset=query.offset
                )
                return to_json_page("sessions", [to_session_response(caller, view) for view in views], query, total)
            case "session_show":
                return to_json(to_session_response(caller, await self.sessions.records.get(caller, _get_session_id(arguments))))
            case "session_events":
                events_query = validate_arguments(SessionEventsQuery, arguments, "session_id")
                events, total = await self.sessions.records.list_events(
                    caller,
                    _get_session_id(arguments),
                    after=events_query.after,
                    event_type=events_query.to_event_type(),
                    limit=events_query.per_page,
                    offset=events_query.offset,
                )
                return to_json_page("events", [to_session_event_response(event) for event in events], events_query, total)
            case _:
                return await self._call_session_tool(tool, arguments, caller)

    async def _call_session_tool(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        """Run a tool that writes to a session, or return None if this handler does not have it."""
        session_id = str(arguments.get("session_id"))
        match tool:
            case "session_log":
                return await self._append_event(caller, session_id, validate_arguments(EventBody, arguments, "session_id"))
            case "session_checkpoint":
                return await self._append_event(
                    caller, session_id, validate_arguments(EventBody, {**arguments, "type": "checkpoint"}, "session_id")
                )
            case "session_heartbeat":
                return to_json(to_heartbeat_response(await self.sessions.records.heartbeat(caller, session_id)))
            case "session_update":
                change = validate_arguments(SessionPatch, arguments, "session_id").to_change()
                return await self._show(caller, await self.sessions.records.change(caller, session_id, change))
            case "session_handoff":
                handoff = validate_arguments(EndBody, {**arguments, "status": "handed_off"}, "session_id")
                return await self._show(caller, await self.sessions.ender.end(caller, session_id, handoff.to_request()))
            case "session_end":
                end = validate_arguments(EndBody, arguments, "session_id").to_request()
                return await self._show(caller, await self.sessions.ender.end(caller, session_id, end))
            case _:
                return None

    async def _append_event(self, caller: Caller, session_id: str, body: EventBody) -> ToolOutput:
        return to_json(to_session_event_response(await self.sessions.records.append(caller, session_id, body.to_new_event())))

    async def _show(self, caller: Caller, session: AgentSession) -> ToolOutput:
        return to_json(to_session_response(caller, await self.sessions.records.load_view(session)))

    async def _show_started(self, caller: Caller, session: AgentSession) -> ToolOutput:
        view, boot = await self.sessions.records.load_view(session), await self.sessions.boot_loader.load(caller, session)
        return to_json(StartedResponse.model_construct(session=to_session_response(caller, view), boot=to_boot_response(caller, boot)))


def _get_session_id(arguments: Mapping[str, object]) -> str:
    return str(arguments["session_id"])
