"""The stream of a session's page: each event as a piece of HTML, while the session is open."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import cast

from starlette.responses import Response

from rookery.console.visit import View, Visit
from rookery.kernel.http.event_stream import EventStream
from rookery_client import ApiError
from rookery_client.generated import models

_BUSY_RETRY_MS = 15_000
_MAX_SEQ_DIGITS = 15
_LINE_END = re.compile("\r\n|\r|\n")


async def stream(visit: Visit) -> Response:
    """
    Send the events of a session after the one that the browser has, until the session ends or the browser disconnects.

    Raises:
        ApiError: The session does not exist.
    """
    session = await visit.client.sessions.get_session(visit.path("session_id"))
    after = _read_seq(visit.request.headers.get("last-event-id", "")) or _read_seq(visit.query("after"))
    return EventStream(_iter_parts(visit, session.id, after))


async def _iter_parts(visit: Visit, session_id: str, after: int) -> AsyncGenerator[bytes]:
    try:
        async with visit.client.sessions.stream_session(session_id, after=after) as source:
            async for event in source:
                data = cast("dict[str, object]", json.loads(event.data))
                if event.event in {"status", "end"}:
                    yield _encode(_render(visit, "sessions/live_status.html", session_status=data["status"]))
                else:
                    html = _render(visit, "sessions/live_event.html", event=models.SessionEvent.model_validate(data))
                    yield _encode(html, event_id=event.id)
                if event.event == "end":
                    yield b"event: end\ndata:\n\n"
                    return
    except ApiError:
        # Too many streams, or the server is stopping. The browser tries again later.
        yield b"retry: %d\nevent: unavailable\ndata:\n\n" % _BUSY_RETRY_MS


def _render(visit: Visit, template: str, **content: object) -> str:
    return bytes(visit.render(template, status=200, **content).body).decode()


def _encode(html: str, *, event_id: str | None = None) -> bytes:
    """Return a message without a name, which htmx inserts into the page."""
    lines = [] if event_id is None else [f"id: {event_id}"]
    lines += [f"data: {line}" for line in _LINE_END.split(html)]
    return ("\n".join(lines) + "\n\n").encode()


def _read_seq(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_SEQ_DIGITS else 0


VIEWS = (View("GET", "/sessions/{session_id}/stream", stream, "sessions.read"),)
