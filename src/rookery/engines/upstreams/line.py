"""
Who is being served over one session: what an upstream of the older era says and asks on its own does not tell for whom it is.

It can only be for whoever is being served just then. While two keys are, it is for nobody: one tenant's question must never
come to another. A key that left a call unanswered counts as served for as long as a call may take: the server need not have
heard that it left. Servers that ask questions are best given `isolation: per_key` or `per_session`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Generator
from typing import TypeVar, cast

import mcp_types as types
from mcp.client.session import ClientRequestContext
from pydantic import BaseModel, ValidationError

from rookery.tools.errors import UpstreamRefused
from rookery.tools.models import JsonObject
from rookery.tools.ports import Asking, OnRequest, OnUpdate

AnswerT = TypeVar("AnswerT", bound=BaseModel)

_NOBODY = "Nobody can be asked: "
_LINGERS_S = 600.0
"""The longest that a call takes (D-34), so that what a server says of one that was left is over then."""
_MOST_QUESTIONS = 32
"""Of one session that wait for an answer: a server that asks without end is told to stop."""
_MOST_LEFT = 1000


class Line:
    """The callers of a session, in the order in which they came."""

    def __init__(self) -> None:
        self._askings: list[Asking] = []
        self._left: dict[str, float] = {}
        self._questions = 0
        self._watching: dict[str, list[OnUpdate]] = {}

    def watch(self, uri: str, on_update: OnUpdate) -> bool:
        """Tell *on_update* of a resource; return whether it is the first to hear of it."""
        watching = self._watching.setdefault(uri, [])
        watching.append(on_update)
        return len(watching) == 1

    def unwatch(self, uri: str, on_update: OnUpdate) -> bool:
        """Tell it no more; return whether it was the last."""
        watching = self._watching.get(uri, [])
        if on_update not in watching:
            return False
        watching.remove(on_update)
        if not watching:
            del self._watching[uri]
        return not watching

    def updated(self, uri: str) -> bool:
        """Tell whoever hears of a resource that it changed; return whether anybody does."""
        watching = tuple(self._watching.get(uri, ()))
        for on_update in watching:
            on_update(uri)
        return bool(watching)

    def lost(self) -> None:
        """Tell everybody that nothing will be heard any more."""
        watching, self._watching = self._watching, {}
        for on_updates in watching.values():
            for on_update in on_updates:
                on_update(None)

    @contextlib.contextmanager
    def taken_by(self, asking: Asking) -> Generator[None]:
        """Serve a caller while the block runs; what ends it but an answer leaves the server at work."""
        self._askings.append(asking)
        try:
            yield
        except (asyncio.CancelledError, TimeoutError):
            if len(self._left) < _MOST_LEFT or asking.caller.key_id in self._left:
                self._left[asking.caller.key_id] = time.monotonic() + _LINGERS_S
            raise
        finally:
            self._askings.remove(asking)

    async def log(self, notice: JsonObject) -> None:
        """Pass a log notice on, if it is sure whose it is."""
        asking = next((each for each in reversed(self._askings) if each.on_log is not None), None)
        if self._is_one_callers() and asking is not None and asking.on_log is not None:
            await asking.on_log(notice)

    async def elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Ask the caller for input."""
        del context
        return await self._asked("elicitation/create", params, types.ElicitResult)

    async def sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData:
        """Ask the caller's model."""
        del context
        shape = types.CreateMessageResult if params.tools is None else types.CreateMessageResultWithTools
        return cast("types.CreateMessageResult", await self._asked("sampling/createMessage", params, shape))

    async def roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        """Ask which folders the caller works in."""
        del context
        return await self._asked("roots/list", None, types.ListRootsResult)

    async def _asked(self, method: str, params: BaseModel | None, shape: type[AnswerT]) -> AnswerT | types.ErrorData:
        on_request = self._on_request()
        if isinstance(on_request, str):
            return types.ErrorData(code=types.INVALID_REQUEST, message=on_request)
        self._questions += 1
        try:
            return await self._answer(on_request, method, params, shape)
        finally:
            self._questions -= 1

    async def _answer(
        self, on_request: OnRequest, method: str, params: BaseModel | None, shape: type[AnswerT]
    ) -> AnswerT | types.ErrorData:
        asked = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            return shape.model_validate(await on_request(method, asked), by_name=False)
        except UpstreamRefused as refused:
            return types.ErrorData(code=refused.number, message=str(refused), data=refused.data)
        except ValidationError:
            return types.ErrorData(code=types.INVALID_PARAMS, message=f"The caller's answer to {method} is not of the protocol.")

    def _on_request(self) -> OnRequest | str:
        """Return who answers, or why nobody does."""
        if not self._askings:
            return _NOBODY + "no call is under way."
        if self._questions >= _MOST_QUESTIONS:
            return _NOBODY + f"{_MOST_QUESTIONS} questions wait for an answer already."
        if not self._is_one_callers():
            return _NOBODY + "several callers are being served, and this request does not say for whom it is."
        answering = next((each.on_request for each in reversed(self._askings) if each.on_request is not None), None)
        return _NOBODY + "the caller does not speak MCP." if answering is None else answering

    def _is_one_callers(self) -> bool:
        now = time.monotonic()
        for key_id in [key_id for key_id, until in self._left.items() if until <= now]:
            del self._left[key_id]
        return len({*self._left, *(each.caller.key_id for each in self._askings)}) == 1
