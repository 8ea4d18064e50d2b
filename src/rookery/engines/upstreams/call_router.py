"""
The callers of one session, and the routing of requests and log messages that a server of an older protocol version sends.

Such a server does not state for which call it sends a request or a log message, and may send it long after the call. They therefore reach a
caller only if one key alone has used the session since it was opened. From the second key on they are rejected, since one key must not see
or answer requests of another. `isolation: per_key` and `per_session` give each key its own session.

Roots: the folders that a server may work in, announced by its client (`roots/list` of the protocol).

Servers replace their own folders by the roots of their client, so a caller's roots move the sandbox of everyone in the session.
Announce the roots that the server's entry gives, or none; announce a caller's only if the entry says `"roots": "caller"`, which
demands a session per key.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Generator, Mapping
from typing import TypeAlias, TypeVar, cast

import mcp_types as types
import orjson
from mcp.client.session import ClientRequestContext
from pydantic import BaseModel, ValidationError

from rookery.kernel.cancellation import wait_until_set
from rookery.tools.errors import UpstreamErrorResponse
from rookery.tools.models import JsonObject, Root, Roots
from rookery.tools.ports import OnRequest, OnUpdate, RequestOptions

ROOTS_METHOD = "roots/list"
ROOTS_CAPABILITY = "roots"

_STATE_PREFIX = "rookery-roots:"
"""Marks a `requestState` that also names the input requests that Rookery answers itself."""

_Responses: TypeAlias = Mapping[str, object]
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

    @property
    def has_subscribers(self) -> bool:
        """True while callers are subscribed to a resource."""
        return bool(self._subscribers)

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
            return build_list_result(self._roots)
        await wait_until_set(self._has_caller, timeout_s=_CALLER_TIMEOUT_S)
        if self._calls:
            self.roots_requested.set()
        try:
            return await self._forward_request(ROOTS_METHOD, None, types.ListRootsResult)
        finally:
            if self.roots_requested.is_set():
                self.roots_answered.set()

    def needs_roots_request(self, options: RequestOptions) -> bool:
        """Return whether the server has yet to request the roots of the caller's client, which has some."""
        can_answer = options.on_request is not None and ROOTS_CAPABILITY in (options.capabilities or {})
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


def build_list_result(roots: tuple[Root, ...]) -> types.ListRootsResult:
    """Return the protocol's answer to `roots/list`."""
    return types.ListRootsResult.model_validate({"roots": [_to_json(root) for root in roots]}, by_name=False)


def set_roots_capability(capabilities: JsonObject, roots: Roots) -> JsonObject:
    """Return *capabilities* of a caller's client with the roots capability that the server may see."""
    if isinstance(roots, str):
        return capabilities
    others = {name: value for name, value in capabilities.items() if name != ROOTS_CAPABILITY}
    return {**others, ROOTS_CAPABILITY: {}} if roots else others


def add_own_answers(params: JsonObject, roots: Roots) -> None:
    """
    Replace the results about roots in *params* by the roots of the entry (protocol 2026-07-28).

    Callers can send `inputResponses` that no server requested, so responses with roots are removed.
    """
    if isinstance(roots, str):
        return
    input_responses = params.get("inputResponses")
    responses = (
        {name: response for name, response in cast("_Responses", input_responses).items() if not _has_roots(response)}
        if isinstance(input_responses, Mapping)
        else {}
    )
    state = params.get("requestState")
    if isinstance(state, str) and state.startswith(_STATE_PREFIX):
        names, state = _decode_state(state)
        responses |= {name: _answer(roots) for name in names}
        params.pop("requestState")
        if state is not None:
            params["requestState"] = state
    if input_responses is not None or responses:
        params["inputResponses"] = responses


def split_requests(result: JsonObject, roots: Roots) -> tuple[JsonObject, JsonObject | None]:
    """
    Return *result* without its requests for roots, and the responses to send at once if it has no other requests.

    Raises:
        UpstreamErrorResponse: The server requests roots although none were announced.
    """
    input_requests = result.get("inputRequests")
    if isinstance(roots, str) or result.get("resultType") != "input_required" or not isinstance(input_requests, dict):
        return result, None
    requests = cast("dict[str, object]", input_requests)
    names = [
        name
        for name, request in requests.items()
        if isinstance(request, dict) and cast("JsonObject", request).get("method") == ROOTS_METHOD
    ]
    if not names:
        return result, None
    if not roots:
        raise UpstreamErrorResponse(types.INVALID_REQUEST, 'The server requests roots, but its entry has none ("roots" in servers.json).')
    others = {name: request for name, request in requests.items() if name not in names}
    if not others:
        return result, {name: _answer(roots) for name in names}
    state = result.get("requestState")
    return {**result, "inputRequests": others, "requestState": _encode_state(names, state if isinstance(state, str) else None)}, None


def _to_json(root: Root) -> JsonObject:
    return {"uri": root.uri} if root.name is None else {"uri": root.uri, "name": root.name}


def _answer(roots: tuple[Root, ...]) -> JsonObject:
    return {"roots": [_to_json(root) for root in roots]}


def _has_roots(response: object) -> bool:
    return isinstance(response, Mapping) and "roots" in response


def _encode_state(names: list[str], state: str | None) -> str:
    return _STATE_PREFIX + json.dumps([names, state])


def _decode_state(state: str) -> tuple[list[str], str | None]:
    """
    Decode a state of `_encode_state`.

    Raises:
        UpstreamErrorResponse: The state is invalid: a caller changed it.
    """
    try:
        names, inner_state = orjson.loads(state.removeprefix(_STATE_PREFIX))
    except (ValueError, TypeError):
        raise UpstreamErrorResponse(types.INVALID_PARAMS, "The requestState is not the one that was returned.") from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in cast("list[object]", names)):
        raise UpstreamErrorResponse(types.INVALID_PARAMS, "The requestState is not the one that was returned.")
    return cast("list[str]", names), inner_state if isinstance(inner_state, str) else None
