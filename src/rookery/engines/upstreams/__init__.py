"""Ways to reach a tool server: kinds, not choices, so all are open at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.engines.upstreams.inprocess import InProcessConnector, entry_of
from rookery.engines.upstreams.later import Later
from rookery.tools.models import Kind
from rookery.tools.ports import BuiltinServer, Connector

__all__ = ["entry_of", "open"]


def open(builtins: Sequence[BuiltinServer]) -> Mapping[Kind, Connector]:  # noqa: A001 - what every folder of engines calls it
    """Return a connector for each kind of server; *builtins* are those of this process. The protocol's SDK is loaded when needed."""

    def stdio() -> Connector:
        from rookery.engines.upstreams.stdio import StdioConnector

        return StdioConnector()

    def http() -> Connector:
        from rookery.engines.upstreams.http import HttpConnector

        return HttpConnector()

    over_http = Later(http)
    return {"stdio": Later(stdio), "http": over_http, "sse": over_http, "builtin": InProcessConnector(builtins)}
