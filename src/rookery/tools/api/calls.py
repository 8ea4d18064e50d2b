"""Calling tools and reading resources: the executing half of spec 4.1, and D-34's beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.kernel.errors import PermissionDenied, RookeryError, ValidationFailed
from rookery.kernel.http import Described, EventStream, Route, allowed_on_full_disk, describe, event, reply, wants_events
from rookery.kernel.http.bodies import ClientLeft, InvalidJson
from rookery.kernel.http.preferences import APPLIED, PREFER, preference
from rookery.kernel.http.replies import note_error
from rookery.tools.api.listing import READ, deprecation, session_of
from rookery.tools.calling.asked import Manner
from rookery.tools.calling.calls import Calls
from rookery.tools.calling.results import failure_message
from rookery.tools.calling.streaming import RunningCall
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import (
    ArgumentsInvalid,
    CallInvalid,
    Disabled,
    ResourceFailed,
    ServerBusy,
    ServerNotFound,
    ServerUnavailable,
    SessionNotOpen,
    TestKeyRefused,
    ToolNotFound,
)
from rookery.tools.models import JsonObject, Outcome
from rookery.tools.ports import OnLog, OnProgress
from rookery.tools.resources import Resources
from rookery.tools.schemas import ResourceResponse, ToolArguments, ToolCallRequest, ToolCallResponse

WRITE = "mcp:write"
_TOOL_ERRORS = "tool-errors"
"""The preference of callers who want the status 200 for a tool's own error."""
_WATCH_AFTER_S = 0.1
"""A call that takes longer is watched for its caller leaving; most are over by then, and watching costs a task."""

_STREAMS = (
    "With `Accept: text/event-stream` the answer is a stream of server-sent events: `progress` and `log` while the tool runs, "
    "then `result` with the same body as the plain answer. A call that is refused, or fails before anything was streamed, "
    "is a plain answer.\n\n"
    "A tool's own error is a 500 with `success: false`. `Prefer: tool-errors=200` asks for a 200 instead, with the same body. "
    "Do not repeat a failed call blindly: the tool may have acted."
)

_FAILED = "The call failed: `tool_execution_error`, `tool_timeout`, `server_unavailable` or `result_too_large`."

_calls = describe(
    answers={500: Described(says=_FAILED, model=ToolCallResponse)},
    media=("text/event-stream",),
    reads=("X-Session-ID", "Cache-Control", "Prefer"),
    sends=("X-Rookery-Cache", "Age", "Deprecation", "Sunset", "Preference-Applied"),
    errors=(
        ArgumentsInvalid,
        CallInvalid,
        Disabled,
        PermissionDenied,
        TestKeyRefused,
        ServerNotFound,
        ToolNotFound,
        SessionNotOpen,
        ServerBusy,
    ),
)
"""What calls of tools have in common."""


@dataclass(frozen=True, slots=True)
class CallRoutes:
    """Runs tools, reads resources."""

    catalogue: Catalogue
    calls: Calls
    resources: Resources

    def routes(self) -> list[Route]:
        """Return the table, paths relative to the prefix."""
        execution = ("Execution",)
        return [
            Route(
                method="POST",
                path="/tools/call",
                handler=self.post_call,
                needs=WRITE,
                answers=ToolCallResponse,
                operation_id="call_tool",
                summary="Call a tool",
                description=_STREAMS,
                tags=execution,
                refuse=_refusal_of_call,
            ),
            Route(
                method="POST",
                path="/servers/{server_id}/tools/{tool:path}",
                handler=self.post_tool,
                needs=WRITE,
                answers=ToolCallResponse,
                operation_id="call_server_tool",
                summary="Call a tool with the bare arguments",
                description=_STREAMS,
                tags=execution,
                refuse=_refusal_of_tool,
            ),
            Route(
                method="GET",
                path="/resources/{uri:path}",
                handler=self.get_resource,
                needs=READ,
                answers=ResourceResponse,
                operation_id="read_resource",
                summary="Read a resource",
                refuse=_refusal_of_resource,
                tags=execution,
            ),
        ]

    @allowed_on_full_disk
    @_calls
    async def post_call(self, request: Request, body: ToolCallRequest) -> Response:
        """Call the tool that the body names; `input_responses` and `request_state` answer what it asked before."""
        manner = replace(_manner(request), input_responses=body.input_responses, request_state=body.request_state)
        return await self._call(request, body.server, body.tool, body.arguments or {}, manner)

    @allowed_on_full_disk
    @_calls
    async def post_tool(self, request: Request, server_id: str, tool: str, body: ToolArguments) -> Response:
        """Call the tool that the path names."""
        return await self._call(request, server_id, tool, body.root, _manner(request))

    @describe(
        errors=(PermissionDenied, Disabled, ServerNotFound, SessionNotOpen, ResourceFailed, ServerUnavailable, ServerBusy),
        reads=("X-Session-ID",),
    )
    async def get_resource(self, request: Request, uri: str) -> Response:
        """
        Return the contents of a resource.

        The URI is part of the path, either as it is or percent-encoded once; a URI with `?` must be encoded.
        """
        content = await self.resources.read(caller_of(request), uri, manner=Manner(session_id=session_of(request)))
        return reply({"uri": uri, "content": content})

    async def _call(self, request: Request, server_id: str, tool: str, arguments: Mapping[str, object], manner: Manner) -> Response:
        if wants_events(request.headers.get("accept")):
            return await self._streamed(request, server_id, tool, arguments, manner)
        async with _while_connected(request):
            outcome = await self.calls.call(caller_of(request), server_id, tool, arguments, manner=manner)
        return self._plain(request, outcome)

    def _plain(self, request: Request, outcome: Outcome) -> Response:
        """Return the answer that is no stream."""
        headers = deprecation(self.catalogue, outcome.server) or {}
        if outcome.cache is not None:
            headers["X-Rookery-Cache"] = outcome.cache
            headers["Age"] = str(int(outcome.age_s))
        status = 200 if outcome.error is None else 500
        if _is_tools_own(outcome) and _prefers_200(request):
            status, headers[APPLIED] = 200, f"{_TOOL_ERRORS}=200"
        if status != 200 and outcome.code is not None:
            note_error(cast("MutableMapping[str, object]", request.scope["state"]), outcome.code, is_upstream=True)
        return reply(_shown(outcome), status=status, headers=headers)

    async def _streamed(self, request: Request, server_id: str, tool: str, arguments: Mapping[str, object], manner: Manner) -> Response:
        caller = caller_of(request)
        server = self.catalogue.named(caller, server_id)

        def call(on_progress: OnProgress, on_log: OnLog) -> Awaitable[Outcome]:
            told = replace(manner, on_progress=on_progress, on_log=on_log)
            return self.calls.call(caller, server_id, tool, arguments, manner=told)

        running = RunningCall(call)
        try:
            async with _while_connected(request):
                await running.begun()
        except BaseException:
            await running.stop()
            raise
        failed = running.failed_at_once()
        if failed is not None and not (_is_tools_own(failed) and _prefers_200(request)):
            await running.stop()
            return self._plain(request, failed)
        headers = None if server is None else deprecation(self.catalogue, server)
        return EventStream(_events(running, {"server": server_id, "tool": tool}), headers=headers)


def _is_tools_own(outcome: Outcome) -> bool:
    return outcome.code == "tool_execution_error"


def _prefers_200(request: Request) -> bool:
    """Return whether the caller wants a tool's own error with the status 200 (RFC 7240)."""
    return preference(request.headers.getlist(PREFER), _TOOL_ERRORS) == "200"


def _manner(request: Request) -> Manner:
    headers = request.headers
    return Manner(session_id=session_of(request), headers=headers, fresh="no-cache" in headers.get("cache-control", "").lower())


async def _events(running: RunningCall, called: Mapping[str, object]) -> AsyncGenerator[bytes]:
    """Yield the events of D-34's one form: `progress` and `log` as they come, then `result`, or `error` for a late refusal."""
    try:
        async for notice in running.notices():
            if notice.left_out:
                yield f": {notice.left_out} notices were left out\n\n".encode("ascii")
            yield event(notice.kind, notice.content)
        try:
            outcome = await running.outcome()
        except RookeryError as error:
            yield event("error", orjson.dumps(_refusal(error, called).body()))
        else:
            yield event("result", orjson.dumps(_shown(outcome)))
    finally:
        await running.stop()


def _shown(outcome: Outcome) -> JsonObject:
    shown: JsonObject = {"success": outcome.code is None, "server": outcome.server.id, "tool": outcome.tool}
    if outcome.result is not None:
        shown["result"] = orjson.Fragment(outcome.result)
    shown["duration_ms"] = round(outcome.duration_ms)
    if outcome.cache == "hit":
        shown["cached"] = True
    if outcome.error is not None:
        shown["error"] = outcome.error
    if outcome.code is not None:
        shown["code"] = outcome.code
    if outcome.error is not None:
        shown["message"] = failure_message(outcome.code or "", outcome.server.id, outcome.tool, outcome.error)
    return shown


def _refusal_of_call(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    """
    Return *error* as D-34 wants it: 400 for a body of the wrong form; `success`, `server` and `tool` beside every error.

    The server and the tool are null when the body was not read (401, 403, 429), or does not name them.
    """
    del path
    fields = cast("dict[object, object]", body) if isinstance(body, dict) else {}
    return _refusal(error, {name: value if isinstance(value := fields.get(name), str) else None for name in ("server", "tool")})


def _refusal_of_tool(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    del body
    return _refusal(error, {"server": path["server_id"], "tool": path["tool"]})


def _refusal_of_resource(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    """Return *error*; a query is most likely a part of the uri that was not encoded."""
    del body
    if not isinstance(error, ValidationFailed) or path["uri"] == "":
        return error
    fields = cast("Mapping[str, Sequence[str]]", error.detail["errors"])
    hint = "; if it is part of the uri, write '?' as %3F"
    return ValidationFailed({name: [text + hint * text.endswith("no query") for text in texts] for name, texts in fields.items()})


def _refusal(error: RookeryError, called: Mapping[str, object]) -> RookeryError:
    if isinstance(error, (ValidationFailed, InvalidJson)):
        refused = CallInvalid(error.message)
        refused.detail.update(error.detail)
        error = refused
    error.detail.update({**called, "success": False, "code": error.code})
    return error


@contextlib.asynccontextmanager
async def _while_connected(request: Request) -> AsyncGenerator[None]:
    """
    Run the body for as long as the caller is there; once it left, the body is cancelled (D-34).

    Raises:
        ClientLeft: In the place of that cancellation.
    """
    here = asyncio.current_task()
    watching: list[asyncio.Task[None]] = []
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            continue
        has_left = True
        if here is not None:
            here.cancel()

    later = asyncio.get_running_loop().call_later(_WATCH_AFTER_S, lambda: watching.append(asyncio.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if not has_left or here is None:
            raise
        here.uncancel()
        raise ClientLeft from None
    finally:
        later.cancel()
        for task in watching:
            task.cancel()
