"""One call of a tool as it was asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rookery.access.models import Caller
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import OnLog, OnProgress, OnRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """
    What goes with a call beside its arguments.

    Attributes:
        session_id: The agent session that the call is part of (`X-Session-ID`).
        headers: All of the caller's, by lower-case name; those that the server's `forward_headers` names go on.
        capabilities: Of the caller's own MCP client; None: the caller speaks HTTP.
        on_request: Who answers what the upstream asks while the tool runs; None: nobody.
        input_responses: The caller's answers to an earlier outcome "input_required", by the names of its `inputRequests`.
        request_state: The `requestState` of that outcome, as it came.
        meta: What the caller's own protocol message has in `_meta`; for the upstream.
        no_cache: No kept result will do.
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


DEFAULT_CALL_OPTIONS = CallOptions()
"""No session, nobody who hears of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """
    One call.

    Attributes:
        started: By `time.perf_counter`.
    """

    caller: Caller
    server: Server
    tool: str
    arguments: Mapping[str, object]
    options: CallOptions
    at: datetime
    started: float

    def get_elapsed_ms(self) -> float:
        """Return how long it has taken so far."""
        return (time.perf_counter() - self.started) * 1000
