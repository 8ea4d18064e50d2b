"""One call of a tool, with its options."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from rookery.access.models import Caller
from rookery.tools.call_options import CallOptions
from rookery.tools.models import Server
from rookery.tools.ports import OnProgress, RequestOptions


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

    def to_request_options(self, on_progress: OnProgress | None = None) -> RequestOptions:
        """Return the options of a request to its server."""
        return self.options.to_request_options(self.server, self.caller, on_progress=on_progress)

    def get_elapsed_ms(self) -> float:
        """Return the milliseconds since the start of the call."""
        return (time.perf_counter() - self.started) * 1000
