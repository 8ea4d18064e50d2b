"""The operation that streams a session as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.agents.models.sessions import AgentSession
from rookery.agents.schemas.session_events import SessionStreamQuery, to_session_event_response
from rookery.agents.sessions.errors import TooManyStreams
from rookery.agents.sessions.stream import SessionStreams
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http import DocumentedResponse, EventStream, Operation, encode_event

READ_SCOPE = "sessions.read"

_STREAM_ENDED = DocumentedResponse(
    description="The session has ended and the client has received all events. A browser stops reconnecting."
)

_MAX_SEQ_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStreamApi:
    """The operation of the stream."""

    streams: SessionStreams

    def operations(self) -> list[Operation]:
        """Return the operation."""
        return [
            Operation(
                method="GET",
                path="/sessions/{session_id}/stream",
                handler=self.get_stream,
                required_scope=READ_SCOPE,
                operation_id="stream_session",
                summary="Follow a session",
                description="Server-sent events: one for each event of the session, with the type as its name and the seq as its id; "
                "`status` when the session is paused or continued; `end` when it has ended, after which the stream closes. "
                "To resume a stream, send the last id in `Last-Event-ID`.",
                tags=("Sessions",),
                errors=(TooManyStreams,),
                media_types=("text/event-stream",),
                request_headers=("Last-Event-ID",),
                responses={204: _STREAM_ENDED},
            )
        ]

    async def get_stream(self, caller: Caller, request: Request, session_id: str, query: SessionStreamQuery) -> Response:
        """Send past and new events. If the session has ended and the client has received all events, the response is 204."""
        after = _parse_last_event_id(request, query.after)
        session = await self.streams.open_session(caller, session_id)
        if not session.is_open and "last-event-id" in request.headers and after >= session.last_seq:
            return Response(status_code=204)
        return EventStream(self._iter_parts(caller, session, after))

    async def _iter_parts(self, caller: Caller, session: AgentSession, after: int) -> AsyncGenerator[bytes]:
        updates = self.streams.follow(caller, session, after=after, required_scope=READ_SCOPE)
        try:
            async for update in updates:
                for event in update.events:
                    response = to_session_event_response(event)
                    yield encode_event(event.type.value, response.__pydantic_serializer__.to_json(response), event_id=event.seq)
                if update.status is not None:
                    name = "end" if update.is_ended else "status"
                    yield encode_event(name, b'{"status":"' + update.status.value.encode() + b'"}')
        finally:
            await updates.aclose()


def _parse_last_event_id(request: Request, after: int) -> int:
    header = request.headers.get("last-event-id")
    if header is None or not header.strip():
        return after
    digits = header.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_SEQ_DIGITS):
        raise ValidationFailed(
            {
                "Last-Event-ID": [
                    f"must be the id of an event of the stream, a number of at most {_MAX_SEQ_DIGITS} digits; it is {header[:50]!r}"
                ]
            }
        )
    return int(digits)
