"""The pipeline of one call: access checks, validation, cache, execution and record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace

from rookery.access.models import TEST, Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.errors import NotInAllowList, RookeryError
from rookery.kernel.ids import IdFactory, uuid7
from rookery.kernel.workspace_shares import MAX_WAITING_HOLD_S, WorkspaceShares
from rookery.tools.call_options import DEFAULT_CALL_OPTIONS, CallOptions
from rookery.tools.calling.call_buffer import CallBuffer, redact_arguments, redact_error, redact_text
from rookery.tools.calling.execution import execute
from rookery.tools.calling.result_cache import CacheLookup, ResultCache, is_cacheable
from rookery.tools.calling.results import ToolCallFailed, ToolResult, parse_result, to_json
from rookery.tools.calling.tool_call import ToolCall
from rookery.tools.catalogue import Catalogue
from rookery.tools.catalogue_tool import TASK_REASON, CatalogueTool, is_tool_allowed, is_tool_disabled
from rookery.tools.errors import (
    ConnectFailed,
    ServerNotFound,
    SessionNotOpen,
    TestKeyRefused,
    ToolDisabled,
    ToolNotFound,
    UpstreamErrorResponse,
)
from rookery.tools.models import BuiltinTarget, CallOutcome, CallRecord, JsonObject, UpstreamProtocolError
from rookery.tools.ports import AgentSessionChecker, ToolCallLimiter
from rookery.tools.recent_links import RecentLinks
from rookery.tools.servers.kill_switch import KillSwitch
from rookery.tools.servers.registry import require_server_allowed
from rookery.tools.supervision.session_pool import SessionPool

_MAX_ERROR_LENGTH = 4000
_MAX_TOOL_NAME_LENGTH = 128
"""Limit on a tool's name. Longer unlisted names are rejected without an upstream request."""
_MAX_SESSION_ID_LENGTH = 100


class ToolRunner:
    """Runs tools for callers."""

    def __init__(
        self,
        catalogue: Catalogue,
        sessions: SessionPool,
        buffer: CallBuffer,
        limits: ToolCallLimiter,
        links: RecentLinks,
        *,
        cache: ResultCache | None = None,
        agent_sessions: AgentSessionChecker | None = None,
        kill_switch: KillSwitch | None = None,
        keep_arguments: bool = False,
        disk_space: DiskSpace | None = None,
        shares: WorkspaceShares | None = None,
        clock: Clock = utc_now,
        ids: IdFactory = uuid7,
    ) -> None:
        """
        Create the runner.

        Args:
            links: Remembers the links of results, which `ResourceReader` reads.
            agent_sessions: None: every session id is accepted and recorded.
            keep_arguments: Store redacted arguments in call records.
            disk_space: Rejects built-in tools that write while the disk is nearly full.
            shares: The shares of workspaces in the cores.
        """
        self._catalogue = catalogue
        self._sessions = sessions
        self._buffer = buffer
        self._limits = limits
        self._cache = cache or ResultCache()
        self._agent_sessions = agent_sessions
        self._kill_switch = kill_switch
        self._keep_arguments = keep_arguments
        self._disk_space = disk_space
        self._shares = shares or WorkspaceShares()
        self._links = links
        self._clock = clock
        self._ids = ids

    async def call(
        self,
        caller: Caller,
        server_id: str,
        tool_name: str,
        arguments: Mapping[str, object],
        *,
        options: CallOptions = DEFAULT_CALL_OPTIONS,
    ) -> CallOutcome:
        """
        Run a tool as *caller*. The call record is in the buffer when this method returns or raises.

        If the caller is cancelled, the upstream call is cancelled too. A failure of the tool is in the outcome.

        Raises:
            RookeryError: The call was rejected: unknown server or tool (404), not allowed for this key (403), invalid arguments
                (400), unknown session (422), too many calls (429). A call of an unknown tool leaves no record.
        """
        server = self._catalogue.find_server(caller, server_id)
        if server is None:
            raise ServerNotFound(server_id, [visible.id for visible in self._catalogue.list_servers(caller)])
        call = ToolCall(
            caller=caller,
            server=server,
            tool=tool_name,
            arguments=arguments,
            options=options,
            at=self._clock(),
            started=time.perf_counter(),
        )
        await self._buffer.require_capacity()
        try:
            self._catalogue.get_server(caller, server_id)  # raises if the server is disabled or not allowed for this key
            async with self._shares.take(caller.workspace_id, max_hold_s=MAX_WAITING_HOLD_S):
                outcome = await self._execute(call)
        except BaseException as error:
            if self._find_tool(call) is not None:
                self._record(call, code=_get_error_code(error))
            raise
        self._record(call, outcome, code=outcome.code)
        return outcome

    async def _execute(self, call: ToolCall) -> CallOutcome:
        try:
            if self._kill_switch is not None:
                await self._kill_switch.require_enabled(call.caller, call.server.id, call.tool)
            tool = self._find_tool(call) or await self._find_unlisted_tool(call)
            _require_callable(call, tool)
            if (
                self._disk_space is not None
                and isinstance(call.server.target, BuiltinTarget)
                and not (tool.is_read_only or tool.is_destructive)
            ):
                self._disk_space.require()
            await self._require_open_session(call)
            arguments = tool.argument_validator.validate(call.arguments)
            if arguments is not call.arguments:
                call = replace(call, arguments=arguments)
            await self._limits.spend_tool_limit(call.caller, call.server.id, tool.name)
            lookup = await self._cache.get_or_fetch(call, tool, lambda: self._run(call, tool)) if is_cacheable(call, tool) else None
            result = await self._run(call, tool) if lookup is None else lookup.result
            if result.links:
                self._links.record(call.caller, call.server, result.links)
            return _to_outcome(call, result, lookup)
        except ToolCallFailed as failed:
            return CallOutcome(
                server=call.server,
                tool=call.tool,
                duration_ms=call.get_elapsed_ms(),
                result=failed.result,
                error=failed.error[:_MAX_ERROR_LENGTH],
                code=failed.code,
                protocol_error=_to_protocol_error(failed),
                retry_after_s=failed.retry_after_s,
            )

    async def _run(self, call: ToolCall, tool: CatalogueTool) -> ToolResult:
        server = call.server
        if server.fault is not None:
            raise ToolCallFailed("server_unavailable", server.fault)
        session = self._sessions.get_session(server, call.caller, call.options.session_id)
        on_request, requested_input = call.options.on_request, False

        async def answer_request(method: str, params: JsonObject) -> JsonObject:
            nonlocal requested_input
            requested_input = True
            assert on_request is not None  # noqa: S101 - set only if there is a handler
            return await on_request(method, params)

        call_to_send = call if on_request is None else replace(call, options=replace(call.options, on_request=answer_request))
        result = parse_result(await execute(session, call_to_send, is_read_only=tool.is_read_only))
        return replace(result, is_personal=True) if requested_input else result

    async def _find_unlisted_tool(self, call: ToolCall) -> CatalogueTool:
        """Return an unlisted tool, of a server that was never listed or that added the tool since the last list."""
        server, name = call.server, call.tool
        if len(name) > _MAX_TOOL_NAME_LENGTH:
            raise ToolNotFound(server.id, name[:_MAX_TOOL_NAME_LENGTH])
        if server.fault is not None:
            raise ToolCallFailed("server_unavailable", server.fault)
        session_id = call.options.session_id
        if not self._catalogue.is_known(server, call.caller, session_id):
            try:
                await self._sessions.get_session(server, call.caller, session_id).get_connection(call.to_request_options())
            except ConnectFailed as failed:
                raise ToolCallFailed("server_unavailable", str(failed), retry_after_s=failed.retry_after_s) from failed
        await self._catalogue.refresh_for_unknown_tool(server, call.caller, call.options)
        tool = self._find_tool(call)
        if tool is not None:
            return tool
        features = self._catalogue.get_features(server, call.caller, session_id)
        if isinstance(server.target, BuiltinTarget) and not self._catalogue.is_known(server):
            raise ToolCallFailed("server_unavailable", "The server did not list its tools.")
        if not self._catalogue.is_known(server, call.caller, session_id) or "tools" in features.list_errors:
            # The server runs, but does not say which tools it has. It may still have this one, and validates the arguments itself.
            return CatalogueTool({"name": name}, None)
        _require_allowed(call)
        listed_tools = self._catalogue.list_tools(call.caller, server, session_id)
        raise ToolNotFound(server.id, name, [listed_tool.name for listed_tool in listed_tools])

    def _find_tool(self, call: ToolCall) -> CatalogueTool | None:
        return self._catalogue.find_tool(call.server, call.tool, call.caller, call.options.session_id)

    async def _require_open_session(self, call: ToolCall) -> None:
        session_id = call.options.session_id
        if session_id is None:
            return
        if len(session_id) > _MAX_SESSION_ID_LENGTH or "\x00" in session_id:
            raise SessionNotOpen(session_id)
        if self._agent_sessions is not None and not await self._agent_sessions.is_open(call.caller.workspace_id, session_id):
            raise SessionNotOpen(session_id)

    def _record(self, call: ToolCall, outcome: CallOutcome | None = None, *, code: str | None) -> None:
        caller, arguments = call.caller, dict(call.arguments)
        session_id, error = call.options.session_id, outcome.error if outcome is not None else None
        self._buffer.add(
            CallRecord(
                id=self._ids(),
                workspace_id=caller.workspace_id,
                server_id=call.server.id,
                tool=call.tool,
                key_id=caller.key_id,
                key_kind=caller.key_kind,
                agent_id=caller.agent_id,
                session_id=None if session_id is None else redact_text(session_id, _MAX_SESSION_ID_LENGTH),
                success=code is None,
                code=code,
                duration_ms=call.get_elapsed_ms(),
                arguments_bytes=len(to_json(arguments)),
                result_bytes=0 if outcome is None or outcome.result is None else len(outcome.result),
                request_id=caller.request_id,
                called_at=call.at,
                cached=outcome is not None and outcome.cache == "hit",
                upstream_ms=call.upstream.elapsed_ms,
                error=None if error is None else redact_error(error),
                # Built-in servers store their arguments and can delete them there. A copy in the record would outlive the deletion.
                arguments=redact_arguments(arguments) if self._keep_arguments and call.server.kind != "builtin" else None,
            )
        )


def _get_error_code(error: BaseException) -> str:
    if isinstance(error, RookeryError):
        return error.code
    return "client_left" if isinstance(error, asyncio.CancelledError) else "internal_error"


def _to_protocol_error(failure: ToolCallFailed) -> UpstreamProtocolError | None:
    cause = failure.__cause__
    return (
        UpstreamProtocolError(number=cause.number, message=str(cause), data=cause.data)
        if isinstance(cause, UpstreamErrorResponse)
        else None
    )


def _to_outcome(call: ToolCall, result: ToolResult, lookup: CacheLookup | None) -> CallOutcome:
    return CallOutcome(
        server=call.server,
        tool=call.tool,
        duration_ms=call.get_elapsed_ms(),
        result=result.content,
        code="input_required" if result.requires_input else None,
        cache=None if lookup is None else "hit" if lookup.is_hit else "miss",
        age_s=0.0 if lookup is None else lookup.age_s,
    )


def _require_allowed(call: ToolCall) -> None:
    if not is_tool_allowed(call.caller, call.server.id, call.tool):
        name = f"{call.server.id}/{call.tool}"
        if call.caller.servers is not None:
            require_server_allowed(call.caller, call.server.id)
        raise NotInAllowList("tools", name, f"This key may only use some tools; {name!r} is not among them.")


def _require_callable(call: ToolCall, tool: CatalogueTool) -> None:
    """Raise the first reason why this key may not call *tool*."""
    _require_allowed(call)
    server = call.server
    if is_tool_disabled(server, tool.name):
        raise ToolDisabled(f"The tool {tool.name!r} of {server.id!r} is disabled by the operator.")
    if tool.needs_task:
        raise ToolDisabled(f"{server.id}/{tool.name} {TASK_REASON}.")
    if tool.required_scope is not None:
        call.caller.require_scope(tool.required_scope)
    if call.caller.environment == TEST and not server.sandbox and not tool.is_read_only:
        raise TestKeyRefused(f"A test key may not call {server.id}/{tool.name}: the tool is not read-only and its server is not a sandbox.")
