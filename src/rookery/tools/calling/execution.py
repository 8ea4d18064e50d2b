"""One call on its way to the upstream and back: a place, a session, a time limit, a second try where that is safe (D-32, D-34)."""

from __future__ import annotations

import asyncio
import contextlib
from fnmatch import fnmatchcase

from rookery.kernel.tracing import span
from rookery.tools.calling.asked import Asked
from rookery.tools.calling.results import Failed
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultTooLarge, UpstreamError
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import Asking, Connection, OnProgress
from rookery.tools.servers.headers import forwarded
from rookery.tools.supervision.supervised import Session

_MAX_S = 600.0
"""The longest call, progress or not (D-34)."""


async def execute(session: Session, asked: Asked, *, is_read_only: bool) -> JsonObject:
    """
    Return the protocol's whole result.

    Args:
        is_read_only: The tool changes nothing, so that a call whose fate is unknown may be made again.

    Raises:
        Failed: The tool failed, or could not be reached.
        ServerBusy: No place came free.
    """
    async with session.slot():
        result = await _answer(session, asked, is_read_only=is_read_only)
    session.proved()
    return result


async def _answer(session: Session, asked: Asked, *, is_read_only: bool) -> JsonObject:
    """Return the tool's result; asks again once what surely was not done, or what changes nothing (D-32)."""
    is_last = False
    while True:
        try:
            connection = await session.connection()
        except ConnectFailed as failed:
            raise Failed("server_unavailable", str(failed)) from failed
        try:
            return await _within_time(connection, asked)
        except Failed as failed:
            if failed.code == "tool_timeout":
                session.doubt()
            raise
        except ConnectionLost as lost:
            session.broken(connection)
            if is_last or (lost.was_handled and not is_read_only):
                raise Failed("server_unavailable", str(lost)) from lost
            is_last = True
        except ResultTooLarge as large:
            raise Failed("result_too_large", str(large)) from large
        except UpstreamError as error:
            raise Failed("tool_execution_error", str(error)) from error


async def _within_time(connection: Connection, asked: Asked) -> JsonObject:
    """Ask, and wait as long as the tool may take: anew with each notice of progress, ten minutes at most (D-34)."""
    server, name, on_progress = asked.server, asked.tool, asked.manner.on_progress
    limit_s = limit_of(server, name)
    loop = asyncio.get_running_loop()
    last = loop.time() + _MAX_S
    try:
        async with asyncio.timeout(limit_s) as clock:

            async def forward(done: float, total: float | None, message: str | None) -> None:
                with contextlib.suppress(RuntimeError):  # a notice that comes after the result
                    clock.reschedule(min(loop.time() + limit_s, last))
                if on_progress is not None:
                    await on_progress(done, total, message)

            with span("tool call", elsewhere=True, **{"rookery.server": server.id, "rookery.tool": name}):
                return await connection.ask("tools/call", _params(asked), _asking(asked, forward))
    except TimeoutError as error:
        raise Failed("tool_timeout", f"The tool did not finish, nor report progress, within {limit_s:g} s.") from error


def limit_of(server: Server, tool: str) -> float:
    """Return the seconds that a tool may take without a sign of progress: its own, or its server's."""
    own = next((limit for glob, limit in server.rules.timeouts_s.items() if fnmatchcase(tool, glob)), server.timeout_s)
    return min(own, _MAX_S)


def _params(asked: Asked) -> JsonObject:
    manner = asked.manner
    params: JsonObject = {"name": asked.tool, "arguments": dict(asked.arguments)}
    if manner.input_responses is not None:
        params["inputResponses"] = dict(manner.input_responses)
    if manner.request_state is not None:
        params["requestState"] = manner.request_state
    if manner.meta:
        params["_meta"] = manner.meta
    return params


def _asking(asked: Asked, on_progress: OnProgress) -> Asking:
    manner = asked.manner
    return Asking(
        caller=asked.caller,
        on_progress=on_progress,
        on_log=manner.on_log,
        on_request=manner.on_request,
        headers=forwarded(asked.server, manner.headers),
        capabilities=manner.capabilities,
    )
