"""
The callers of one session, and the routing of requests and log messages that a server of an older protocol version sends.

Such a server does not state for which call it sends a request or a log message, and may send it long after the call. They therefore reach a
caller only if one key alone has used the session since it was opened. From the second key on they are rejected, since one key must not see
or answer requests of another. `isolation: per_key` and `per_session` give each key its own session.
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

_NO_CALLER_PREFIX = "No caller can answer: "
_MAX_PENDING_QUESTIONS = 32
"""Maximum number of unanswered requests of one session; further ones are rejected."""
_CALLER_TIMEOUT_S = 2.0
"""Wait for a first call before `roots/list` is answered. Servers send it when a session opens, before the call that opened it arrives."""


class CallRouter:
    """
    The callers of a session, in order of arrival.

    Attributes:
        roots_requested: Set when the server has requested the caller's roots while a caller could answer.
        roots_answered: Set when that request was answered or rejected.
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
        """Call *on_update* when the resource changes. Return whether it is the first subscriber."""
        subscribers = self._subscribers.setdefault(uri, [])
        subscribers.append(on_update)
        return len(subscribers) == 1

    def unsubscribe(self, uri: str, on_update: OnUpdate) -> bool:
        """Remove *on_update*. Return whether it was the last subscriber."""
        subscribers = self._subscribers.get(uri, [])
        if on_update not in subscribers:
            return False
        subscribers.remove(on_update)
        if not subscribers:
            del self._subscribers[uri]
        return not subscribers

    def notify_updated(self, uri: str) -> bool:
        """Notify the subscribers of a resource. Return whether there are any."""
        subscribers = tuple(self._subscribers.get(uri, ()))
        for on_update in subscribers:
            on_update(uri)
        return bool(subscribers)

    def end_subscriptions(self) -> None:
        """Remove all subscribers and notify each of the end with None."""
        subscribers, self._subscribers = self._subscribers, {}
        for on_updates in subscribers.values():
            for on_update in on_updates:
                on_update(None)

    @contextlib.contextmanager
    def serve_call(self, options: RequestOptions) -> Generator[None]:
        """Register a caller while the block runs."""
        key_id = options.caller.key_id
        self._is_shared = self._is_shared or self._key_id not in {None, key_id}
        self._key_id = key_id
        self._calls.append(options)
        if options.on_request is not None:
            self._has_caller.set()
        try:
            yield
        finally:
            self._calls.remove(options)

    async def forward_log(self, notice: JsonObject) -> None:
        """Forward a log message, if one key alone uses the session."""
        options = next((call for call in reversed(self._calls) if call.on_log is not None), None)
        if not self._is_shared and options is not None and options.on_log is not None:
            await options.on_log(notice)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Send an elicitation request to the caller."""
        del context
        return await self._forward_request("elicitation/create", params, types.ElicitResult)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Send a sampling request to the caller."""
        del context
        result_type = types.CreateMessageResult if params.tools is None else types.CreateMessageResultWithTools
        return cast("types.CreateMessageResult", await self._forward_request("sampling/createMessage", params, result_type))

    async def list_roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Return the roots of the server's entry, or request those of the caller if the entry allows that."""
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

    def needs_roots_request(self, options: RequestOptions) -> bool:
        """Return whether the server has yet to request the roots of the caller's client, which has some."""
        can_answer = options.on_request is not None and root_lists.ROOTS_CAPABILITY in (options.capabilities or {})
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
        json_params = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            return result_type.model_validate(await on_request(method, json_params), by_name=False)
        except UpstreamErrorResponse as error:
            return types.ErrorData(code=error.number, message=str(error), data=error.data)
        except ValidationError:
            return types.ErrorData(code=types.INVALID_PARAMS, message=f"The caller's result of {method} is invalid.")

    def _find_handler(self) -> OnRequest | str:
        """Return the handler of the latest caller that has one, or the reason why no caller can answer."""
        if not self._calls:
            return _NO_CALLER_PREFIX + "no call is in progress."
        if self._pending_questions >= _MAX_PENDING_QUESTIONS:
            return _NO_CALLER_PREFIX + f"{_MAX_PENDING_QUESTIONS} requests are waiting for a result."
        if self._is_shared:
            return _NO_CALLER_PREFIX + (
                "several keys have used this session, and the request does not name its call. "
                'Give the server "isolation": "per_key" in its entry.'
            )
        handler = next((call.on_request for call in reversed(self._calls) if call.on_request is not None), None)
        return _NO_CALLER_PREFIX + "the caller does not use MCP." if handler is None else handler
