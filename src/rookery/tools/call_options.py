"""The options of a request to a tool server, in addition to its params."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rookery.access.models import Caller
from rookery.kernel.working_context import CallSession
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnLog, OnProgress, OnRequest, OnUpdate, RequestOptions
from rookery.tools.servers.header_forwarding import select_forwarded_headers
from rookery.tools.servers.meta_forwarding import select_forwarded_meta


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
