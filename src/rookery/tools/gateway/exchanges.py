"""
Requests that come back with questions: what an upstream asks of the caller's client, in whichever era each of them speaks.

    client   upstream
    older    older     the upstream's request is sent on to the client, and its answer back
    older    later     a result that asks for input: the client is asked, and the call made again with its answers
    later    later     such a result passes as it is; the client makes the call again
    later    older     the upstream's request becomes such a result, and the call waits for the client to come again
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import mcp_types as types
from mcp import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import RootModel, ValidationError

from rookery.tools.calling.asked import Manner
from rookery.tools.errors import UpstreamRefused
from rookery.tools.gateway.visits import Visit
from rookery.tools.models import JsonObject
from rookery.tools.ports import OnRequest

Ask = Callable[[Manner], Coroutine[object, object, JsonObject]]
"""Asks once, and returns the protocol's whole result."""

_OURS = "rookery:"
_ROUNDS = 10
"""How often one call may ask for more input."""
_WAIT_S = 300.0
"""How long a call waits for its client's answers: of the later era to come again with them, of the older one to send them."""
_WAITING = 1000
_WAITING_PER_KEY = 32

_REQUESTS: dict[str, type[types.ElicitRequest | types.CreateMessageRequest | types.ListRootsRequest]] = {
    "elicitation/create": types.ElicitRequest,
    "sampling/createMessage": types.CreateMessageRequest,
    "roots/list": types.ListRootsRequest,
}
_CAPABILITY = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}


class _Answer(RootModel[dict[str, object]]):
    """A client's answer as it came; the SDK has checked it."""


class _Question(NamedTuple):
    name: str
    method: str
    params: JsonObject
    answer: asyncio.Future[JsonObject]


@dataclass(slots=True)
class _Waiting:
    """A call of a client of the later era, and what its upstream asked so far."""

    visit: Visit
    task: asyncio.Task[JsonObject] | None = None
    questions: asyncio.Queue[_Question] = field(default_factory=asyncio.Queue[_Question])
    open: dict[str, _Question] = field(default_factory=dict[str, _Question])
    expiry: asyncio.TimerHandle | None = None
    asked: int = 0


class Exchanges:
    """All requests that are under way; each runs in a task of its own, so that a client that leaves cancels it once, and it can end."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[JsonObject]] = set()
        self._waiting: dict[str, _Waiting] = {}

    async def run(self, visit: Visit, ask: Ask) -> JsonObject:
        """Ask, and return a result that the client's era knows."""
        return await (self._later_era(visit, ask) if visit.is_modern else self._older_era(visit, ask))

    async def aclose(self) -> None:
        """Cancel what is under way."""
        for waiting in self._waiting.values():
            if waiting.expiry is not None:
                waiting.expiry.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=5)

    def _start(self, asking: Coroutine[object, object, JsonObject]) -> asyncio.Task[JsonObject]:
        task = asyncio.create_task(asking)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[JsonObject]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen here, also where the client has left

    # The older era: the client is asked.

    async def _older_era(self, visit: Visit, ask: Ask) -> JsonObject:
        on_request = _sending(visit)
        manner = replace(visit.manner(), on_request=on_request)
        for _ in range(_ROUNDS):
            task = self._start(ask(manner))
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()  # nothing, once it is done
            result = task.result()
            if result.get("resultType") != "input_required":
                return result
            wanted = cast("dict[str, JsonObject]", result.get("inputRequests") or {})
            responses: JsonObject = {}
            try:
                async with asyncio.timeout(_WAIT_S):
                    for name, request in wanted.items():
                        responses[name] = await _answered(on_request, request)
            except TimeoutError:
                raise MCPError(types.REQUEST_TIMEOUT, f"The client did not answer within {_WAIT_S:g} s what it was asked.") from None
            state = result.get("requestState")
            manner = replace(manner, input_responses=responses, request_state=state if isinstance(state, str) else None)
        raise MCPError(types.INTERNAL_ERROR, f"The server asked for input {_ROUNDS} times, and was given up.")

    # The later era: the client comes again.

    async def _later_era(self, visit: Visit, ask: Ask) -> JsonObject:
        manner = visit.manner()
        if manner.request_state is not None and manner.request_state.startswith(_OURS):
            waiting = self._resumed(visit, manner)
        else:
            waiting = _Waiting(visit)

            async def on_request(method: str, params: JsonObject) -> JsonObject:
                return await self._asked(waiting, method, params)

            waiting.task = self._start(ask(replace(manner, on_request=on_request)))
        return await self._next(waiting)

    async def _next(self, waiting: _Waiting) -> JsonObject:
        """Wait for the result, or for what is asked before it."""
        task, question = waiting.task, asyncio.ensure_future(waiting.questions.get())
        assert task is not None  # noqa: S101 - it is started before anybody waits for it
        try:
            await asyncio.wait({task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            question.cancel()
        if task.done():
            return task.result()
        return self._ask_client(waiting, question.result())

    def _ask_client(self, waiting: _Waiting, first: _Question) -> JsonObject:
        waiting.open[first.name] = first
        while not waiting.questions.empty():
            question = waiting.questions.get_nowait()
            waiting.open[question.name] = question
        state = _OURS + secrets.token_urlsafe(24)
        self._waiting[state] = waiting
        waiting.expiry = asyncio.get_running_loop().call_later(_WAIT_S, self._expire, state)
        wanted = {name: {"method": each.method, "params": each.params} for name, each in waiting.open.items()}
        return {"resultType": "input_required", "inputRequests": wanted, "requestState": state}

    async def _asked(self, waiting: _Waiting, method: str, params: JsonObject) -> JsonObject:
        _must_be_able(waiting.visit, method)
        mine = sum(each.visit.caller.key_id == waiting.visit.caller.key_id for each in self._waiting.values())
        if len(self._waiting) >= _WAITING or mine >= _WAITING_PER_KEY or waiting.asked >= _ROUNDS:
            raise UpstreamRefused(types.INTERNAL_ERROR, "Too many calls wait for their clients' input.")
        waiting.asked += 1
        question = _Question(f"request-{waiting.asked}", method, params, asyncio.get_running_loop().create_future())
        waiting.questions.put_nowait(question)
        return await question.answer

    def _resumed(self, visit: Visit, manner: Manner) -> _Waiting:
        """Give the client's answers to the call that waits for them; it is the same key's, or there is none."""
        state = cast("str", manner.request_state)
        waiting = self._waiting.get(state)
        if waiting is None or waiting.visit.caller.key_id != visit.caller.key_id or str(waiting.visit.view) != str(visit.view):
            raise MCPError(types.INVALID_PARAMS, "No call waits for this requestState; it may have waited too long. Call again without it.")
        responses = manner.input_responses or {}
        missing = sorted(waiting.open.keys() - responses.keys())
        if missing:
            raise MCPError(types.INVALID_PARAMS, f"inputResponses lacks {', '.join(missing)}.")
        del self._waiting[state]
        if waiting.expiry is not None:
            waiting.expiry.cancel()
        waiting.visit.ctx = visit.ctx
        for name, question in waiting.open.items():
            answer = responses[name]
            if not question.answer.done():
                question.answer.set_result(cast("JsonObject", answer) if isinstance(answer, dict) else {})
        waiting.open.clear()
        return waiting

    def _expire(self, state: str) -> None:
        waiting = self._waiting.pop(state, None)
        if waiting is not None and waiting.task is not None:
            waiting.task.cancel()


def _must_be_able(visit: Visit, method: str) -> None:
    needed = _CAPABILITY.get(method)
    if needed is None:
        raise UpstreamRefused(types.METHOD_NOT_FOUND, f"{method} is not passed on to clients.")
    if needed not in visit.capabilities:
        raise UpstreamRefused(types.INVALID_REQUEST, f"The caller's client does not support {needed}.")


def _sending(visit: Visit) -> OnRequest:
    """Return what sends an upstream's request on to a client of the older era, on the stream of the call that it belongs to."""

    async def send(method: str, params: JsonObject) -> JsonObject:
        _must_be_able(visit, method)
        try:
            request = _REQUESTS[method].model_validate({"method": method, "params": params or None})
            metadata = ServerMessageMetadata(related_request_id=visit.ctx.request_id)
            return (await visit.ctx.session.send_request(request, _Answer, metadata=metadata)).root
        except MCPError as error:
            raise UpstreamRefused(error.code, error.message, error.data) from error
        except ValidationError as error:
            raise UpstreamRefused(types.INVALID_PARAMS, f"{method}: the request or its answer is not of the protocol.") from error

    return send


async def _answered(on_request: OnRequest, request: JsonObject) -> JsonObject:
    try:
        return await on_request(str(request.get("method")), cast("JsonObject", request.get("params") or {}))
    except UpstreamRefused as refused:
        raise MCPError(refused.number, str(refused), refused.data) from refused
