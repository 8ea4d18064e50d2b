"""
The callers of one session, and the routing of what a server of the older era asks and logs on its own.

Such a server does not say for whom it asks or logs, and may do so long after the call that made it. So its questions and log
notices reach a caller only in a session that one key alone has used since it was opened. From the second key on they are
refused: one key must never see or answer what belongs to another. `isolation: per_key` and `per_session` give each key its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import TypeVar, cast

import mcp_types as types
from mcp.client.session import ClientRequestContext
from pydantic import BaseModel, ValidationError

from rookery.engines.upstreams import roots as root_lists
from rookery.tools.errors import UpstreamErrorResponse
from rookery.tools.models import JsonObject, Roots
from rookery.tools.ports import OnRequest, OnUpdate, RequestOptions

AnswerT = TypeVar("AnswerT", bound=BaseModel)

_NO_CALLER_PREFIX = "Nobody can be asked: "
_MAX_PENDING_QUESTIONS = 32
"""Of one session that wait for an answer: a server that asks without end is told to stop."""
_CALLER_TIMEOUT_S = 2.0
"""How long `roots/list`, which servers send when their session opens, waits for the call that the session was opened for."""


class CallRouter:
    """
    The callers of a session, in the order in which they came.

    Attributes:
        roots_requested: Set once the server has asked for the caller's roots while a caller could answer.
        roots_answered: Set once it has the answer, or was refused one.
    """

    def __init__(self, roots: Roots = ()) -> None:
        self.roots_requested = asyncio.Event()
        self.roots_answered = asyncio.Event()
        self._roots = roots
        self._calls: list[RequestOptions] = []
        self._key_id: str | None = None
        self._is_shared = False
        self._has_caller = asyncio.Event()
        self._pending_questions = 0
        self._subscribers: dict[str, list[OnUpdate]] = {}

    def subscribe(self, uri: str, on_update: OnUpdate) -> bool:
        """Tell *on_update* of a resource; return whether it is the first to hear of it."""
        watching = self._subscribers.setdefault(uri, [])
        watching.append(on_update)
        return len(watching) == 1

    def unsubscribe(self, uri: str, on_update: OnUpdate) -> bool:
        """Tell it no more; return whether it was the last."""
        watching = self._subscribers.get(uri, [])
        if on_update not in watching:
            return False
        watching.remove(on_update)
        if not watching:
            del self._subscribers[uri]
        return not watching

    def notify_updated(self, uri: str) -> bool:
        """Tell whoever hears of a resource that it changed; return whether anybody does."""
        watching = tuple(self._subscribers.get(uri, ()))
        for on_update in watching:
            on_update(uri)
        return bool(watching)

    def end_subscriptions(self) -> None:
        """Tell everybody that nothing will be heard any more."""
        watching, self._subscribers = self._subscribers, {}
        for on_updates in watching.values():
            for on_update in on_updates:
                on_update(None)

    @contextlib.contextmanager
    def serve_call(self, asking: RequestOptions) -> Generator[None]:
        """Serve a caller while the block runs."""
        key_id = asking.caller.key_id
        self._is_shared = self._is_shared or self._key_id not in {None, key_id}
        self._key_id = key_id
        self._calls.append(asking)
        if asking.on_request is not None:
            self._has_caller.set()
        try:
            yield
        finally:
            self._calls.remove(asking)

    async def forward_log(self, notice: JsonObject) -> None:
        """Pass on a log notice, if one key alone uses the session."""
        asking = next((each for each in reversed(self._calls) if each.on_log is not None), None)
        if not self._is_shared and asking is not None and asking.on_log is not None:
            await asking.on_log(notice)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Ask the caller for input."""
        del context
        return await self._forward_request("elicitation/create", params, types.ElicitResult)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Ask the caller's model."""
        del context
        shape = types.CreateMessageResult if params.tools is None else types.CreateMessageResultWithTools
        return cast("types.CreateMessageResult", await self._forward_request("sampling/createMessage", params, shape))

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Return the roots of the server's entry, or ask the caller for theirs if the entry says so."""
        del context
        if not isinstance(self._roots, str):
            return root_lists.build_list_result(self._roots)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_caller.wait(), _CALLER_TIMEOUT_S)
        if self._calls:
            self.roots_requested.set()
        try:
            return await self._forward_request(root_lists.ROOTS_METHOD, None, types.ListRootsResult)
        finally:
            if self.roots_requested.is_set():
                self.roots_answered.set()

    def needs_roots_request(self, asking: RequestOptions) -> bool:
        """Return whether the server is still to ask for the roots of *asking*'s client, which has some."""
        can_answer = asking.on_request is not None and root_lists.ROOTS_CAPABILITY in (asking.capabilities or {})
        return isinstance(self._roots, str) and can_answer and not self.roots_answered.is_set()

    async def _forward_request(self, method: str, params: BaseModel | None, result_type: type[AnswerT]) -> AnswerT | types.ErrorData:
        on_request = self._find_handler()
        if isinstance(on_request, str):
            return types.ErrorData(code=types.INVALID_REQUEST, message=on_request)
        self._pending_questions += 1
        try:
            return await self._send_request(on_request, method, params, result_type)
        finally:
            self._pending_questions -= 1

    async def _send_request(
        self, on_request: OnRequest, method: str, params: BaseModel | None, result_type: type[AnswerT]
    ) -> AnswerT | types.ErrorData:
        asked = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            return result_type.model_validate(await on_request(method, asked), by_name=False)
        except UpstreamErrorResponse as refused:
            return types.ErrorData(code=refused.number, message=str(refused), data=refused.data)
        except ValidationError:
            return types.ErrorData(code=types.INVALID_PARAMS, message=f"The caller's answer to {method} is not of the protocol.")

    def _find_handler(self) -> OnRequest | str:
        """Return who answers, or why nobody does."""
        if not self._calls:
            return _NO_CALLER_PREFIX + "no call is under way."
        if self._pending_questions >= _MAX_PENDING_QUESTIONS:
            return _NO_CALLER_PREFIX + f"{_MAX_PENDING_QUESTIONS} questions wait for an answer already."
        if self._is_shared:
            return _NO_CALLER_PREFIX + (
                "several keys have used this session, and the request does not say for whom it is. "
                'Give the server "isolation": "per_key" in its entry.'
            )
        answering = next((each.on_request for each in reversed(self._calls) if each.on_request is not None), None)
        return _NO_CALLER_PREFIX + "the caller does not speak MCP." if answering is None else answering
