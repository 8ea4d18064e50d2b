"""Ways to reach a tool server: kinds, not choices, so all are open at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rookery.engines.upstreams.inprocess import InProcessConnector, entry_of
from rookery.engines.upstreams.later import Later, LaterAuthorities
from rookery.kernel.egress import EgressGuard
from rookery.tools.models import Kind
from rookery.tools.ports import Authorities, BuiltinServer, Connector, Tokens

__all__ = ["authorities", "entry_of", "open"]


def open(  # noqa: A001 - what every folder of engines calls it
    builtins: Sequence[BuiltinServer], *, egress: EgressGuard | None = None, tokens: Tokens | None = None
) -> Mapping[Kind, Connector]:
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

    over_http = Later(http)
    return {"stdio": Later(stdio), "http": over_http, "sse": over_http, "builtin": InProcessConnector(builtins)}


def authorities(egress: EgressGuard | None = None, *, clock: Callable[[], float] = time.time) -> Authorities:
    """Return what speaks with upstreams' authorisation servers; it is loaded when somebody logs in."""

    def load() -> Authorities:
        from rookery.engines.upstreams.oauth import OAuthAuthorities

        return OAuthAuthorities(egress, clock=clock)

    return LaterAuthorities(load)
