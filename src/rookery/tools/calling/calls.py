"""Run one tool: may this key, do the arguments fit, is a result kept, ask the upstream, keep a row, answer (D-34, D-38)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from rookery.access.models import TEST, Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.disk_space import DiskSpace
from rookery.kernel.errors import NotInList, RookeryError
from rookery.kernel.ids import Ids, uuid7
from rookery.tools.calling.asked import PLAINLY, Asked, Manner
from rookery.tools.calling.caching import Cache, Kept, may_be_kept
from rookery.tools.calling.execution import execute
from rookery.tools.calling.journal import Journal
from rookery.tools.calling.keeping import kept_arguments, kept_error, kept_text
from rookery.tools.calling.results import Failed, Result, as_json, read_result
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import ConnectFailed, Disabled, ServerNotFound, SessionNotOpen, TestKeyRefused, ToolNotFound, UpstreamRefused
from rookery.tools.models import BuiltIn, CallRow, JsonObject, Outcome, ProtocolError
from rookery.tools.ports import AgentSessions, ToolLimits
from rookery.tools.servers.brakes import Brakes
from rookery.tools.servers.roster import is_reached
from rookery.tools.supervision.sessions import Sessions
from rookery.tools.tool import Tool, is_off, reaches

_MAX_ERROR = 4000
_MAX_NAME = 128
"""Of a tool (D-30); what is longer and not listed is not worth asking a server for."""
_MAX_SESSION_ID = 100


class Calls:
    """Runs tools for callers."""

    def __init__(
        self,
        catalogue: Catalogue,
        sessions: Sessions,
        journal: Journal,
        limits: ToolLimits,
        *,
        cache: Cache | None = None,
        agent_sessions: AgentSessions | None = None,
        brakes: Brakes | None = None,
        keep_arguments: bool = False,
        disk_space: DiskSpace | None = None,
        clock: Clock = utc_now,
        ids: Ids = uuid7,
    ) -> None:
        """
        Make it.

        Args:
            agent_sessions: None: any session id is taken, and kept with the row.
            keep_arguments: Rows have the arguments too, redacted.
            disk_space: Refuses the built-in tools that write while the disk is nearly full (D-17).
        """
        self._catalogue = catalogue
        self._sessions = sessions
        self._journal = journal
        self._limits = limits
        self._cache = cache or Cache()
        self._agent_sessions = agent_sessions
        self._brakes = brakes
        self._keep_arguments = keep_arguments
        self._disk_space = disk_space
        self._clock = clock
        self._ids = ids

    async def call(
        self,
        caller: Caller,
        server_id: str,
        tool_name: str,
        arguments: Mapping[str, object],
        *,
        manner: Manner = PLAINLY,
    ) -> Outcome:
        """
        Run a tool as *caller*; the row of the call is in the journal when this returns or raises.

        A caller that is cancelled cancels the tool upstream. What the tool itself did wrong is in the outcome.

        Raises:
            RookeryError: The call was refused: no such server or tool (404), not for this key (403), arguments that do
                not fit (400), no such session (422), too many calls (429). A tool that is not known to exist leaves no row.
        """
        server = self._catalogue.named(caller, server_id)
        if server is None:
            raise ServerNotFound(server_id)
        asked = Asked(
            caller=caller,
            server=server,
            tool=tool_name,
            arguments=arguments,
            manner=manner,
            at=self._clock(),
            started=time.perf_counter(),
        )
        await self._journal.must_have_room()
        try:
            self._catalogue.server(caller, server_id)  # or it is not for this key, or switched off
            outcome = await self._outcome(asked)
        except BaseException as error:
            if self._catalogue.tool(server, tool_name) is not None:
                self._keep(asked, code=_code_of(error))
            raise
        self._keep(asked, outcome, code=outcome.code)
        return outcome

    async def _outcome(self, asked: Asked) -> Outcome:
        try:
            if self._brakes is not None:
                await self._brakes.must_be_free(asked.caller, asked.server.id, asked.tool)
            tool = self._catalogue.tool(asked.server, asked.tool) or await self._found(asked)
            _must_be_allowed(asked, tool)
            if self._disk_space is not None and isinstance(asked.server.target, BuiltIn) and not (tool.is_read_only or tool.is_destructive):
                self._disk_space.require()
            await self._must_be_of_a_session(asked)
            tool.arguments.check(asked.arguments)
            await self._limits.spend_tool_limit(asked.caller, asked.server.id, tool.name)
            if not may_be_kept(asked, tool):
                return _done(asked, await self._run(asked, tool), None)
            kept = await self._cache.result(asked, tool, lambda: self._run(asked, tool))
            return _done(asked, kept.result, kept)
        except Failed as failed:
            return Outcome(
                server=asked.server,
                tool=asked.tool,
                duration_ms=asked.elapsed_ms(),
                result=failed.result,
                error=failed.error[:_MAX_ERROR],
                code=failed.code,
                refused=_refused(failed),
            )

    async def _run(self, asked: Asked, tool: Tool) -> Result:
        server = asked.server
        if server.fault is not None:
            raise Failed("server_unavailable", server.fault)
        session = self._sessions.session(server, asked.caller, asked.manner.session_id)
        on_request, was_asked = asked.manner.on_request, False

        async def answer(method: str, params: JsonObject) -> JsonObject:
            nonlocal was_asked
            was_asked = True
            assert on_request is not None  # noqa: S101 - or nobody is asked
            return await on_request(method, params)

        told = asked if on_request is None else replace(asked, manner=replace(asked.manner, on_request=answer))
        result = read_result(await execute(session, told, is_read_only=tool.is_read_only))
        return replace(result, is_personal=True) if was_asked else result

    async def _found(self, asked: Asked) -> Tool:
        """Return a tool that is not listed: of a server never seen before, or one that came since the last look."""
        server, name = asked.server, asked.tool
        if len(name) > _MAX_NAME:
            raise ToolNotFound(server.id, name[:_MAX_NAME])
        if server.fault is not None:
            raise Failed("server_unavailable", server.fault)
        if not self._catalogue.is_known(server):
            try:
                await self._sessions.session(server, asked.caller, asked.manner.session_id).connection()
            except ConnectFailed as failed:
                raise Failed("server_unavailable", str(failed)) from failed
        await self._catalogue.look_again(server)
        tool = self._catalogue.tool(server, name)
        if tool is not None:
            return tool
        if not self._catalogue.is_known(server):
            condition = self._sessions.condition(server, asked.caller.workspace_id)
            raise Failed("server_unavailable", condition.last_error or "The server does not tell what tools it has.")
        _must_reach(asked)
        raise ToolNotFound(server.id, name)

    async def _must_be_of_a_session(self, asked: Asked) -> None:
        session_id = asked.manner.session_id
        if session_id is None:
            return
        if len(session_id) > _MAX_SESSION_ID or "\x00" in session_id:
            raise SessionNotOpen(session_id)
        if self._agent_sessions is not None and not await self._agent_sessions.is_open(asked.caller.workspace_id, session_id):
            raise SessionNotOpen(session_id)

    def _keep(self, asked: Asked, outcome: Outcome | None = None, *, code: str | None) -> None:
        caller, arguments = asked.caller, dict(asked.arguments)
        session_id, error = asked.manner.session_id, outcome.error if outcome is not None else None
        self._journal.note(
            CallRow(
                id=self._ids(),
                workspace_id=caller.workspace_id,
                server_id=asked.server.id,
                tool=asked.tool,
                key_id=caller.key_id,
                key_kind=caller.key_kind,
                agent_id=caller.agent_id,
                session_id=None if session_id is None else kept_text(session_id, _MAX_SESSION_ID),
                success=code is None,
                code=code,
                duration_ms=asked.elapsed_ms(),
                arguments_bytes=len(as_json(arguments)),
                result_bytes=0 if outcome is None or outcome.result is None else len(outcome.result),
                request_id=caller.request_id,
                called_at=asked.at,
                cached=outcome is not None and outcome.cache == "hit",
                error=None if error is None else kept_error(error),
                # What the built-in servers take is kept where it belongs, and forgotten there; a copy here would outlive it.
                arguments=kept_arguments(arguments) if self._keep_arguments and asked.server.kind != "builtin" else None,
            )
        )


def _code_of(error: BaseException) -> str:
    if isinstance(error, RookeryError):
        return error.code
    return "client_left" if isinstance(error, asyncio.CancelledError) else "internal_error"


def _refused(failed: Failed) -> ProtocolError | None:
    cause = failed.__cause__
    return ProtocolError(number=cause.number, message=str(cause), data=cause.data) if isinstance(cause, UpstreamRefused) else None


def _done(asked: Asked, result: Result, kept: Kept | None) -> Outcome:
    return Outcome(
        server=asked.server,
        tool=asked.tool,
        duration_ms=asked.elapsed_ms(),
        result=result.content,
        code="input_required" if result.asks else None,
        cache=None if kept is None else "hit" if kept.was_there else "miss",
        age_s=0.0 if kept is None else kept.age_s,
    )


def _must_reach(asked: Asked) -> None:
    if not reaches(asked.caller, asked.server, asked.tool):
        name = f"{asked.server.id}/{asked.tool}"
        if not is_reached(asked.caller, asked.server.id):
            raise NotInList("servers", asked.server.id, f"This key is limited to some servers; {asked.server.id!r} is not one of them.")
        raise NotInList("tools", name, f"This key is limited to some tools; {name!r} is not one of them.")


def _must_be_allowed(asked: Asked, tool: Tool) -> None:
    """Raise the first reason why this key may not call *tool* (D-23, D-33, D-92, D-25)."""
    _must_reach(asked)
    server = asked.server
    if is_off(server, tool.name):
        raise Disabled(f"The tool {tool.name!r} of {server.id!r} is switched off.")
    if tool.needs_task:
        raise Disabled(f"{server.id}/{tool.name} runs only as a task (execution.taskSupport is required), which Rookery does not support.")
    if tool.needs is not None:
        asked.caller.must(tool.needs)
    if asked.caller.environment == TEST and not server.sandbox and not tool.is_read_only:
        raise TestKeyRefused(f"A test key may not call {server.id}/{tool.name}: neither is it read-only, nor its server a sandbox.")
