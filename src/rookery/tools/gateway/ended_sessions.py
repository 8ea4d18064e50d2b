"""
Requests that are running when their session ends.

A client may end its session while another request is under way, for example after it cancelled a call. The SDK then fails to pass the
message on, writes two tracebacks, and answers a second time. None of this is an error of the server.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import cast

import anyio
from starlette.types import Message, Send

_SESSION_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)
"""The errors of a message for a session that no longer reads any."""


async def serve_while_open(serve: Callable[[Send], Awaitable[None]], send: Send, *, has_ended: Callable[[], bool]) -> bool:
    """
    Run *serve* with a `send` that sends nothing more once the session has ended, except the rest of an answer that has begun.

    Returns:
        False if the session ended before the answer began.
    """
    has_begun, is_complete = False, False

    async def send_answer(message: Message) -> None:
        nonlocal has_begun, is_complete
        if message["type"] == "http.response.start":
            if has_begun or (message["status"] == HTTPStatus.INTERNAL_SERVER_ERROR and has_ended()):
                return
            has_begun = True
        elif is_complete or not has_begun:
            return
        else:
            is_complete = not message.get("more_body", False)
        await send(message)

    try:
        await serve(send_answer)
    except Exception as error:
        if not is_session_closed(error) or not has_ended():
            raise
    return has_begun or not has_ended()


def is_session_closed(error: BaseException | None) -> bool:
    """Return whether *error*, or each error of a group, is only due to the end of a session."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_session_closed(inner) for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, _SESSION_CLOSED)


class _EndedSessionFilter(logging.Filter):
    """Drops the tracebacks of messages for sessions that have ended."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or not is_session_closed(record.exc_info[1])


def drop_tracebacks() -> None:
    """Keep tracebacks of ended sessions out of the log."""
    logger = logging.getLogger("mcp.server.streamable_http")
    if not any(isinstance(item, _EndedSessionFilter) for item in logger.filters):
        logger.addFilter(_EndedSessionFilter())
