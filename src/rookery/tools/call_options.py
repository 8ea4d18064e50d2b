"""
The options of a request to a tool server, in addition to its params.

Clients put what they know about their user into the `_meta` of a message, such as the path of a working tree, its remote repository and
the ids of a session. A tool server gets the keys that its entry names in `forward_meta`, and the trace context, which the protocol defines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rookery.access.models import Caller
from rookery.kernel import globs
from rookery.kernel.working_context import CallSession
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnLog, OnProgress, OnRequest, OnUpdate, RequestOptions
from rookery.tools.servers.header_forwarding import has_rookery_key, select_forwarded_headers

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """
    The options of a call, in addition to its arguments.

    Attributes:
        session_id: The agent session that the call belongs to (`X-Session-ID`).
        headers: All request headers, by lower-case name. Those in the server's `forward_headers` are forwarded.
        capabilities: The capabilities of the caller's MCP client. None: the caller uses the HTTP API.
        on_request: Answers the upstream's requests during the call. None: they are rejected.
        input_responses: The caller's responses to an earlier outcome "input_required", by the names in its `inputRequests`.
        request_state: The `requestState` of that outcome, unchanged.
        client_sessions: Texts of the caller's protocol message that may be the client's own id of its session.
        meta: The `_meta` of the caller's protocol message, without the protocol's own keys; see `select_forwarded_meta`.
        no_cache: Bypass cached results.
    """

    session_id: str | None = None
    on_progress: OnProgress | None = None
    on_log: OnLog | None = None
    on_request: OnRequest | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    capabilities: JsonObject | None = None
    input_responses: Mapping[str, object] | None = None
    request_state: str | None = None
    client_sessions: Sequence[str] = ()
    meta: JsonObject | None = None
    no_cache: bool = False

    def add_to_params(self, server: Server, params: Mapping[str, object]) -> JsonObject:
        """Return the params of a request to *server* with the caller's responses, and with what it may get of the `_meta`."""
        added: JsonObject = dict(params)
        if self.input_responses is not None:
            added["inputResponses"] = dict(self.input_responses)
        if self.request_state is not None:
            added["requestState"] = self.request_state
        if meta := select_forwarded_meta(server, self.meta):
            added["_meta"] = meta
        return added

    def to_request_options(
        self, server: Server, caller: Caller, *, on_progress: OnProgress | None, on_update: OnUpdate | None = None
    ) -> RequestOptions:
        return RequestOptions(
            caller=caller,
            on_progress=on_progress,
            on_log=self.on_log,
            on_request=self.on_request,
            on_update=on_update,
            headers=select_forwarded_headers(server, self.headers),
            capabilities=self.capabilities,
            session=CallSession(session_id=self.session_id, client_sessions=self.client_sessions),
        )


DEFAULT_CALL_OPTIONS = CallOptions()
"""Default options: no session and no notifications."""
