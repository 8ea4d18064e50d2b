"""Operations on agent sessions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.agents import tool_declarations as tools
from rookery.agents.errors import PlanArchived, WrongTransition
from rookery.agents.models.sessions import AgentSession, SessionEvent, SessionView
from rookery.agents.schemas.session_events import EventBody, SessionEventResponse, SessionEventsQuery
from rookery.agents.schemas.sessions import (
    EndBody,
    HeartbeatResponse,
    ResumeBody,
    SessionPatch,
    SessionResponse,
    SessionsQuery,
    StartBody,
    StartedResponse,
    to_boot_response,
    to_session_response,
)
from rookery.agents.sessions.boot import SessionBoot
from rookery.agents.sessions.errors import NoHandoffOffered, SessionActive, SessionEnded, SessionFull, SessionResumed
from rookery.agents.sessions.session_services import SessionServices
from rookery.kernel.errors import NotFound
from rookery.kernel.http import ItemPage, Operation, Output, store_created_id
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page

READ_SCOPE, WRITE_SCOPE = "sessions.read", "sessions.write"

_operation = partial(Operation, tags=("Sessions",))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedSession:
    """A session that has just started, and its context."""

    view: SessionView
    boot: SessionBoot


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionApi:
    """The operations on sessions. Each handler calls one service method, and loads what its response needs."""

    sessions: SessionServices

    def operations(self) -> list[Operation]:
        """Return the operations."""
        one = "/sessions/{session_id}"
        session = partial(_operation, present=_present_session, response_model=SessionResponse, etag=True)
        event = partial(_operation, path=f"{one}/events")
        start = partial(_operation, method="POST", present=_present_started, required_scope=WRITE_SCOPE, status=201, idempotent=True,
                        etag=True, response_model=StartedResponse, rebuild_response=self._load_started)  # fmt: skip
        return [
            _operation(method="GET", path="/sessions", handler=self.get_sessions, present=_present_session, required_scope=READ_SCOPE,
                       response_model=Page[SessionResponse], operation_id="list_sessions", summary="List sessions, newest first",
                       errors=(NotFound,), tools=(tools.SESSION_LIST,)),
            start(path="/sessions", handler=self.post_session, operation_id="start_session", summary="Start a session",
                  request_headers=("If-Match",), errors=(NotFound, PlanArchived, SessionActive),
                  tools=(tools.SESSION_START,)),
            session(method="GET", path=one, handler=self.get_session, required_scope=READ_SCOPE, operation_id="get_session",
                    summary="Show a session", tools=(tools.SESSION_SHOW,)),
            session(method="PATCH", path=one, handler=self.patch_session, required_scope=WRITE_SCOPE, operation_id="update_session",
                    summary="Change, pause or continue a session", errors=(NoHandoffOffered, SessionEnded, WrongTransition),
                    tools=(tools.SESSION_UPDATE,)),
            event(method="GET", handler=self.get_events, required_scope=READ_SCOPE, response_model=Page[SessionEventResponse],
                  operation_id="list_session_events", summary="List the events of a session", tools=(tools.SESSION_EVENTS,)),
            event(method="POST", handler=self.post_event, committed=SessionEvent, required_scope=WRITE_SCOPE, status=201,
                  idempotent=True, response_model=SessionEventResponse, operation_id="add_session_event",
                  summary="Add an event to a session", errors=(NoHandoffOffered, SessionEnded, SessionFull),
                  tools=(tools.SESSION_LOG, tools.SESSION_CHECKPOINT)),
            _operation(method="POST", path=f"{one}/heartbeat", handler=self.post_heartbeat, required_scope=WRITE_SCOPE,
                       rate_limited=False, response_model=HeartbeatResponse, operation_id="heartbeat_session",
                       summary="Keep a session alive", errors=(SessionEnded,), tools=(tools.SESSION_HEARTBEAT,),
                       allowed_on_full_disk=True, repeatable=True),
            session(method="POST", path=f"{one}/end", handler=self.post_end, required_scope=WRITE_SCOPE, idempotent=True,
                    body_optional=True, rebuild_response=self._load_view, operation_id="end_session", summary="End a session",
                    errors=(SessionEnded,), tools=(tools.SESSION_HANDOFF, tools.SESSION_END)),
            start(path=f"{one}/resume", handler=self.post_resume, body_optional=True, operation_id="resume_session",
                  summary="Start the successor of a session", errors=(PlanArchived, SessionActive, SessionResumed),
                  tools=(tools.SESSION_RESUME,)),
        ]  # fmt: skip

    async def get_sessions(self, caller: Caller, query: SessionsQuery) -> ItemPage[SessionView]:
        """List the sessions that the key has access to, newest first."""
        return ItemPage(*await self.sessions.records.list_page(caller, query.to_filter(), plan=query.plan, page=query.slice))

    async def post_session(self, caller: Caller, body: StartBody) -> StartedSession:
        """
        Start a session of an agent.

        `boot` in the response is the context of the agent: plan, phase, tasks, hand-off, checkpoint and memories.
        """
        store_created_id(AgentSession, lambda session: session.id)
        return await self._boot(caller, await self.sessions.starter.start(caller, body.to_model()))

    async def get_session(self, caller: Caller, session_id: str) -> SessionView:
        """Return one session."""
        return await self.sessions.records.get(caller, session_id)

    async def patch_session(self, caller: Caller, session_id: str, body: SessionPatch, expected: ExpectedETags) -> SessionView:
        """Change the goal or context of an open session, pause it, or continue it."""
        session = await self.sessions.records.change(caller, session_id, body.to_change(), expected=expected)
        return await self.sessions.records.load_view(session)

    async def get_events(self, caller: Caller, session_id: str, query: SessionEventsQuery) -> ItemPage[SessionEvent]:
        """List the events of a session, in the order of `seq`."""
        return ItemPage(
            *await self.sessions.records.list_events(caller, session_id, after=query.after, event_type=query.type, page=query.slice)
        )

    async def post_event(self, caller: Caller, session_id: str, body: EventBody, expected: ExpectedETags) -> SessionEvent:
        """Append an event to a session: a note, action, decision, checkpoint, question, answer, artifact or error."""
        return await self.sessions.records.append(caller, session_id, body.to_new_event(), expected=expected)

    async def post_heartbeat(self, caller: Caller, session_id: str, expected: ExpectedETags) -> AgentSession:
        """Record activity, so that the session is not marked as abandoned."""
        return await self.sessions.records.heartbeat(caller, session_id, expected=expected)

    async def post_end(self, caller: Caller, session_id: str, body: EndBody, expected: ExpectedETags) -> SessionView:
        """End a session as completed, failed or handed over. Ending it again in the same way changes nothing."""
        store_created_id(AgentSession, lambda session: session.id, status=200)
        session = await self.sessions.ender.end(caller, session_id, body.to_request(), expected=expected)
        return await self.sessions.records.load_view(session)

    async def post_resume(self, caller: Caller, session_id: str, body: ResumeBody, expected: ExpectedETags) -> StartedSession:
        """Start a session that continues an ended or paused one. `boot` in the response is the context of the agent."""
        store_created_id(AgentSession, lambda session: session.id)
        return await self._boot(caller, await self.sessions.starter.resume(caller, session_id, body.to_model(), expected=expected))

    async def _load_view(self, request: Request, session_id: str) -> SessionView:
        """Return the result of an end whose process exited before the response was stored."""
        return await self.sessions.records.get(get_caller(request), session_id)

    async def _load_started(self, request: Request, session_id: str) -> StartedSession:
        """Return the result of a start whose process exited before the response was stored."""
        caller = get_caller(request)
        return await self._boot(caller, (await self.sessions.records.get(caller, session_id)).session)

    async def _boot(self, caller: Caller, session: AgentSession) -> StartedSession:
        view, boot = await self.sessions.records.load_view(session), await self.sessions.boot_loader.load(caller, session)
        return StartedSession(view=view, boot=boot)


def _present_session(caller: Caller, view: SessionView) -> Output:
    return Output(body=to_session_response(caller, view), version=view.session.version)


def _present_started(caller: Caller, started: StartedSession) -> Output:
    body = StartedResponse.model_construct(session=to_session_response(caller, started.view), boot=to_boot_response(caller, started.boot))
    return Output(body=body, version=started.view.session.version)
