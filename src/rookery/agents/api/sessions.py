"""Agent sessions (D-62, D-65)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.agents.api.rows import require_unconditional, row
from rookery.agents.errors import PlanArchived, WrongTransition
from rookery.agents.models.sessions import Session, SessionEvent, Shown
from rookery.agents.schemas.boot import StartedAnswer, boot_answer
from rookery.agents.schemas.session_events import EventBody, EventsQuery, SessionEventAnswer, event_answer
from rookery.agents.schemas.sessions import (
    EndBody,
    HeartbeatAnswer,
    ResumeBody,
    SessionAnswer,
    SessionPatch,
    SessionsQuery,
    StartBody,
    heartbeat_answer,
    session_answer,
)
from rookery.agents.sessions.errors import NothingOffered, SessionActive, SessionEnded, SessionFull, SessionResumed
from rookery.agents.sessions.verbs import SessionServices
from rookery.kernel.errors import NotFound
from rookery.kernel.http import Route, allowed_on_full_disk, describe, page, record_made, reply, respond_with
from rookery.kernel.http.conditional_requests import by_etag, expected, tagged, with_etag
from rookery.kernel.http.pages import Page

READ, WRITE = "sessions.read", "sessions.write"
_route = partial(row, tag="Sessions")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRoutes:
    """Reads a request, calls one verb, shapes the answer. Decides nothing."""

    sessions: SessionServices

    def routes(self) -> list[Route]:
        """Return one row per endpoint."""
        one = "/sessions/{session_id}"
        return [
            _route("GET /sessions", self.get_sessions, READ, Page[SessionAnswer], "list_sessions", summary="List sessions, newest first"),
            _route(
                "POST /sessions",
                self.post_session,
                WRITE,
                StartedAnswer,
                "start_session",
                summary="Start a session",
                status=201,
                once=True,
                rebuild=self._started_again,
            ),
            _route(f"GET {one}", self.get_session, READ, SessionAnswer, "get_session", summary="Show a session"),
            _route(
                f"PATCH {one}", self.patch_session, WRITE, SessionAnswer, "update_session", summary="Change, pause or continue a session"
            ),
            _route(
                f"GET {one}/events",
                self.get_events,
                READ,
                Page[SessionEventAnswer],
                "list_session_events",
                summary="List the events of a session",
            ),
            _route(
                f"POST {one}/events",
                self.post_event,
                WRITE,
                SessionEventAnswer,
                "add_session_event",
                summary="Add an event to a session",
                status=201,
                once=True,
            ),
            _route(
                f"POST {one}/heartbeat",
                self.post_heartbeat,
                WRITE,
                HeartbeatAnswer,
                "heartbeat_session",
                summary="Keep a session alive",
                spends=False,
            ),
            _route(
                f"POST {one}/end",
                self.post_end,
                WRITE,
                SessionAnswer,
                "end_session",
                summary="End a session",
                once=True,
                rebuild=self._ended_again,
                may_be_empty=True,
            ),
            _route(
                f"POST {one}/resume",
                self.post_resume,
                WRITE,
                StartedAnswer,
                "resume_session",
                summary="Start the successor of a session",
                status=201,
                once=True,
                rebuild=self._started_again,
                may_be_empty=True,
            ),
        ]

    @describe(errors=(NotFound,))
    async def get_sessions(self, request: Request, query: Annotated[SessionsQuery, Query()]) -> Response:
        """List the sessions that the key may see, newest first."""
        caller = caller_of(request)
        found, total = await self.sessions.working.page(caller, query.wanted(), plan=query.plan, limit=query.per_page, offset=query.offset)
        return page(request, [session_answer(caller, each) for each in found], query=query, total=total)

    @with_etag
    @by_etag
    @describe(errors=(NotFound, PlanArchived, SessionActive))
    async def post_session(self, request: Request, body: StartBody) -> Response:
        """
        Start a session of an agent.

        `boot` in the answer has what the agent starts with: plan, phase, tasks, hand-off, checkpoint and memories.
        """
        require_unconditional(request)
        caller = caller_of(request)
        record_made(Session, lambda session: session.id)
        return await self._started(caller, await self.sessions.starting.start(caller, body.new()))

    @with_etag
    async def get_session(self, request: Request, session_id: str) -> Response:
        """Return one session."""
        caller = caller_of(request)
        return _answer(caller, await self.sessions.working.get(caller, session_id))

    @with_etag
    @by_etag
    @describe(errors=(NothingOffered, SessionEnded, WrongTransition))
    async def patch_session(self, request: Request, session_id: str, body: SessionPatch) -> Response:
        """Change the goal or context of an open session, pause it, or continue it."""
        caller = caller_of(request)
        changed = await self.sessions.working.change(caller, session_id, body.change(), expected=expected(request))
        return _answer(caller, await self.sessions.working.shown(changed))

    async def get_events(self, request: Request, session_id: str, query: Annotated[EventsQuery, Query()]) -> Response:
        """List the events of a session, in the order of `seq`."""
        found, total = await self.sessions.working.events(
            caller_of(request), session_id, after=query.after, kind=query.kind(), limit=query.per_page, offset=query.offset
        )
        return page(request, [event_answer(each) for each in found], query=query, total=total)

    @by_etag
    @describe(errors=(NothingOffered, SessionEnded, SessionFull))
    async def post_event(self, request: Request, session_id: str, body: EventBody) -> Response:
        """Append an event to a session: a note, action, decision, checkpoint, question, answer, artifact or error."""
        answer = respond_with(SessionEvent, lambda event: reply(event_answer(event), status=201))
        return answer(await self.sessions.working.append(caller_of(request), session_id, body.happening(), expected=expected(request)))

    @allowed_on_full_disk
    @by_etag
    @describe(errors=(SessionEnded,))
    async def post_heartbeat(self, request: Request, session_id: str) -> Response:
        """Record activity, so that the session is not marked as abandoned."""
        return reply(heartbeat_answer(await self.sessions.working.heartbeat(caller_of(request), session_id, expected=expected(request))))

    @with_etag
    @by_etag
    @describe(errors=(SessionEnded,))
    async def post_end(self, request: Request, session_id: str, body: EndBody) -> Response:
        """End a session as completed, failed or handed over. Ending it again in the same way changes nothing."""
        caller = caller_of(request)
        record_made(Session, lambda session: session.id, status=200)
        ended = await self.sessions.endings.end(caller, session_id, body.ending(), expected=expected(request))
        return _answer(caller, await self.sessions.working.shown(ended))

    async def _ended_again(self, request: Request, session_id: str) -> Response:
        """Return the answer to an end whose process died before the answer was stored."""
        caller = caller_of(request)
        return _answer(caller, await self.sessions.working.get(caller, session_id))

    @with_etag
    @by_etag
    @describe(errors=(PlanArchived, SessionActive, SessionResumed))
    async def post_resume(self, request: Request, session_id: str, body: ResumeBody) -> Response:
        """Start a session that continues an ended one. `boot` in the answer has what the agent starts with."""
        caller = caller_of(request)
        record_made(Session, lambda session: session.id)
        return await self._started(
            caller, await self.sessions.starting.resume(caller, session_id, body.resumption(), expected=expected(request))
        )

    async def _started_again(self, request: Request, session_id: str) -> Response:
        """Return the answer to a start whose process died before it was stored."""
        caller = caller_of(request)
        return await self._started(caller, (await self.sessions.working.get(caller, session_id)).session)

    async def _started(self, caller: Caller, session: Session) -> Response:
        shown, boot = await self.sessions.working.shown(session), await self.sessions.booting.boot(caller, session)
        answer = StartedAnswer.model_construct(session=session_answer(caller, shown), boot=boot_answer(caller, boot))
        return tagged(answer, session.version, status=201)


def _answer(caller: Caller, shown: Shown) -> Response:
    return tagged(session_answer(caller, shown), shown.session.version)
