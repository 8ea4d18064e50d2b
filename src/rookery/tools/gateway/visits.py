"""One message of an MCP client: who sent it, to which address of the gateway, and the line back to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from rookery.access.guard import caller_of
from rookery.access.models import Caller
from rookery.tools.calling.asked import Manner
from rookery.tools.gateway.views import VIEW, View
from rookery.tools.models import JsonObject

Context: TypeAlias = ServerRequestContext[None, Request]

_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LEVEL = "rookery.level"
_MOST_UNREAD = 256 * 1024
"""Bytes of notices of one call that wait for a slow client; what comes then is left out."""
_OVERHEAD = 1024
"""Of a notice that waits, beside its text."""
_OF_THE_PROTOCOL = "io.modelcontextprotocol/"
"""Prefix of the `_meta` keys that are between two neighbours alone: revision, software, capabilities."""


@dataclass(slots=True)
class Visit:
    """
    One request.

    Attributes:
        ctx: The line back; of a request that goes on after input was given, that of the latest one.
    """

    caller: Caller
    view: View
    ctx: Context
    _unread: int = field(default=0, init=False)

    @property
    def is_modern(self) -> bool:
        """Whether the client speaks the stateless era, where nobody can ask it anything."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> JsonObject:
        """What the client says it can do."""
        declared = self.ctx.session.client_capabilities
        return {} if declared is None else declared.model_dump(mode="json", by_alias=True, exclude_none=True)

    def manner(self) -> Manner:
        """Return how what is asked in this request is to be asked."""
        request, params = _request(self.ctx), self.ctx.params or {}
        meta = cast("Mapping[str, object]", params.get("_meta") or {})
        passed = {name: value for name, value in meta.items() if not name.startswith(_OF_THE_PROTOCOL) and name != "progressToken"}
        level = self._level(meta)
        if level is not None:
            passed[types.LOG_LEVEL_META_KEY] = level
        responses, state = params.get("inputResponses"), params.get("requestState")
        return Manner(
            session_id=request.headers.get("x-session-id") or None,
            on_progress=self.report if "progressToken" in meta else None,
            on_log=None if level is None else self.log,
            headers=dict(request.headers),
            capabilities=self.capabilities,
            input_responses=cast("JsonObject", responses) if isinstance(responses, dict) else None,
            request_state=state if isinstance(state, str) else None,
            meta=passed or None,
        )

    async def report(self, done: float, total: float | None, message: str | None) -> None:
        """Pass on a notice of progress."""
        await self._told(len(message or ""), lambda: self.ctx.session.report_progress(done, total, message))

    async def log(self, notice: JsonObject) -> None:
        """Pass on a log notice, if the client wants it."""
        level = self._level(cast("Mapping[str, object]", (self.ctx.params or {}).get("_meta") or {}))
        if level is None or notice.get("level") not in _LEVELS[_LEVELS.index(level) :]:
            return
        sent = types.LoggingMessageNotification.model_validate({"method": "notifications/message", "params": notice})
        await self._told(
            len(str(notice.get("data"))), lambda: self.ctx.session.send_notification(sent, related_request_id=self.ctx.request_id)
        )

    async def _told(self, size: int, tell: Callable[[], Awaitable[None]]) -> None:
        """Tell, unless too much waits for a client that does not read: each notice waits in a task, and the upstream for none."""
        size += _OVERHEAD
        if self._unread + size > _MOST_UNREAD and self._unread:
            return
        self._unread += size
        try:
            await tell()
        finally:
            self._unread -= size

    def set_level(self, level: str) -> None:
        """Keep from which level on a client of the older era wants log notices."""
        connection_of(self.ctx).state[_LEVEL] = level

    def _level(self, meta: Mapping[str, object]) -> str | None:
        """Return from which level on log notices are wanted: what this request asks for, or the session; None: not at all."""
        found = meta.get(types.LOG_LEVEL_META_KEY) if self.is_modern else connection_of(self.ctx).state.get(_LEVEL, "info")
        return found if isinstance(found, str) and found in _LEVELS else None


def visit_of(ctx: Context) -> Visit:
    """Return what the guard and the route kept of the request that *ctx* is of."""
    request = _request(ctx)
    view = cast("Mapping[str, object]", request.scope["state"]).get(VIEW)
    return Visit(caller=caller_of(request), view=view if isinstance(view, View) else View(), ctx=ctx)


def connection_of(ctx: Context) -> Connection:
    """Return the client's connection: in the older era it is a session, of which the SDK shows a handler no more than one request."""
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _request(ctx: Context) -> Request:
    if ctx.request is None:
        msg = "every message of the gateway comes by an HTTP request"
        raise LookupError(msg)
    return ctx.request
