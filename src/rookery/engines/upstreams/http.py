"""Connections to remote servers: Streamable HTTP, and the older HTTP with SSE (protocol 2024-11-05)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from http import HTTPStatus

import httpx2
from mcp.client.streamable_http import streamable_http_client

from rookery.engines.upstreams.http_errors import FORWARDED_HEADERS, ErrorMappingTransport
from rookery.engines.upstreams.mcp_session import McpSession, find_extensions, open_session
from rookery.engines.upstreams.negotiation import Negotiation, find_negotiated, save_negotiated
from rookery.engines.upstreams.request_limit import HttpConnectionState, limit_requests
from rookery.engines.upstreams.response_bodies import ACCEPTED_ENCODINGS
from rookery.engines.upstreams.sdk import MAX_MESSAGE_BYTES, Transport
from rookery.engines.upstreams.sse import open_sse_streams
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedTransport, get_tls_context
from rookery.tools.errors import ConnectFailed, HandshakeRefused
from rookery.tools.models import ConnectionInfo, HttpTarget, JsonObject, Server, ServerFeatures
from rookery.tools.ports import NegotiatedProtocols, RequestOptions, TokenProvider, UpstreamConnection, UpstreamMethod

_CONNECT_TIMEOUT_S = 10.0
_READ_TIMEOUT_S = 660.0
"""Longer than the longest call (600 s), which has its own timeout."""

_USER_AGENT = "rookery"
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


class HttpConnector:
    """A `Connector` for servers with a URL."""

    def __init__(
        self, tokens: TokenProvider | None = None, guard: EgressGuard | None = None, protocols: NegotiatedProtocols | None = None
    ) -> None:
        self._tokens = tokens
        self._guard = guard
        self._protocols = protocols

    @contextlib.asynccontextmanager
    async def connect(
        self,
        server: Server,
        *,
        on_changed: Callable[[], None],
        workspace_id: int | None = None,
        on_output: Callable[[str], None] | None = None,
        on_process: Callable[[int], None] | None = None,
        opener: RequestOptions | None = None,
    ) -> AsyncGenerator[UpstreamConnection]:
        """Open a session with the server, with a login if its entry requires one."""
        del on_output, on_process  # no local process
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
        headers: Mapping[str, str] = {} if opener is None else opener.headers
        token = FORWARDED_HEADERS.set(headers)
        try:
            streams = limit_requests(_open_streams(address, client, state), state, httpx2.URL(address.url).host)
            stored_protocol = await find_negotiated(self._protocols, server)
            negotiation = Negotiation.plan(server, stored_protocol)
            session_context = open_session(
                streams,
                state,
                on_changed=on_changed,
                roots=server.roots,
                negotiation=negotiation,
                extensions=find_extensions(server, opener),
            )
            async with client, session_context as session:
                negotiated = negotiation.describe(session.info)
                await save_negotiated(self._protocols, server, stored_protocol, negotiated, was_probed=negotiation.has_probed)
                yield _HeaderForwardingSession(session) if server.forward_headers else session
        except HandshakeRefused:
            raise  # by a JSON-RPC error, so no status says more
        except ConnectFailed as error:
            concerns_caller = state.is_callers_login and bool(server.forward_headers)
            raise ConnectFailed(
                str(error),
                needs_login=error.needs_login or (state.needs_login and not concerns_caller),
                concerns_caller=concerns_caller,
                retry_after_s=state.retry_after_s,
                is_throttled=state.is_throttled,
            ) from error
        finally:
            FORWARDED_HEADERS.reset(token)


def build_transport(server: Server, guard: EgressGuard | None) -> httpx2.AsyncBaseTransport:
    """Return the transport to *server*. For a server of a workspace, it rejects addresses that *guard* does not allow."""
    if server.owner is None:
        return httpx2.AsyncHTTPTransport(verify=get_tls_context(), limits=_LIMITS)
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

    @property
    def has_subscribers(self) -> bool:
        return self._session.has_subscribers

    async def request(self, method: UpstreamMethod, params: JsonObject, options: RequestOptions) -> JsonObject:
        """Send a request with the caller's headers."""
        token = FORWARDED_HEADERS.set(options.headers)
        try:
            return await self._session.request(method, params, options)
        finally:
            FORWARDED_HEADERS.reset(token)

    async def list_features(self, opener: RequestOptions | None = None) -> ServerFeatures:
        """List with the headers of *opener*, or without headers of a caller."""
        token = FORWARDED_HEADERS.set({} if opener is None else opener.headers)
        try:
            return await self._session.list_features()
        finally:
            FORWARDED_HEADERS.reset(token)

    async def wait_closed(self) -> str:
        return await self._session.wait_closed()


class TokenTransport(httpx2.AsyncBaseTransport):
    """A transport that adds the access token of a login. A rejected token is renewed once."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, tokens: TokenProvider, server: Server, workspace_id: int | None) -> None:
        self._inner = inner
        self._tokens = tokens
        self._server = server
        self._workspace_id = workspace_id

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send *request* with a token.

        Raises:
            ConnectFailed: There is no valid login.
        """
        token = await self._tokens.get_token(self._server, self._workspace_id)
        request.headers["authorization"] = f"Bearer {token}"
        response = await self._inner.handle_async_request(request)
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            return response
        await response.aclose()
        token = await self._tokens.get_token(self._server, self._workspace_id, rejected_token=token)
        request.headers["authorization"] = f"Bearer {token}"
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()
