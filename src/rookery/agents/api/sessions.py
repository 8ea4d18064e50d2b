"""Routes of agent sessions (D-62, D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.agents.api.route_table import make_route, require_unconditional
from rookery.agents.errors import PlanArchived, WrongTransition
from rookery.agents.models.sessions import AgentSession, SessionEvent, SessionView
from rookery.agents.schemas.boot import StartedResponse, to_boot_response
from rookery.agents.schemas.session_events import EventBody, SessionEventResponse, SessionEventsQuery, to_session_event_response
from rookery.agents.schemas.sessions import (
    EndBody,
    HeartbeatResponse,
    ResumeBody,
    SessionPatch,
    SessionResponse,
    SessionsQuery,
    StartBody,
    to_heartbeat_response,
    to_session_response,
)
from rookery.agents.sessions.errors import NoHandoffOffered, SessionActive, SessionEnded, SessionFull, SessionResumed
from rookery.agents.sessions.session_services import SessionServices
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Route, allowed_on_full_disk, document_route, json_response, page_response, respond_with, store_created_id
from rookery.kernel.http.conditional_requests import by_etag, json_with_etag, read_if_match, with_etag
from rookery.kernel.schema import Page

READ_SCOPE, WRITE_SCOPE = "sessions.read", "sessions.write"
_make_route = partial(make_route, tag="Sessions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRoutes:
    """Handlers that parse a request, call one service method and build the response."""

    sessions: SessionServices

    def routes(self) -> list[Route]:
        """Return the routes."""
        session_path = "/sessions/{session_id}"
        return [
            _make_route(
                "GET /sessions",
                self.get_sessions,
                READ_SCOPE,
                Page[SessionResponse],
                "list_sessions",
                summary="List sessions, newest first",
            ),
            _make_route(
                "POST /sessions",
                self.post_session,
                WRITE_SCOPE,
                StartedResponse,
                "start_session",
                summary="Start a session",
                status=201,
                idempotent=True,
                rebuild_response=self._rebuild_start,
            ),
            _make_route(f"GET {session_path}", self.get_session, READ_SCOPE, SessionResponse, "get_session", summary="Show a session"),
            _make_route(
                f"PATCH {session_path}",
                self.patch_session,
                WRITE_SCOPE,
                SessionResponse,
                "update_session",
                summary="Change, pause or continue a session",
            ),
            _make_route(
                f"GET {session_path}/events",
                self.get_events,
                READ_SCOPE,
                Page[SessionEventResponse],
                "list_session_events",
                summary="List the events of a session",
            ),
            _make_route(
                f"POST {session_path}/events",
                self.post_event,
                WRITE_SCOPE,
                SessionEventResponse,
                "add_session_event",
                summary="Add an event to a session",
                status=201,
                idempotent=True,
            ),
            _make_route(
                f"POST {session_path}/heartbeat",
                self.post_heartbeat,
                WRITE_SCOPE,
                HeartbeatResponse,
                "heartbeat_session",
                summary="Keep a session alive",
                rate_limited=False,
            ),
            _make_route(
                f"POST {session_path}/end",
                self.post_end,
                WRITE_SCOPE,
                SessionResponse,
                "end_session",
                summary="End a session",
                idempotent=True,
                rebuild_response=self._rebuild_end,
                body_optional=True,
            ),
            _make_route(
                f"POST {session_path}/resume",
                self.post_resume,
                WRITE_SCOPE,
                StartedResponse,
                "resume_session",
                summary="Start the successor of a session",
                status=201,
                idempotent=True,
                rebuild_response=self._rebuild_start,
                body_optional=True,
            ),
        ]

    @document_route(errors=(NotFound,))
    async def get_sessions(self, request: Request, query: Annotated[SessionsQuery, Query()]) -> Response:
        """List the sessions that the key has access to, newest first."""
        caller = get_caller(request)
        views, total = await self.sessions.records.list_page(
            caller, query.to_filter(), plan=query.plan, limit=query.per_page, offset=query.offset
        )
        return page_response(request, [to_session_response(caller, view) for view in views], query=query, total=total)

    @with_etag
    @by_etag
    @document_route(errors=(NotFound, PlanArchived, SessionActive))
    async def post_session(self, request: Request, body: StartBody) -> Response:
        """
        Start a session of an agent.

        `boot` in the response is the context of the agent: plan, phase, tasks, hand-off, checkpoint and memories.
        """
        require_unconditional(request)
        caller = get_caller(request)
        store_created_id(AgentSession, lambda session: session.id)
        return await self._reply_started(caller, await self.sessions.starter.start(caller, body.to_request()))

    @with_etag
    async def get_session(self, request: Request, session_id: str) -> Response:
        """Return one session."""
        caller = get_caller(request)
        return _reply(caller, await self.sessions.records.get(caller, session_id))

    @with_etag
    @by_etag
    @document_route(errors=(NoHandoffOffered, SessionEnded, WrongTransition))
    async def patch_session(self, request: Request, session_id: str, body: SessionPatch) -> Response:
        """Change the goal or context of an open session, pause it, or continue it."""
        caller = get_caller(request)
        session = await self.sessions.records.change(caller, session_id, body.to_change(), expected=read_if_match(request))
        return _reply(caller, await self.sessions.records.load_view(session))

    async def get_events(self, request: Request, session_id: str, query: Annotated[SessionEventsQuery, Query()]) -> Response:
        """List the events of a session, in the order of `seq`."""
        events, total = await self.sessions.records.list_events(
            get_caller(request), session_id, after=query.after, event_type=query.to_event_type(), limit=query.per_page, offset=query.offset
        )
        return page_response(request, [to_session_event_response(event) for event in events], query=query, total=total)

    @by_etag
    @document_route(errors=(NoHandoffOffered, SessionEnded, SessionFull))
    async def post_event(self, request: Request, session_id: str, body: EventBody) -> Response:
        """Append an event to a session: a note, action, decision, checkpoint, question, answer, artifact or error."""
        respond = respond_with(SessionEvent, lambda event: json_response(to_session_event_response(event), status=201))
        return respond(
            await self.sessions.records.append(get_caller(request), session_id, body.to_new_event(), expected=read_if_match(request))
        )

    @allowed_on_full_disk
    @by_etag
    @document_route(errors=(SessionEnded,))
    async def post_heartbeat(self, request: Request, session_id: str) -> Response:
        """Record activity, so that the session is not marked as abandoned."""
        return json_response(
            to_heartbeat_response(await self.sessions.records.heartbeat(get_caller(request), session_id, expected=read_if_match(request)))
        )

    @with_etag
    @by_etag
    @document_route(errors=(SessionEnded,))
    async def post_end(self, request: Request, session_id: str, body: EndBody) -> Response:
        """End a session as completed, failed or handed over. Ending it again in the same way changes nothing."""
        caller = get_caller(request)
        store_created_id(AgentSession, lambda session: session.id, status=200)
        session = await self.sessions.ender.end(caller, session_id, body.to_request(), expected=read_if_match(request))
        return _reply(caller, await self.sessions.records.load_view(session))

    async def _rebuild_end(self, request: Request, session_id: str) -> Response:
        """Return the response to an end whose process exited before the response was stored."""
        caller = get_caller(request)
        return _reply(caller, await self.sessions.records.get(caller, session_id))

    @with_etag
    @by_etag
    @document_route(errors=(PlanArchived, SessionActive, SessionResumed))
    async def post_resume(self, request: Request, session_id: str, body: ResumeBody) -> Response:
        """Start a session that continues an ended or paused one. `boot` in the response is the context of the agent."""
        caller = get_caller(request)
        store_created_id(AgentSession, lambda session: session.id)
        return await self._reply_started(
            caller, await self.sessions.starter.resume(caller, session_id, body.to_request(), expected=read_if_match(request))
        )

    async def _rebuild_start(self, request: Request, session_id: str) -> Response:
        """Return the response to a start whose process exited before the response was stored."""
        caller = get_caller(request)
        return await self._reply_started(caller, (await self.sessions.records.get(caller, session_id)).session)

    async def _reply_started(self, caller: Caller, session: AgentSession) -> Response:
        view, boot = await self.sessions.records.load_view(session), await self.sessions.boot_loader.load(caller, session)
        response = StartedResponse.model_construct(session=to_session_response(caller, view), boot=to_boot_response(caller, boot))
        return json_with_etag(response, session.version, status=201)


def _reply(caller: Caller, view: SessionView) -> Response:
    return json_with_etag(to_session_response(caller, view), view.session.version)
