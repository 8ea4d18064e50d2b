"""The overview: health, calls, errors, memories and what waits."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from starlette.responses import Response

from rookery.console.routing import View
from rookery.console.visit import Visit
from rookery_client import ApiError
from rookery_client.generated import models

T = TypeVar("T")

_DAYS = 14
_SHOWN_CALLS = 8
_METRIC_LINE = re.compile(r'^rookery_jobs_(waiting|failed)\{kind="(\w+)"\} ([0-9.e+]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QueueLength:
    """The number of jobs of one kind that wait, and that failed for good."""

    kind: str
    waiting: int
    failed: int


async def show_overview(visit: Visit) -> Response:
    """Show the state of the workspace on one page. Parts that the key may not read are left out."""
    since = datetime.now(UTC) - timedelta(days=_DAYS)
    client = visit.client
    health = await client.operation.check_readiness()
    days = await _read(visit, "tools.read", lambda: client.analytics.get_tool_analytics(since=since, by="day", limit=_DAYS + 1))
    by_tool = await _read(visit, "tools.read", lambda: client.analytics.get_tool_analytics(since=since, by="tool", limit=6))
    calls = await _read(visit, "tools.read", lambda: client.analytics.list_tool_calls(per_page=_SHOWN_CALLS))
    memories = await _read(visit, "brain:read", lambda: client.memory.list_memories(per_page=5))
    waiting = await _read(visit, "brain:read", lambda: client.memory.list_memories(state="pending_embed", per_page=1))
    sessions = await _read(visit, "sessions.read", lambda: client.sessions.list_sessions(status="active", per_page=5))
    ready = await _read(visit, "plans.read", lambda: client.plans.list_tasks(state="ready", per_page=1))
    metrics = await _read(visit, "platform:metrics", client.operation.get_metrics)
    return visit.render(
        "overview/overview.html",
        health=health,
        days=days,
        by_tool=by_tool,
        calls=calls,
        memories=memories,
        waiting=waiting,
        sessions=sessions,
        ready=ready,
        queues=None if metrics is None else parse_queues(metrics),
        chart=None if days is None else _build_chart(days, since),
    )


def parse_queues(metrics: str) -> list[QueueLength]:
    """Return the lengths of the job queues from the text of the metrics."""
    counts: dict[str, dict[str, int]] = {}
    for state, kind, value in _METRIC_LINE.findall(metrics):
        counts.setdefault(kind, {})[state] = int(float(value))
    return [QueueLength(kind, states.get("waiting", 0), states.get("failed", 0)) for kind, states in sorted(counts.items())]


async def _read(visit: Visit, scope: str, call: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of *call*; None if the key lacks *scope*, or the part of the platform is unavailable."""
    if not visit.can(scope):
        return None
    try:
        return await call()
    except ApiError as error:
        if error.status < 500:
            raise
        return None


def _build_chart(days: models.Analytics, since: datetime) -> dict[str, object]:
    """Return calls and errors of each day. Days without calls are 0."""
    counts = {str(row.day): (row.calls - row.errors, row.errors) for row in days.data}
    dates = [(since + timedelta(days=offset)).date() for offset in range(_DAYS + 1)]
    values = [counts.get(date.isoformat(), (0, 0)) for date in dates]
    x = [int(datetime(date.year, date.month, date.day, tzinfo=UTC).timestamp()) for date in dates]
    return {
        "x": x,
        "series": [
            {"label": "calls", "values": [good + bad for good, bad in values], "kind": "accent", "bars": True},
            {"label": "errors", "values": [bad for _, bad in values], "kind": "bad", "bars": True},
        ],
    }


VIEWS = (View("GET", "/", show_overview),)
