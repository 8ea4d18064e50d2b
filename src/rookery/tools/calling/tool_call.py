"""One call of a tool, with its options."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from rookery.access.models import Caller
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnLog, OnProgress, OnRequest, OnUpdate, RequestOptions
from rookery.tools.servers.header_forwarding import select_forwarded_headers


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
        meta: The `_meta` of the caller's protocol message, for the upstream.
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
    meta: JsonObject | None = None
    no_cache: bool = False

    def add_to_params(self, params: Mapping[str, object]) -> JsonObject:
        """Return the params of an upstream request with the caller's responses and `_meta`."""
        added: JsonObject = dict(params)
        if self.input_responses is not None:
            added["inputResponses"] = dict(self.input_responses)
        if self.request_state is not None:
            added["requestState"] = self.request_state
        if self.meta:
            added["_meta"] = self.meta
        return added

    def to_request_options(
        self, server: Server, caller: Caller, *, on_progress: OnProgress | None, on_update: OnUpdate | None = None
    ) -> RequestOptions:
        """Return the options of a request to *server*."""
        return RequestOptions(
            caller=caller,
            on_progress=on_progress,
            on_log=self.on_log,
            on_request=self.on_request,
            on_update=on_update,
            headers=select_forwarded_headers(server, self.headers),
            capabilities=self.capabilities,
        )


DEFAULT_CALL_OPTIONS = CallOptions()
"""Default options: no session and no notifications."""


class UpstreamTimer:
    """
    Sums the time that one call waits for its tool server: for its session to open, and for its response.

    Attributes:
        elapsed_ms: None: the call was rejected or answered from the cache, before anything was sent.
    """

    def __init__(self) -> None:
        self.elapsed_ms: float | None = None

    @contextmanager
    def measure(self) -> Generator[None]:
        """Add the duration of the block."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.elapsed_ms = (self.elapsed_ms or 0.0) + (time.perf_counter() - started) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """
    One call of a tool.

    Attributes:
        started: Start time of the clock `time.perf_counter`.
        upstream: The time spent on the tool server. What remains of the duration is Rookery's own share.
    """

    caller: Caller
    server: Server
    tool: str
    arguments: Mapping[str, object]
    options: CallOptions
    at: datetime
    started: float
    upstream: UpstreamTimer = field(default_factory=UpstreamTimer)

    def get_elapsed_ms(self) -> float:
        """Return the milliseconds since the start of the call."""
        return (time.perf_counter() - self.started) * 1000
