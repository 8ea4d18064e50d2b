"""One message of an MCP client: its caller, its view of the gateway and the connection back to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from rookery.access.guard import get_caller
from rookery.access.models import Caller
from rookery.tools.call_options import CallOptions
from rookery.tools.calling.results import PROTOCOL_META_PREFIX
from rookery.tools.gateway.catalogue_views import VIEW_STATE_KEY, GatewayView
from rookery.tools.gateway.session_ids import list_client_sessions
from rookery.tools.gateway_names import select_extensions
from rookery.tools.models import JsonObject

HandlerContext: TypeAlias = ServerRequestContext[None, Request]

_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_LOG_LEVEL_KEY = "rookery.level"
_MAX_UNREAD_BYTES = 256 * 1024
"""Limit on notification bytes of one call that wait for a slow client. Further notifications are dropped."""
_NOTICE_OVERHEAD_BYTES = 1024
"""Bytes that a waiting notification takes in addition to its text."""


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
        """The capabilities that the client declares, without the extensions that Rookery does not pass on."""
        declared = self.ctx.session.client_capabilities
        if declared is None:
            return {}
        capabilities = declared.model_dump(mode="json", by_alias=True, exclude_none=True)
        extensions = select_extensions(capabilities)
        others = {name: value for name, value in capabilities.items() if name != "extensions"}
        return {**others, "extensions": extensions} if extensions else others

    @property
    def client_name(self) -> str:
        """The name of the client's software; empty if it did not say."""
        params = self.ctx.session.client_params
        return "" if params is None else params.client_info.name

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the client's HTTP request, by lower-case name."""
        return dict(_get_http_request(self.ctx).headers)

    def to_list_options(self) -> CallOptions:
        """Return the options with which a session is opened and listed for the request: its agent session and its headers."""
        return CallOptions(session_id=self.view.session_id, headers=self.headers, capabilities=self.capabilities)

    def to_call_options(self) -> CallOptions:
        """Return the call options that the request contains."""
        request, params = _get_http_request(self.ctx), self.ctx.params or {}
        meta = cast("Mapping[str, object]", params.get("_meta") or {})
        passed = {name: value for name, value in meta.items() if not name.startswith(PROTOCOL_META_PREFIX) and name != "progressToken"}
        level = self._get_log_level(meta)
        if level is not None:
            passed[types.LOG_LEVEL_META_KEY] = level
        responses, state = params.get("inputResponses"), params.get("requestState")
        return CallOptions(
            session_id=request.headers.get("x-session-id") or None,
            on_progress=self.send_progress if "progressToken" in meta else None,
            on_log=None if level is None else self.send_log,
            headers=self.headers,
            capabilities=self.capabilities,
            input_responses=cast("JsonObject", responses) if isinstance(responses, dict) else None,
            request_state=state if isinstance(state, str) else None,
            client_sessions=list_client_sessions(meta),
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
    return McpRequest(caller=get_caller(request), view=get_view(request), ctx=ctx)


def get_view(request: Request) -> GatewayView:
    """Return the view that the route stored, with the agent session of the request."""
    view = cast("Mapping[str, object]", request.scope["state"]).get(VIEW_STATE_KEY)
    served_view = view if isinstance(view, GatewayView) else GatewayView()
    return replace(served_view, session_id=request.headers.get("x-session-id") or None)


def get_client_connection(ctx: HandlerContext) -> Connection:
    """Return the client's connection. In the legacy era it is a session; the SDK exposes only one request of it to a handler."""
    return ctx.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _get_http_request(ctx: HandlerContext) -> Request:
    if ctx.request is None:
        msg = "every gateway message must arrive in an HTTP request"
        raise LookupError(msg)
    return ctx.request
