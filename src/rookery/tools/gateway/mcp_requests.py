"""One message of an MCP client: its caller, its view of the gateway and the connection back to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, GatewayView
from rookery.tools.models import JsonObject

HandlerContext: TypeAlias = ServerRequestContext[None, Request]

_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG_LEVEL_KEY = "rookery.level"
_MAX_UNREAD_BYTES = 256 * 1024
"""Limit on notification bytes of one call that wait for a slow client. Further notifications are dropped."""
_NOTICE_OVERHEAD_BYTES = 1024
"""Bytes that a waiting notification takes in addition to its text."""
_PROTOCOL_META_PREFIX = "io.modelcontextprotocol/"
"""Prefix of the `_meta` keys that apply to one connection only: revision, software, capabilities."""


@dataclass(slots=True)
class McpRequest:
    """
    One request.

    Attributes:
        ctx: The SDK's context, used to reach the client. For a request that resumed after input, that of the latest message.
    """

    caller: Caller
    view: GatewayView
    ctx: HandlerContext
    _unread_bytes: int = field(default=0, init=False)

    @property
    def is_modern(self) -> bool:
        """True if the client uses the stateless era, in which servers cannot send requests."""
        return self.ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> JsonObject:
        """The capabilities that the client declares."""
        declared = self.ctx.session.client_capabilities
        return {} if declared is None else declared.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_call_options(self) -> CallOptions:
        """Return the call options that the request contains."""
        request, params = _get_http_request(self.ctx), self.ctx.params or {}
        meta = cast("Mapping[str, object]", params.get("_meta") or {})
        passed = {name: value for name, value in meta.items() if not name.startswith(_PROTOCOL_META_PREFIX) and name != "progressToken"}
        level = self._get_log_level(meta)
        if level is not None:
            passed[types.LOG_LEVEL_META_KEY] = level
        responses, state = params.get("inputResponses"), params.get("requestState")
        return CallOptions(
            session_id=request.headers.get("x-session-id") or None,
            on_progress=self.send_progress if "progressToken" in meta else None,
            on_log=None if level is None else self.send_log,
            headers=dict(request.headers),
            capabilities=self.capabilities,
            input_responses=cast("JsonObject", responses) if isinstance(responses, dict) else None,
            request_state=state if isinstance(state, str) else None,
            meta=passed or None,
        )

    async def send_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Forward a progress notification."""
        await self._send(len(message or ""), lambda: self.ctx.session.report_progress(done, total, message))

    async def send_log(self, notice: JsonObject) -> None:
        """Forward a log notification, if its level is high enough for the client."""
        level = self._get_log_level(cast("Mapping[str, object]", (self.ctx.params or {}).get("_meta") or {}))
        if level is None or notice.get("level") not in _LOG_LEVELS[_LOG_LEVELS.index(level) :]:
            return
        notification = types.LoggingMessageNotification.model_validate({"method": "notifications/message", "params": notice})
        await self._send(
            len(str(notice.get("data"))), lambda: self.ctx.session.send_notification(notification, related_request_id=self.ctx.request_id)
        )

    async def _send(self, size: int, send: Callable[[], Awaitable[None]]) -> None:
        """Send a notification, unless too many bytes wait for a slow client. The upstream never waits for the client."""
        size += _NOTICE_OVERHEAD_BYTES
        if self._unread_bytes + size > _MAX_UNREAD_BYTES and self._unread_bytes:
            return
        self._unread_bytes += size
        try:
            await send()
        finally:
            self._unread_bytes -= size

    def set_log_level(self, level: str) -> None:
        """Store the minimum log level of a legacy client's session."""
        get_client_connection(self.ctx).state[_LOG_LEVEL_KEY] = level

    def _get_log_level(self, meta: Mapping[str, object]) -> str | None:
        """Return the minimum log level of this request or its session. None: no log notifications."""
        level = meta.get(types.LOG_LEVEL_META_KEY) if self.is_modern else get_client_connection(self.ctx).state.get(_LOG_LEVEL_KEY, "info")
        return level if isinstance(level, str) and level in _LOG_LEVELS else None


def get_mcp_request(ctx: HandlerContext) -> McpRequest:
    """Return the request of *ctx*, with the caller and view that the guard and the route stored."""
    request = _get_http_request(ctx)
    view = cast("Mapping[str, object]", request.scope["state"]).get(VIEW_STATE_KEY)
    return McpRequest(caller=get_caller(request), view=view if isinstance(view, GatewayView) else GatewayView(), ctx=ctx)


def get_client_connection(ctx: HandlerContext) -> Connection:
    """Return the client's connection. In the legacy era it is a session; the SDK exposes only one request of it to a handler."""
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _get_http_request(ctx: HandlerContext) -> Request:
    if ctx.request is None:
        msg = "every gateway message must arrive in an HTTP request"
        raise LookupError(msg)
    return ctx.request
