"""
Requests for input that an upstream sends to the caller's client, translated between the protocol eras.

    client   upstream
    legacy   legacy    the upstream's request is forwarded to the client, and its response back
    legacy   modern    for a result that requires input, the request goes to the client, and the call is repeated with the responses
    modern   modern    such a result is returned unchanged; the client repeats the call
    modern   legacy    the upstream's request becomes such a result, and the call waits for the client's next request
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import mcp_types as types
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import RootModel, ValidationError

from rookery.access.models import Caller
from rookery.kernel.server_group import ServerGroup
from rookery.tools.call_options import CallOptions
from rookery.tools.errors import UpstreamErrorResponse
from rookery.tools.gateway.forwarding import WAITING_STATE_PREFIX
from rookery.tools.gateway.limits import EvictionRefused, select_evicted, select_of_largest
from rookery.tools.gateway.mcp_requests import McpRequest
from rookery.tools.models import JsonObject
from rookery.tools.ports import OnRequest

SendRequest = Callable[[CallOptions], Coroutine[object, object, JsonObject]]
"""Sends the request once and returns the protocol's complete result."""

_MAX_INPUT_REQUESTS = 10
"""Limit on rounds of input for one call."""
_INPUT_TIMEOUT_S = 300.0
"""Time that a call waits for the client's input: for its next request (modern) or its response (legacy)."""
MAX_WAITING_CALLS = 1000
MAX_WAITING_CALLS_PER_WORKSPACE = 250
MAX_WAITING_CALLS_PER_KEY = 32

_REQUEST_TYPES: dict[str, type[types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest]] = {
    "elicitation/create": types.ElicitRequest,
    "sampling/createMessage": types.CreateMessageRequest,
    "roots/list": types.ListRootsRequest,
}
_REQUIRED_CAPABILITIES = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class _ClientAnswer(RootModel[dict[str, object]]):
    """A client's response, unchanged. The SDK has validated it."""


class _InputRequest(NamedTuple):
    name: str
    method: str
    params: JsonObject
    answer: asyncio.Future[JsonObject]


@dataclass(slots=True)
class _WaitingCall:
    """A call of a modern client, with the requests that its upstream has sent so far."""

    mcp_request: McpRequest
    task: asyncio.Task[JsonObject] | None = None
    requests: asyncio.Queue[_InputRequest] = field(default_factory=asyncio.Queue[_InputRequest])
    open_requests: dict[str, _InputRequest] = field(default_factory=dict[str, _InputRequest])
    expiry: asyncio.TimerHandle | None = None
    waiting_since: float = 0.0
    request_count: int = 0


class InputRequestBroker:
    """Runs calls that may request input. Each call runs in its own task, so that a disconnect cancels it exactly once."""

    def __init__(self, group: ServerGroup) -> None:
        self._group = group
        self._tasks: set[asyncio.Task[JsonObject]] = set()
        self._waiting: dict[str, _WaitingCall] = {}

    async def run(self, mcp_request: McpRequest, send: SendRequest) -> JsonObject:
        """Send a request, and return a result in the form of the client's era."""
        return await (self._run_modern(mcp_request, send) if mcp_request.is_modern else self._run_legacy(mcp_request, send))

    async def aclose(self) -> None:
        """Cancel all running calls."""
        for waiting_call in self._waiting.values():
            if waiting_call.expiry is not None:
                waiting_call.expiry.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    def _start(self, coroutine: Coroutine[object, object, JsonObject]) -> asyncio.Task[JsonObject]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[JsonObject]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieve it, so that asyncio does not log it if the client has left

    # Legacy clients: requests are forwarded.

    async def _run_legacy(self, mcp_request: McpRequest, send: SendRequest) -> JsonObject:
        on_request = _forward_to_client(mcp_request)
        options = replace(mcp_request.to_call_options(), on_request=on_request)
        for _ in range(_MAX_INPUT_REQUESTS):
            task = self._start(send(options))
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()  # no effect on a finished task
            result = task.result()
            if result.get("resultType") != "input_required":
                return result
            requests = cast("dict[str, JsonObject]", result.get("inputRequests") or {})
            responses: JsonObject = {}
            try:
                async with asyncio.timeout(_INPUT_TIMEOUT_S):
                    for name, request in requests.items():
                        responses[name] = await _request_answer(on_request, request)
            except TimeoutError:
                raise MCPError(
                    types.REQUEST_TIMEOUT, f"The client did not answer the request for input within {_INPUT_TIMEOUT_S:g} s."
                ) from None
            state = result.get("requestState")
            options = replace(options, input_responses=responses, request_state=state if isinstance(state, str) else None)
        raise MCPError(types.INTERNAL_ERROR, f"The server requested input {_MAX_INPUT_REQUESTS} times, the maximum.")

    # Modern clients: the call waits for their next request.

    async def _run_modern(self, mcp_request: McpRequest, send: SendRequest) -> JsonObject:
        options = mcp_request.to_call_options()
        if options.request_state is not None and options.request_state.startswith(WAITING_STATE_PREFIX):
            waiting_call = self._resume(mcp_request, options)
        else:
            waiting_call = _WaitingCall(mcp_request)

            async def on_request(method: str, params: JsonObject) -> JsonObject:
                return await self._request_input(waiting_call, method, params)

            waiting_call.task = self._start(send(replace(options, on_request=on_request)))
        return await self._wait_next(waiting_call)

    async def _wait_next(self, waiting_call: _WaitingCall) -> JsonObject:
        """Wait for the result or for the next request for input."""
        task, input_request = waiting_call.task, asyncio.ensure_future(waiting_call.requests.get())
        assert task is not None  # noqa: S101 - the task is started before any wait
        try:
            await asyncio.wait({task, input_request}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            input_request.cancel()
        if task.done():
            return task.result()
        return self._build_input_required(waiting_call, input_request.result())

    def _build_input_required(self, waiting_call: _WaitingCall, first: _InputRequest) -> JsonObject:
        waiting_call.open_requests[first.name] = first
        while not waiting_call.requests.empty():
            input_request = waiting_call.requests.get_nowait()
            waiting_call.open_requests[input_request.name] = input_request
        state = WAITING_STATE_PREFIX + self._group.mark_owner(secrets.token_urlsafe(24))
        self._waiting[state] = waiting_call
        waiting_call.waiting_since = time.monotonic()
        waiting_call.expiry = asyncio.get_running_loop().call_later(_INPUT_TIMEOUT_S, self._expire, state)
        requests = {
            name: {"method": input_request.method, "params": input_request.params}
            for name, input_request in waiting_call.open_requests.items()
        }
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    async def _request_input(self, waiting_call: _WaitingCall, method: str, params: JsonObject) -> JsonObject:
        _require_capability(waiting_call.mcp_request, method)
        if waiting_call.request_count >= _MAX_INPUT_REQUESTS:
            raise UpstreamErrorResponse(types.INTERNAL_ERROR, f"This call has requested input {_MAX_INPUT_REQUESTS} times, the maximum.")
        self._make_room(waiting_call.mcp_request.caller)
        waiting_call.request_count += 1
        input_request = _InputRequest(f"request-{waiting_call.request_count}", method, params, asyncio.get_running_loop().create_future())
        waiting_call.requests.put_nowait(input_request)
        return await input_request.answer

    def _make_room(self, caller: Caller) -> None:
        """
        Cancel a waiting call at each limit that is reached: of the key, of the workspace, or of the process.

        Raises:
            UpstreamErrorResponse: The calls that could give way have all waited for less than a minute.
        """
        now = time.monotonic()
        waiting_since = {state: call.waiting_since for state, call in self._waiting.items()}
        workspaces = {state: call.mcp_request.caller.public_workspace_id for state, call in self._waiting.items()}
        keys = {
            state: self._waiting[state].mcp_request.caller.key_id
            for state, workspace_id in workspaces.items()
            if workspace_id == caller.public_workspace_id
        }
        of_key = {state: waiting_since[state] for state, key_id in keys.items() if key_id == caller.key_id}
        try:
            if len(of_key) >= MAX_WAITING_CALLS_PER_KEY:
                self._expire(select_evicted(of_key, now))
            elif len(keys) >= MAX_WAITING_CALLS_PER_WORKSPACE:
                self._expire(select_of_largest(keys, caller.key_id, waiting_since, now))
            elif len(workspaces) >= MAX_WAITING_CALLS:
                self._expire(select_of_largest(workspaces, caller.public_workspace_id, waiting_since, now))
        except EvictionRefused as error:
            message = f"Too many calls wait for input from their clients. Try again in {error.retry_after_s} s."
            raise UpstreamErrorResponse(types.INTERNAL_ERROR, message, {"retry_after": error.retry_after_s}) from error

    def _resume(self, mcp_request: McpRequest, options: CallOptions) -> _WaitingCall:
        """Pass the client's responses to the waiting call. The call must belong to the same key and view."""
        state = cast("str", options.request_state)
        waiting_call = self._waiting.get(state)
        if (
            waiting_call is None
            or waiting_call.mcp_request.caller.key_id != mcp_request.caller.key_id
            or str(waiting_call.mcp_request.view) != str(mcp_request.view)
        ):
            raise MCPError(
                types.INVALID_PARAMS, "No call waits for this requestState: it is unknown or expired. Repeat the call without requestState."
            )
        responses = options.input_responses or {}
        missing = sorted(waiting_call.open_requests.keys() - responses.keys())
        if missing:
            raise MCPError(types.INVALID_PARAMS, f"inputResponses lacks {', '.join(missing)}.")
        del self._waiting[state]
        if waiting_call.expiry is not None:
            waiting_call.expiry.cancel()
        waiting_call.mcp_request.ctx = mcp_request.ctx
        for name, input_request in waiting_call.open_requests.items():
            response = responses[name]
            if not input_request.answer.done():
                input_request.answer.set_result(cast("JsonObject", response) if isinstance(response, dict) else {})
        waiting_call.open_requests.clear()
        return waiting_call

    def _expire(self, state: str) -> None:
        waiting_call = self._waiting.pop(state, None)
        if waiting_call is None:
            return
        if waiting_call.expiry is not None:
            waiting_call.expiry.cancel()
        if waiting_call.task is not None:
            waiting_call.task.cancel()


def _require_capability(mcp_request: McpRequest, method: str) -> None:
    required_capability = _REQUIRED_CAPABILITIES.get(method)
    if required_capability is None:
        raise UpstreamErrorResponse(types.METHOD_NOT_FOUND, f"{method} requests are not forwarded to clients.")
    if required_capability not in mcp_request.capabilities:
        raise UpstreamErrorResponse(types.INVALID_REQUEST, f"The caller's client does not support {required_capability}.")


def _forward_to_client(mcp_request: McpRequest) -> OnRequest:
    """Return a function that forwards an upstream's request to a legacy client, on the stream of the call it belongs to."""

    async def send(method: str, params: JsonObject) -> JsonObject:
        _require_capability(mcp_request, method)
        try:
            request = _REQUEST_TYPES[method].model_validate({"method": method, "params": params or None})
            metadata = ServerMessageMetadata(related_request_id=mcp_request.ctx.request_id)
            return (await mcp_request.ctx.session.send_request(request, _ClientAnswer, metadata=metadata)).root
        except MCPError as error:
            raise UpstreamErrorResponse(error.code, error.message, error.data) from error
        except ValidationError as error:
            raise UpstreamErrorResponse(
                types.INVALID_PARAMS, f"{method}: the request or its response does not conform to the protocol."
            ) from error

    return send


async def _request_answer(on_request: OnRequest, request: JsonObject) -> JsonObject:
    try:
        return await on_request(str(request.get("method")), cast("JsonObject", request.get("params") or {}))
    except UpstreamErrorResponse as upstream_error:
        raise MCPError(upstream_error.number, str(upstream_error), upstream_error.data) from upstream_error
