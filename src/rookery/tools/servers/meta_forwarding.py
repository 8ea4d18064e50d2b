"""
Forwarding of the `_meta` of a client's message to a tool server. No I/O.

Clients put what they know about their user into it, such as the path of a working tree, its remote repository and the ids of a session.
A tool server gets the keys that its entry names in `forward_meta`, and the trace context, which the protocol defines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from rookery.kernel import globs
from rookery.tools.models import JsonObject, Server
from rookery.tools.servers.header_forwarding import has_rookery_key

_TRACE_KEYS = frozenset({"traceparent", "tracestate", "baggage"})
"""The keys of OpenTelemetry, which the protocol names (2026-07-28, `_meta`)."""
_LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
"""The level that Rookery itself requests for a client that receives log notifications."""


def select_forwarded_meta(server: Server, meta: Mapping[str, object] | None) -> JsonObject:
    """Return the keys of *meta* to forward to *server*. A value that contains a Rookery key is never forwarded."""
    return {
        name: value
        for name, value in (meta or {}).items()
        if (name in _TRACE_KEYS or name == _LOG_LEVEL_KEY or _is_named(server, name))
        and not has_rookery_key(json.dumps(value, default=dict))
    }


def select_affecting_meta(server: Server, meta: Mapping[str, object] | None) -> JsonObject:
    """Return the keys of *meta* that may affect a result of *server*: those that its entry names."""
    return {name: value for name, value in select_forwarded_meta(server, meta).items() if _is_named(server, name)}


def _is_named(server: Server, name: str) -> bool:
    return any(globs.matches(name, glob) for glob in server.forward_meta)
