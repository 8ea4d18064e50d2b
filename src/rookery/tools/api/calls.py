"""Operations that call tools and read resources."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import Caller
from rookery.kernel.errors import PermissionDenied, RookeryError, ValidationFailed
from rookery.kernel.http import (
    DocumentedResponse,
    EventStream,
    Operation,
    accepts_events,
    encode_event,
    json_response,
)
from rookery.kernel.http.event_stream import CALL_KEEP_ALIVE_INTERVAL_S
from rookery.kernel.http.request_body import InvalidJson, cancel_on_disconnect
from rookery.kernel.http.responses import set_error
from rookery.kernel.http.routes import NO_QUERY_MESSAGE
from rookery.kernel.sentences import format_count
from rookery.tools.api.listing import READ_SCOPE, SERVER_ERRORS, build_deprecation_headers, to_call_options
from rookery.tools.call_options import CallOptions
from rookery.tools.calling.results import ToolCallFailed, describe_failure, to_json
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import (
    AmbiguousName,
    ArgumentsInvalid,
    CallInvalid,
    ResourceFailed,
    ServerBusy,
    ServerNotFound,
    ServerUnavailable,
    SessionNotOpen,
    TestKeyRefused,
    ToolDisabled,
    ToolNotFound,
)
from rookery.tools.models import CallOutcome, JsonObject
from rookery.tools.ports import OnLog, OnProgress
from rookery.tools.resources import ResourceReader
from rookery.tools.schemas import ResourceResponse, ToolArguments, ToolCallFailure, ToolCallRequest, ToolCallResponse

_START_WAIT_S = 1.0
"""Time to wait for an early rejection before the response starts."""
_MAX_PENDING_BYTES = 1024 * 1024
"""Limit on notifications that wait for a slow reader. The upstream does not wait for it, because it serves other callers."""

WRITE_SCOPE = "mcp:write"
_TOOL_ERRORS_PREFERENCE = "tool-errors"
"""A preference for the status 200 for a tool's own error."""

_STREAMS_DESCRIPTION = (
    "With `Accept: text/event-stream` the response is a stream of server-sent events: `progress` and `log` while the tool runs, "
    "then `result` with the same body as the plain response. A call that is rejected, or fails before any event was sent, "
    "is a plain response.\n\n"
    "A tool's own error is a 500 with `success: false`. `Prefer: tool-errors=200` requests a 200 instead, with the same body. "
    "Do not repeat a failed call blindly: the tool may have acted."
)

_FAILED_DESCRIPTION = (
    "The call failed: `tool_execution_error`, `tool_timeout`, `server_unavailable`, `server_http_error` or `result_too_large`."
)


@dataclass(frozen=True, slots=True)
class CallNotice:
    """One notification of a tool, as JSON. `dropped_count`: the notifications dropped before it because the reader was slow."""

    kind: Literal["progress", "log"]
    content: bytes
    dropped_count: int = 0


class RunningCall:
    """
    One call in its own task. Call `stop` at the end.

    Args:
        call: Makes the call, with the handlers of its notifications.
    """

    def __init__(self, call: Callable[[OnProgress, OnLog], Awaitable[CallOutcome]]) -> None:
        self._notices: deque[CallNotice] = deque()
        self._pending_bytes = 0
        self._dropped_count = 0
        self._has_news = asyncio.Event()
        self._task = asyncio.ensure_future(call(self._on_progress, self._on_log))
        self._task.add_done_callback(lambda _: self._has_news.set())

    async def wait_started(self) -> None:
        """
        Wait for the first notification or the outcome, at most one second.

        Raises:
            RookeryError: The call was rejected before any notification.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_WAIT_S):
                await self._has_news.wait()
        if self._task.done() and not self._notices:
            self._task.result()

    def get_early_failure(self) -> CallOutcome | None:
        """Return the outcome of a call that has already failed without notifications, else None."""
        if not self._task.done() or self._notices or self._dropped_count:
            return None
        outcome = self._task.result()
        return outcome if outcome.error is not None else None

    async def iter_notices(self) -> AsyncGenerator[CallNotice]:
        """Yield each notification as it arrives, until the call ends."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            is_over = self._task.done()
            while self._notices:
                notice = self._notices.popleft()
                self._pending_bytes -= len(notice.content)
                yield notice
            if is_over:
                return

    async def wait_outcome(self) -> CallOutcome:
        """
        Return the outcome of the call.

        Raises:
            RookeryError: The call was rejected.
        """
        return await self._task

    async def stop(self) -> None:
        """Cancel the call, also upstream, unless it has ended."""
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.exception()  # retrieve it, so that asyncio does not log it

    async def _on_progress(self, done: float, total: float | None, message: str | None) -> None:
        progress: JsonObject = {"progress": done}
        if total is not None:
            progress["total"] = total
        if message is not None:
            progress["message"] = message
        self._add_notice("progress", progress)

    async def _on_log(self, params: JsonObject) -> None:
        self._add_notice("log", {name: value for name, value in params.items() if name != "_meta"})

    def _add_notice(self, kind: Literal["progress", "log"], payload: JsonObject) -> None:
        try:
            content = to_json(payload)
        except ToolCallFailed:
            self._dropped_count += 1
            return
        if self._pending_bytes + len(content) > _MAX_PENDING_BYTES:
            self._dropped_count += 1
            return
        self._pending_bytes += len(content)
        self._notices.append(CallNotice(kind, content, self._dropped_count))
        self._dropped_count = 0
        self._has_news.set()


PREFER_HEADER, PREFERENCE_APPLIED_HEADER = "prefer", "Preference-Applied"


def find_preference(headers: Iterable[str], name: str) -> str | None:
    """
    Return the value of the first preference *name*: empty if it has no value, None if it is missing.

    Args:
        headers: The values of every `Prefer` header of a request.
        name: The preference, in lower case.
    """
    for token in ",".join(headers).split(","):
        preference, _, value = token.partition(";")[0].partition("=")
        if preference.strip().lower() == name:
            return value.strip().strip('"')
    return None


_operation = partial(Operation, tags=("Execution",))


@dataclass(frozen=True, slots=True)
class ToolCallApi:
    """
    Calls tools and reads resources.

    The responses of calls are written by hand: the result of a tool is JSON already, and parsing it again would cost more than the call.
    """

    catalogue: Catalogue
    runner: ToolRunner
    resources: ResourceReader

    def operations(self) -> list[Operation]:
        """Return the operations, with paths relative to the prefix."""
        call = partial(_operation, method="POST", required_scope=WRITE_SCOPE, response_model=ToolCallResponse,
                       description=_STREAMS_DESCRIPTION, media_types=("text/event-stream",),
                       responses={500: DocumentedResponse(description=_FAILED_DESCRIPTION, model=ToolCallFailure)},
                       request_headers=("X-Session-ID", "Cache-Control", "Prefer"),
                       response_headers=("X-Rookery-Cache", "Age", "Deprecation", "Sunset", "Preference-Applied",
                                         "Retry-After"),
                       errors=(ArgumentsInvalid, CallInvalid, ToolDisabled, PermissionDenied, TestKeyRefused, ServerNotFound, ToolNotFound,
                               SessionNotOpen, ServerBusy))  # fmt: skip
        return [
            call(path="/tools/call", handler=self.post_call, operation_id="call_tool", summary="Call a tool", map_error=_map_call_error,
                 allowed_on_full_disk=True),
            call(path="/servers/{server_id}/tools/{tool:path}", handler=self.post_tool, operation_id="call_server_tool",
                 summary="Call a tool with the bare arguments", map_error=_map_tool_error, allowed_on_full_disk=True),
            _operation(method="GET", path="/resources/{uri:path}", handler=self.get_resource, required_scope=READ_SCOPE,
                       response_model=ResourceResponse, operation_id="read_resource", summary="Read a resource",
                       map_error=_map_resource_error, request_headers=("X-Session-ID",),
                       errors=(*SERVER_ERRORS, AmbiguousName, SessionNotOpen, ResourceFailed, ServerUnavailable, ServerBusy)),
        ]  # fmt: skip

    async def post_call(self, caller: Caller, request: Request, body: ToolCallRequest) -> Response:
        """Call the tool that the body names. `input_responses` and `request_state` answer an earlier request for input."""
        options = replace(to_call_options(request), input_responses=body.input_responses, request_state=body.request_state)
        return await self._call(caller, request, body.server, body.tool, body.arguments or {}, options)

    async def post_tool(self, caller: Caller, request: Request, server_id: str, tool: str, body: ToolArguments) -> Response:
        """Call the tool that the path names."""
        return await self._call(caller, request, server_id, tool, body.root, to_call_options(request))

    async def get_resource(self, caller: Caller, request: Request, uri: str) -> Mapping[str, object]:
        """
        Return the contents of a resource.

        The URI is one of a list, or one that a tool server gave in a result, if only one server has it. It is part of the path, either as
        it is or percent-encoded once; a URI with `?` must be encoded.
        """
        read_uri, content = await self.resources.read(caller, uri, options=to_call_options(request))
        return {"uri": read_uri, "content": content}

    async def _call(  # noqa: PLR0917 - in the order of a call's parts
        self, caller: Caller, request: Request, server_id: str, tool: str, arguments: Mapping[str, object], options: CallOptions
    ) -> Response:
        if accepts_events(request.headers.get("accept")):
            return await self._call_streamed(caller, request, server_id, tool, arguments, options)
        async with cancel_on_disconnect(request):
            outcome = await self.runner.call(caller, server_id, tool, arguments, options=options)
        return self._reply(request, outcome)

    def _reply(self, request: Request, outcome: CallOutcome) -> Response:
        """Return the plain response, without a stream."""
        headers = dict(build_deprecation_headers(self.catalogue, outcome.server))
        if outcome.cache is not None:
            headers["X-Rookery-Cache"] = outcome.cache
            headers["Age"] = str(int(outcome.age_s))
        if outcome.retry_after_s is not None:
            headers["Retry-After"] = str(outcome.retry_after_s)
        status = 200 if outcome.error is None else 500
        if _is_tool_error(outcome) and _prefers_200(request):
            status, headers[PREFERENCE_APPLIED_HEADER] = 200, f"{_TOOL_ERRORS_PREFERENCE}=200"
        if status != 200 and outcome.code is not None:
            set_error(cast("MutableMapping[str, object]", request.scope["state"]), outcome.code, is_upstream=True)
        return json_response(_to_json(outcome), status=status, headers=headers)

    async def _call_streamed(  # noqa: PLR0917 - as `_call`
        self, caller: Caller, request: Request, server_id: str, tool: str, arguments: Mapping[str, object], options: CallOptions
    ) -> Response:
        server = self.catalogue.find_server(caller, server_id)

        def call(on_progress: OnProgress, on_log: OnLog) -> Awaitable[CallOutcome]:
            stream_options = replace(options, on_progress=on_progress, on_log=on_log)
            return self.runner.call(caller, server_id, tool, arguments, options=stream_options)

        running = RunningCall(call)
        try:
            async with cancel_on_disconnect(request):
                await running.wait_started()
        except BaseException:
            await running.stop()
            raise
        failed = running.get_early_failure()
        if failed is not None and not (_is_tool_error(failed) and _prefers_200(request)):
            await running.stop()
            return self._reply(request, failed)
        headers = None if server is None else build_deprecation_headers(self.catalogue, server)
        events = _iter_events(running, {"server": server_id, "tool": tool})
        return EventStream(events, headers=headers, keep_alive_s=CALL_KEEP_ALIVE_INTERVAL_S)


def _is_tool_error(outcome: CallOutcome) -> bool:
    return outcome.code == "tool_execution_error"


def _prefers_200(request: Request) -> bool:
    """Return whether the caller prefers the status 200 for a tool's own error (RFC 7240)."""
    return find_preference(request.headers.getlist(PREFER_HEADER), _TOOL_ERRORS_PREFERENCE) == "200"


async def _iter_events(running: RunningCall, call_fields: Mapping[str, object]) -> AsyncGenerator[bytes]:
    """Yield `progress` and `log` as they arrive, then `result`, or `error` for a late rejection."""
    try:
        async for notice in running.iter_notices():
            if notice.dropped_count:
                yield f": {format_count(notice.dropped_count, 'notification was', 'notifications were')} dropped\n\n".encode("ascii")
            yield encode_event(notice.kind, notice.content)
        try:
            outcome = await running.wait_outcome()
        except RookeryError as error:
            yield encode_event("error", orjson.dumps(_add_call_fields(error, call_fields).body()))
        else:
            yield encode_event("result", orjson.dumps(_to_json(outcome)))
    finally:
        await running.stop()


def _to_json(outcome: CallOutcome) -> JsonObject:
    content: JsonObject = {"success": outcome.code is None, "server": outcome.server.id, "tool": outcome.tool}
    if outcome.result is not None:
        content["result"] = orjson.Fragment(outcome.result)
    content["duration_ms"] = round(outcome.duration_ms)
    if outcome.cache == "hit":
        content["cached"] = True
    if outcome.error is not None:
        content["error"] = outcome.error
    if outcome.code is not None:
        content["code"] = outcome.code
    if outcome.error is not None:
        content["message"] = describe_failure(outcome)
    if outcome.retry_after_s is not None:
        content["retry_after"] = outcome.retry_after_s
    return content


def _map_call_error(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    """
    Return *error* in the form of tool calls: 400 for an invalid body; `success`, `server` and `tool` in every error.

    The server and the tool are null if the body was not read (401, 403, 429) or does not name them.
    """
    del path
    fields = cast("dict[object, object]", body) if isinstance(body, dict) else {}
    return _add_call_fields(error, {name: value if isinstance(value := fields.get(name), str) else None for name in ("server", "tool")})


def _map_tool_error(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    del body
    return _add_call_fields(error, {"server": path["server_id"], "tool": path["tool"]})


def _map_resource_error(error: RookeryError, body: object, path: Mapping[str, str]) -> RookeryError:
    """Return *error*. An unexpected query is probably a part of the URI that was not encoded, so a hint is added."""
    del body
    if not isinstance(error, ValidationFailed) or path["uri"] == "":
        return error
    fields = error.field_errors
    hint = "; if it is part of the URI, write '?' as %3F"
    return ValidationFailed({name: [text + hint if text == NO_QUERY_MESSAGE else text for text in texts] for name, texts in fields.items()})


def _add_call_fields(error: RookeryError, call_fields: Mapping[str, object]) -> RookeryError:
    if isinstance(error, (ValidationFailed, InvalidJson)):
        invalid = CallInvalid(error.message)
        invalid.detail.update(error.detail)
        error = invalid
    error.detail.update({**call_fields, "success": False, "code": error.code})
    return error
