"""The sessions of agents: the list, and the page of one with its timeline."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal, cast, get_args

from starlette.responses import Response

from rookery.console.arguments import choose
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

SessionStatus = Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"]
EndStatus = Literal["completed", "failed", "handed_off"]

STATUSES: tuple[SessionStatus, ...] = get_args(SessionStatus)
OPEN_STATUSES = frozenset({"active", "paused"})


async def list_sessions(visit: Visit) -> Response:
    """Show the sessions of the workspace, newest first."""
    filters = {name: visit.query(name) for name in ("status", "agent_id", "plan", "project")}
    page, problem = None, ""
    try:
        page = await visit.client.sessions.list_sessions(
            page=visit.page_number,
            per_page=PER_PAGE,
            status=choose(filters["status"], STATUSES),
            agent_id=filters["agent_id"] or UNSET,
            plan=filters["plan"] or UNSET,
            project=filters["project"] or UNSET,
        )
    except ApiError as error:
        # A filter by a plan that does not exist is a 404 of the API.
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        problem = error.message
    return visit.render(
        "sessions/list.html",
        filters=filters,
        sessions=page.items if page else [],
        links=PageLinks.of(visit, page) if page else None,
        problem=problem,
        statuses=[(name, name.replace("_", " ")) for name in STATUSES],
    )


async def show_session(visit: Visit) -> Response:
    """Show a session with its events, newest first. The first page of an open session follows its stream."""
    return await _render(visit)


async def _render(visit: Visit, *, problem: str = "", status: int = 200) -> Response:
    session = await visit.client.sessions.get_session(visit.path("session_id"))
    # Events are numbered without gaps, so that their number is the seq of the newest one.
    total, number = session.stats.events, visit.page_number
    last = max(0, total - (number - 1) * PER_PAGE)
    first = max(0, last - PER_PAGE)
    events: list[models.SessionEvent] = []
    if last:
        page = await visit.client.sessions.list_session_events(session.id, after=first, per_page=last - first)
        events = page.items[::-1]
    return visit.render(
        "sessions/session.html",
        session=session,
        events=events,
        links=PageLinks.at(visit, number, total),
        is_open=session.status in OPEN_STATUSES,
        is_live=session.status in OPEN_STATUSES and number == 1,
        last_seq=total,
        problem=problem,
        status=status,
    )


async def change_status(visit: Visit) -> Response:
    """Pause, continue or end a session."""
    form, session_id = await visit.form(), visit.path("session_id")
    status = form.get("status")
    try:
        if status in {"active", "paused"}:
            await visit.client.sessions.update_session(session_id, status=cast("Literal['active', 'paused']", status))
        else:
            await visit.client.sessions.end_session(
                session_id, status=cast("EndStatus", status), summary=form.get("summary") or UNSET, handoff=form.get("handoff") or UNSET
            )
    except ApiError as error:
        if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        return await _render(visit, problem=error.message, status=error.status)
    return visit.redirect(f"sessions/{session_id}", done="saved" if status in {"active", "paused"} else "stopped")


async def resume(visit: Visit) -> Response:
    """Start the successor of an ended session, and show it."""
    session_id = visit.path("session_id")
    try:
        started = await visit.client.sessions.resume_session(session_id)
    except ApiError as error:
        if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}:
            raise
        return await _render(visit, problem=error.message, status=error.status)
    return visit.redirect(f"sessions/{started.session.id}", done="started")


VIEWS = (
    View("GET", "/sessions", list_sessions, "sessions.read"),
    View("GET", "/sessions/{session_id}", show_session, "sessions.read"),
    View("POST", "/sessions/{session_id}/status", change_status, "sessions.write"),
    View("POST", "/sessions/{session_id}/resume", resume, "sessions.write"),
)
