"""Connectors to tool servers, one for each kind of server. All are available at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rookery.engines.upstreams.inprocess import InProcessConnector, build_builtin_entry
from rookery.engines.upstreams.lazy import LazyAuthorities, LazyConnector
from rookery.kernel.egress import EgressGuard
from rookery.tools.models import ServerKind
from rookery.tools.ports import AuthorizationServers, BuiltinServer, Connector, TokenProvider

__all__ = ["authorities", "build_builtin_entry", "open"]


def open(  # noqa: A001 - each engine folder has an `open`
    builtins: Sequence[BuiltinServer], *, egress: EgressGuard | None = None, tokens: TokenProvider | None = None
) -> Mapping[ServerKind, Connector]:
    """
    Return a connector for each kind of server. The MCP SDK is imported when needed.

    Args:
        builtins: Servers that run in this process.
        egress: Checks the addresses of servers that workspaces added (D-82).
        tokens: Access tokens of logins. Without it, servers that require a login cannot be reached.
    """

    def stdio() -> Connector:
        from rookery.engines.upstreams.stdio import StdioConnector

        return StdioConnector()

    def http() -> Connector:
        from rookery.engines.upstreams.http import HttpConnector

        return HttpConnector(tokens, egress)

    over_http = LazyConnector(http)
    return {"stdio": LazyConnector(stdio), "http": over_http, "sse": over_http, "builtin": InProcessConnector(builtins)}


def authorities(egress: EgressGuard | None = None, *, clock: Callable[[], float] = time.time) -> AuthorizationServers:
    """Return the client for authorisation servers. It is imported with the first login."""

    def load() -> AuthorizationServers:
        from rookery.engines.upstreams.oauth import OAuthAuthorities

        return OAuthAuthorities(egress, clock=clock)

    return LazyAuthorities(load)
