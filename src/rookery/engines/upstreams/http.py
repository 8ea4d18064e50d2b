"""Servers that run elsewhere: Streamable HTTP, and the older HTTP with SSE."""

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
"""Beyond the longest call (600 s, D-34), which ends by its own deadline."""

_USER_AGENT = "rookery"
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


class HttpConnector:
    """Speaks with a server by its URL; see `Connector`."""

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
        """Open a session with the server, with a login if its entry asks for one."""
        del on_stderr  # no process of ours
        if not isinstance(server.target, HttpTarget):
            msg = f"{server.id} is no address"
            raise TypeError(msg)
        address, wire = server.target, HttpConnectionState()
        transport = build_transport(server, self._guard)
        if server.auth is not None:
            if self._tokens is None:
                raise ConnectFailed("Nobody can log in here.", needs_login=True)
            await self._tokens.get_token(server, workspace_id)  # what is wrong with the login is told as it is, and before anything is sent
            transport = TokenTransport(transport, self._tokens, server, workspace_id)
        client = httpx2.AsyncClient(
            transport=ErrorMappingTransport(transport, wire, server),
            headers={"user-agent": _USER_AGENT, **address.headers, "accept-encoding": ACCEPTED_ENCODINGS},
            timeout=httpx2.Timeout(_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
        )
        try:
            streams = limit_requests(_open_streams(address, client, wire), wire, httpx2.URL(address.url).host)
            async with client, open_session(streams, wire, on_changed=on_changed, roots=server.roots) as relay:
                yield _HeaderForwardingSession(relay) if server.forward_headers else relay
        except ConnectFailed as failed:
            raise ConnectFailed(str(failed), needs_login=failed.needs_login or wire.needs_login) from failed


def build_transport(server: Server, guard: EgressGuard | None) -> httpx2.AsyncBaseTransport:
    """Return what connects to *server*, and to what it names: of a workspace's server, to nothing that *guard* refuses (D-82)."""
    if server.owner is None:
        return httpx2.AsyncHTTPTransport(limits=_LIMITS)
    if guard is None:
        raise ConnectFailed("Addresses of users are not connected to here.")
    return GuardedTransport(guard, limits=_LIMITS)


def _open_streams(address: HttpTarget, client: httpx2.AsyncClient, state: HttpConnectionState) -> Transport:
    if address.kind == "sse":
        return open_sse_streams(address.url, client, state)
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES)


class _HeaderForwardingSession:
    """A session whose requests carry headers of whoever asks; see `UpstreamConnection`."""

    def __init__(self, session: McpSession) -> None:
        self._session = session

    @property
    def info(self) -> ConnectionInfo:
        """See `UpstreamConnection`."""
        return self._session.info

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Ask, and let the caller's headers go with it; see `UpstreamConnection`."""
        token = FORWARDED_HEADERS.set(options.headers)
        try:
            return await self._session.request(method, params, options)
        finally:
            FORWARDED_HEADERS.reset(token)

    async def list_features(self) -> ServerFeatures:
        """See `UpstreamConnection`."""
        return await self._session.list_features()

    async def wait_closed(self) -> str:
        """See `UpstreamConnection`."""
        return await self._session.wait_closed()
