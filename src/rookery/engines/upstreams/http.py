"""Servers that run elsewhere: Streamable HTTP, and the older HTTP with SSE."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable

import httpx2
from mcp.client.streamable_http import streamable_http_client

from rookery.engines.upstreams.asked import patient
from rookery.engines.upstreams.mending import ENCODINGS, FORWARDED, Authorised, HttpWire, Mending
from rookery.engines.upstreams.relay import MAX_MESSAGE, Relay, Transport, open_relay
from rookery.engines.upstreams.sse import sse_streams
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedTransport
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import Address, Facts, JsonObject, Offer, Server
from rookery.tools.ports import Asking, Connection, Method, Tokens

_CONNECT_S = 10.0
_READ_S = 660.0
"""Beyond the longest call (600 s, D-34), which ends by its own deadline."""

_ABOUT_US = "rookery"
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


class HttpConnector:
    """Speaks with a server by its URL; see `Connector`."""

    def __init__(self, tokens: Tokens | None = None, guard: EgressGuard | None = None) -> None:
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
    ) -> AsyncGenerator[Connection]:
        """Open a session with the server, with a login if its entry asks for one."""
        del on_stderr  # no process of ours
        if not isinstance(server.target, Address):
            msg = f"{server.id} is no address"
            raise TypeError(msg)
        address, wire = server.target, HttpWire()
        transport = transport_to(server, self._guard)
        if server.auth is not None:
            if self._tokens is None:
                raise ConnectFailed("Nobody can log in here.", needs_login=True)
            await self._tokens.token(server, workspace_id)  # what is wrong with the login is told as it is, and before anything is sent
            transport = Authorised(transport, self._tokens, server, workspace_id)
        client = httpx2.AsyncClient(
            transport=Mending(transport, wire, server),
            headers={"user-agent": _ABOUT_US, **address.headers, "accept-encoding": ENCODINGS},
            timeout=httpx2.Timeout(_CONNECT_S, read=_READ_S),
        )
        try:
            streams = patient(_streams(address, client, wire), wire, httpx2.URL(address.url).host)
            async with client, open_relay(streams, wire, on_changed=on_changed, roots=server.roots) as relay:
                yield _Forwarding(relay) if server.forward_headers else relay
        except ConnectFailed as failed:
            raise ConnectFailed(str(failed), needs_login=failed.needs_login or wire.needs_login) from failed


def transport_to(server: Server, guard: EgressGuard | None) -> httpx2.AsyncBaseTransport:
    """Return what connects to *server*, and to what it names: of a workspace's server, to nothing that *guard* refuses (D-82)."""
    if server.owner is None:
        return httpx2.AsyncHTTPTransport(limits=_LIMITS)
    if guard is None:
        raise ConnectFailed("Addresses of users are not connected to here.")
    return GuardedTransport(guard, limits=_LIMITS)


def _streams(address: Address, client: httpx2.AsyncClient, wire: HttpWire) -> Transport:
    if address.kind == "sse":
        return sse_streams(address.url, client, wire)
    return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE)


class _Forwarding:
    """A session whose requests carry headers of whoever asks; see `Connection`."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    @property
    def facts(self) -> Facts:
        """See `Connection`."""
        return self._relay.facts

    async def ask(self, method: Method, params: JsonObject, asking: Asking) -> JsonObject:
        """Ask, and let the caller's headers go with it; see `Connection`."""
        token = FORWARDED.set(asking.headers)
        try:
            return await self._relay.ask(method, params, asking)
        finally:
            FORWARDED.reset(token)

    async def offer(self) -> Offer:
        """See `Connection`."""
        return await self._relay.offer()

    async def wait_closed(self) -> str:
        """See `Connection`."""
        return await self._relay.wait_closed()
