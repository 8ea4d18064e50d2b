"""Run one tool: may this key, do the arguments fit, ask the upstream, keep a row, answer (D-34, D-38)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import cast

import orjson

from rookery.access.models import TEST, Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import PermissionDenied, RookeryError
from rookery.kernel.events import Bus, ToolCalled
from rookery.kernel.ids import Ids, uuid7
from rookery.kernel.tracing import span
from rookery.tools.catalogue import Catalogue, Tool, is_off, reaches
from rookery.tools.errors import (
    ConnectFailed,
    ConnectionLost,
    Disabled,
    ResultTooLarge,
    ServerBusy,
    TestKeyRefused,
    ToolNotFound,
    UpstreamError,
)
from rookery.tools.models import CallRow, FailureCode, JsonObject, Outcome, Server
from rookery.tools.ports import Asking, Connection, OnProgress, ToolLimits
from rookery.tools.sessions import Sessions
from rookery.tools.store import calls as store
from rookery.tools.supervised import Session

MAX_RESULT = 10 * 1024 * 1024
"""D-34."""

_MAX_S = 600.0
"""The longest call, progress or not (D-34)."""
_QUEUE_S = 30.0
"""How long a call may wait in line for a place."""
_MAX_ERROR = 4000
_OF_THE_PROTOCOL = frozenset({"resultType", "_meta"})
"""Fields of the wire, not of the tool; _meta would name the upstream's software."""


class _Failed(Exception):
    """The call came to a failure of the tool."""

    def __init__(self, code: FailureCode, error: str, result: bytes | None = None) -> None:
        super().__init__(error)
        self.code: FailureCode = code
        self.error = error
        self.result = result


@dataclass(frozen=True, slots=True)
class _Asked:
    """One call as it was asked for."""

    caller: Caller
    server: Server
    tool: str
    arguments: Mapping[str, object]
    session_id: str | None
    on_progress: OnProgress | None
    at: datetime
    started: float

    def elapsed_ms(self) -> float:
        return (time.perf_counter() - self.started) * 1000


class Calls:
    """Runs tools for callers."""

    def __init__(
        self,
        db: Database,
        catalogue: Catalogue,
        sessions: Sessions,
        limits: ToolLimits,
        *,
        bus: Bus | None = None,
        clock: Clock = utc_now,
        ids: Ids = uuid7,
    ) -> None:
        self._db = db
        self._catalogue = catalogue
        self._sessions = sessions
        self._limits = limits
        self._bus = bus or Bus()
        self._clock = clock
        self._ids = ids

    async def call(
        self,
        caller: Caller,
        server_id: str,
        tool_name: str,
        arguments: Mapping[str, object],
        *,
        session_id: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> Outcome:
        """
        Run a tool as *caller*; the row of the call is on the disk when this returns or raises.

        A caller that is cancelled cancels the tool upstream. What the tool itself did wrong is in the outcome.

        Raises:
            RookeryError: The call was refused: no such server or tool (404), not for this key (403), arguments that do
                not fit (400), too many calls (429). A tool that is not known to exist leaves no row.
        """
        server = self._catalogue.server(caller, server_id)
        asked = _Asked(caller, server, tool_name, arguments, session_id, on_progress, self._clock(), time.perf_counter())
        try:
            outcome = await self._outcome(asked)
        except (RookeryError, asyncio.CancelledError) as error:
            if self._catalogue.tool(server, tool_name) is not None:
                await self._keep(asked, code=error.code if isinstance(error, RookeryError) else "client_left")
            raise
        await self._keep(asked, code=outcome.code, result_bytes=len(outcome.result or b""))
        return outcome

    async def _outcome(self, asked: _Asked) -> Outcome:
        try:
            tool = self._catalogue.tool(asked.server, asked.tool) or await self._found(asked)
            _must_be_allowed(asked, tool)
            tool.arguments.check(asked.arguments)
            await self._limits.spend_tool_limit(asked.caller, asked.server.id, tool.name)
            result = await self._run(asked, tool)
        except _Failed as failed:
            return Outcome(
                server=asked.server,
                tool=asked.tool,
                duration_ms=asked.elapsed_ms(),
                result=failed.result,
                error=failed.error[:_MAX_ERROR],
                code=failed.code,
            )
        return Outcome(server=asked.server, tool=asked.tool, duration_ms=asked.elapsed_ms(), result=result)

    async def _keep(self, asked: _Asked, *, code: str | None, result_bytes: int = 0) -> None:
        caller = asked.caller
        row = CallRow(
            id=self._ids(),
            workspace_id=caller.workspace_id,
            server_id=asked.server.id,
            tool=asked.tool,
            key_id=caller.key_id,
            key_kind=caller.key_kind,
            agent_id=caller.agent_id,
            session_id=asked.session_id,
            success=code is None,
            code=code,
            duration_ms=asked.elapsed_ms(),
            arguments_bytes=len(_json(dict(asked.arguments))),
            result_bytes=result_bytes,
            request_id=caller.request_id,
            called_at=asked.at,
        )
        called = ToolCalled(
            workspace_id=row.workspace_id,
            server=row.server_id,
            tool=row.tool,
            success=row.success,
            code=code,
            duration_ms=round(row.duration_ms),
            at=row.called_at,
        )

        def keep(tx: Tx) -> None:
            store.add_call(tx, row)
            tx.after_commit(lambda: self._bus.publish(called))

        await self._db.write(keep)

    async def _found(self, asked: _Asked) -> Tool:
        """Return a tool that is not listed: of a server never seen before, or one that came since the last look."""
        server, name = asked.server, asked.tool
        if server.fault is not None:
            raise _Failed("server_unavailable", server.fault)
        if not self._catalogue.is_known(server):
            try:
                await self._sessions.session(server, asked.caller, asked.session_id).connection()
            except ConnectFailed as failed:
                raise _Failed("server_unavailable", str(failed)) from failed
        await self._catalogue.look_again(server)
        tool = self._catalogue.tool(server, name)
        if tool is not None:
            return tool
        if not self._catalogue.is_known(server):
            reason = self._sessions.condition(server).last_error or "The server does not tell what tools it has."
            raise _Failed("server_unavailable", reason)
        _must_reach(asked)
        raise ToolNotFound(server.id, name)

    async def _run(self, asked: _Asked, tool: Tool) -> bytes:
        server = asked.server
        if server.fault is not None:
            raise _Failed("server_unavailable", server.fault)
        session = self._sessions.session(server, asked.caller, asked.session_id)
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_QUEUE_S):
                    await stack.enter_async_context(session.slot())
            except TimeoutError:
                raise ServerBusy(server.id) from None
            result = await _answer(session, asked, tool)
        session.proved()
        return _checked(result)


async def _answer(session: Session, asked: _Asked, tool: Tool) -> JsonObject:
    """Return the tool's result; asks again once what surely was not done, or what changes nothing (D-32)."""
    is_last = False
    while True:
        try:
            connection = await session.connection()
        except ConnectFailed as failed:
            raise _Failed("server_unavailable", str(failed)) from failed
        try:
            return await _within_time(connection, asked)
        except ConnectionLost as lost:
            session.broken(connection)
            if is_last or (lost.was_handled and not tool.is_read_only):
                raise _Failed("server_unavailable", str(lost)) from lost
            is_last = True
        except ResultTooLarge as large:
            raise _Failed("result_too_large", str(large)) from large
        except UpstreamError as error:
            raise _Failed("tool_execution_error", str(error) or "The tool failed without a word.") from error


async def _within_time(connection: Connection, asked: _Asked) -> JsonObject:
    """Ask, and wait as long as the tool may take: anew with each notice of progress, ten minutes at most (D-34)."""
    server, name, on_progress = asked.server, asked.tool, asked.on_progress
    limit_s = next((limit for glob, limit in server.rules.timeouts_s.items() if fnmatchcase(name, glob)), server.timeout_s)
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
                asking = Asking(caller=asked.caller, on_progress=forward)
                return await connection.ask("tools/call", {"name": name, "arguments": dict(asked.arguments)}, asking)
    except TimeoutError as error:
        raise _Failed("tool_timeout", f"The tool did not finish, nor report progress, within {limit_s:g} s.") from error


def _checked(result: JsonObject) -> bytes:
    """Return the result as JSON if it is a success."""
    if result.get("resultType", "complete") != "complete":
        raise _Failed("tool_execution_error", "The tool asks for input, which this endpoint cannot give.")
    shown = {name: value for name, value in result.items() if name not in _OF_THE_PROTOCOL}
    shown.setdefault("content", list[object]())
    shown.setdefault("isError", False)
    content = _json(shown)
    if len(content) > MAX_RESULT:
        raise _Failed("result_too_large", "The result is larger than 10 MiB.")
    if shown["isError"] is True:
        raise _Failed("tool_execution_error", _first_text(shown) or "The tool failed without a word.", content)
    return content


def _first_text(result: JsonObject) -> str:
    content = result["content"]
    for block in cast("list[object]", content if isinstance(content, list) else []):
        if isinstance(block, dict):
            text = cast("dict[str, object]", block).get("text")
            if isinstance(text, str) and text:
                return text
    return ""


def _json(value: JsonObject) -> bytes:
    """Return *value* as JSON; what orjson does not take (integers past 64 bits, lone surrogates) the slower way."""
    try:
        return orjson.dumps(value)
    except TypeError:
        try:
            return json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise _Failed("tool_execution_error", f"The result is no JSON: {error}") from error


def _must_reach(asked: _Asked) -> None:
    if not reaches(asked.caller, asked.server, asked.tool):
        name = f"{asked.server.id}/{asked.tool}"
        raise PermissionDenied(name, f"This key does not reach {name}.")


def _must_be_allowed(asked: _Asked, tool: Tool) -> None:
    """Raise the first reason why this key may not call *tool* (D-23, D-33, D-92, D-25)."""
    _must_reach(asked)
    server = asked.server
    if is_off(server, tool.name):
        raise Disabled(f"The tool {tool.name!r} of {server.id!r} is switched off.")
    if tool.needs is not None:
        asked.caller.must(tool.needs)
    if asked.caller.environment == TEST and not server.sandbox and not tool.is_read_only:
        raise TestKeyRefused(f"A test key may not call {server.id}/{tool.name}: neither is it read-only, nor its server a sandbox.")
