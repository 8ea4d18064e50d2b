"""Following a session as server-sent events (D-62)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.agents.models.sessions import Session
from rookery.agents.schemas.session_events import StreamQuery, event_answer
from rookery.agents.sessions.errors import TooManyStreams
from rookery.agents.sessions.following import Following
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http import Described, EventStream, Route, describe, event

READ = "sessions.read"

_OVER = Described(says="The session is over, and a browser that comes back has seen all of it: it stops asking.")

_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRoutes:
    """Reads a request, follows, shapes each part. Decides nothing."""

    following: Following

    def routes(self) -> list[Route]:
        """Return the one row."""
        return [
            Route(
                method="GET",
                path="/sessions/{session_id}/stream",
                handler=self.get_stream,
                needs=READ,
                operation_id="stream_session",
                summary="Follow a session",
                description="Server-sent events: one for each event of the session, named after its type and numbered by its seq; "
                "`status` when the session is paused or goes on; `end` when it has ended, after which the stream closes. "
                "A client that comes back says with `Last-Event-ID` what it has seen.",
                tags=("Sessions",),
            )
        ]

    @describe(media=("text/event-stream",), reads=("Last-Event-ID",), answers={204: _OVER}, errors=(TooManyStreams,))
    async def get_stream(self, request: Request, session_id: str, query: Annotated[StreamQuery, Query()]) -> Response:
        """Send what happened and what happens; 204 to a browser that comes back to a session that is over."""
        caller = caller_of(request)
        after = _last_seen(request, query.after)
        session = await self.following.session(caller, session_id)
        if not session.is_open and "last-event-id" in request.headers and after >= session.last_seq:
            return Response(status_code=204)
        return EventStream(self._parts(caller, session, after))

    async def _parts(self, caller: Caller, session: Session, after: int) -> AsyncGenerator[bytes]:
        followed = self.following.follow(caller, session, after=after, needs=READ)
        try:
            async for news in followed:
                for each in news.events:
                    answer = event_answer(each)
                    yield event(each.type.value, answer.__pydantic_serializer__.to_json(answer), number=each.seq)
                if news.status is not None:
                    name = "end" if news.is_over else "status"
                    yield event(name, b'{"status":"' + news.status.value.encode() + b'"}')
        finally:
            await followed.aclose()


def _last_seen(request: Request, after: int) -> int:
    header = request.headers.get("last-event-id")
    if header is None or not header.strip():
        return after
    digits = header.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise ValidationFailed({"Last-Event-ID": [f"must be the id of an event of the stream, a number; it is {header[:50]!r}"]})
    return int(digits)
