"""Ways to reach a tool server: kinds, not choices, so all are open at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rookery.engines.upstreams.inprocess import InProcessConnector, build_builtin_entry
from rookery.engines.upstreams.lazy import LazyAuthorities, LazyConnector
from rookery.kernel.egress import EgressGuard
from rookery.tools.models import ServerKind
from rookery.tools.ports import AuthorizationServers, BuiltinServer, Connector, TokenProvider

__all__ = ["authorities", "build_builtin_entry", "open"]


def open(  # noqa: A001 - what every folder of engines calls it
    builtins: Sequence[BuiltinServer], *, egress: EgressGuard | None = None, tokens: TokenProvider | None = None
) -> Mapping[ServerKind, Connector]:
    """
    Return a connector for each kind of server. The protocol's SDK is loaded when needed.

    Args:
        builtins: Those of this process.
        egress: Judges the addresses of servers that workspaces added (D-82).
        tokens: Of the logins at servers that ask for one; without it, nobody has logged in anywhere.
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
    """Return what speaks with upstreams' authorisation servers; it is loaded when somebody logs in."""

    def load() -> AuthorizationServers:
        from rookery.engines.upstreams.oauth import OAuthAuthorities

        return OAuthAuthorities(egress, clock=clock)

    return LazyAuthorities(load)
