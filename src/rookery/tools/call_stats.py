"""The nouns of figures: which calls are asked for, and how they went (D-38). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from rookery.tools.models import CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFilter:
    """
    Which rows of calls are asked for; None: whatever it is.

    Attributes:
        until: Not included.
        servers: One of these; so too *names*, each "server/tool".
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
    How some calls went: those of what is named here, None being all.

    Attributes:
        errors: Calls that failed or were refused.
        cached: Calls that were answered from the cache.
        p50_ms: Of the calls that reached their tool; None: none did. So too the others.
    """

    server_id: str | None = None
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
    last_failure: CallRecord | None = None

    @property
    def error_rate(self) -> float:
        """Errors by calls, 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0
