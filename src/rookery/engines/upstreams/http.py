"""Connections to remote servers: Streamable HTTP, and the older HTTP with SSE."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

import httpx2
from mcp.client.streamable_http import streamable_http_client

from rookery.engines.upstreams.error_transport import (
    ACCEPTED_ENCODINGS,
    FORWARDED_HEADERS,
    ErrorMappingTransport,
    HttpConnectionState,
    TokenTransport,
)
from rookery.engines.upstreams.mcp_session import MAX_MESSAGE_BYTES, McpSession, Transport, open_session
from rookery.engines.upstreams.request_limit import limit_requests
from rookery.engines.upstreams.sse import open_sse_streams
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedTransport
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import ConnectionInfo, HttpTarget, JsonObject, Server, ServerFeatures
from rookery.tools.ports import RequestOptions, TokenProvider, UpstreamConnection, UpstreamMethod

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 660.0
"""Longer than the longest call (600 s, D-34), which has its own timeout."""

_USER_AGENT = "rookery"
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


class HttpConnector:
    """A `Connector` for servers with a URL."""

    def __init__(self, tokens: TokenProvider | None = None, guard: EgressGuard | None = None) -> None:
        self._tokens = tokens
        self._guard = guard

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_stderr: Callable[[str], None] | None = None,
    ) -> AsyncGenerator[UpstreamConnection]:
        """Open a session with the server, with a login if its entry requires one."""
        del on_stderr  # no local process
        if not isinstance(server.target, HttpTarget):
            msg = f"{server.id} has no URL"
            raise TypeError(msg)
        address, state = server.target, HttpConnectionState()
        transport = build_transport(server, self._guard)
        if server.auth is not None:
            if self._tokens is None:
                raise ConnectFailed("Logins are not available here.", needs_login=True)
            await self._tokens.get_token(server, workspace_id)  # a missing login is reported before anything is sent
            transport = TokenTransport(transport, self._tokens, server, workspace_id)
        client = httpx2.AsyncClient(
            transport=ErrorMappingTransport(transport, state, server),
            headers={"user-agent": _USER_AGENT, **address.headers, "accept-encoding": ACCEPTED_ENCODINGS},
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
        )
        try:
            streams = limit_requests(_open_streams(address, client, state), state, httpx2.URL(address.url).host)
            async with client, open_session(streams, state, on_changed=on_changed, roots=server.roots) as session:
                yield _HeaderForwardingSession(session) if server.forward_headers else session
        except ConnectFailed as error:
            raise ConnectFailed(str(error), needs_login=error.needs_login or state.needs_login) from error


def build_transport(server: Server, guard: EgressGuard | None) -> httpx2.AsyncBaseTransport:
    """Return the transport to *server*. For a server of a workspace, it rejects addresses that *guard* does not allow (D-82)."""
    if server.owner is None:
        return httpx2.AsyncHTTPTransport(limits=_LIMITS)
    if guard is None:
        raise ConnectFailed("Servers of workspaces cannot be reached here.")
    return GuardedTransport(guard, limits=_LIMITS)


def _open_streams(address: HttpTarget, client: httpx2.AsyncClient, state: HttpConnectionState) -> Transport:
    if address.kind == "sse":
        return open_sse_streams(address.url, client, state)
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES)


class _HeaderForwardingSession:
    """An `UpstreamConnection` that forwards headers of the caller with each request."""

    def __init__(self, session: McpSession) -> None:
        self._session = session

    @property
    def info(self) -> ConnectionInfo:
        return self._session.info

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Send a request with the caller's headers."""
        token = FORWARDED_HEADERS.set(options.headers)
        try:
            return await self._session.request(method, params, options)
        finally:
            FORWARDED_HEADERS.reset(token)

    async def list_features(self) -> ServerFeatures:
        return await self._session.list_features()

    async def wait_closed(self) -> str:
        return await self._session.wait_closed()
