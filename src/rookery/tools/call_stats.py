"""Models of call statistics: the filter of calls and their aggregated figures (D-38). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from rookery.tools.models import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFilter:
    """
    A filter of call records. Fields with the value None are ignored.

    Attributes:
        until: Exclusive.
        servers: Matches calls of any of these server ids.
        names: Matches calls of any of these tools, each "server/tool".
    """

    workspace_id: int
    since: datetime | None = None
    until: datetime | None = None
    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    code: str | None = None
    success: bool | None = None
    servers: frozenset[str] | None = None
    names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStats:
    """
    Aggregated figures of a group of calls. The identifying fields are those of the group; None means all.

    Attributes:
        errors: Calls that failed or were rejected.
        cached: Calls that were answered from the cache.
        p50_ms: Median duration of the calls that reached their tool; None if none did. The other durations likewise.
    """

    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    key_kind: str | None = None
    session_id: str | None = None
    day: date | None = None
    calls: int = 0
    errors: int = 0
    cached: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    last_called_at: datetime | None = None
    last_error: CallRecord | None = None

    @property
    def error_rate(self) -> float:
        """The share of errors among the calls, 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0
