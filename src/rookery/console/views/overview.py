"""The overview: health, calls, errors, memories and what waits."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from starlette.responses import Response

from rookery.console.day_charts import build_call_chart, build_duration_chart
from rookery.console.visit import View, Visit, open_call_group
from rookery_client import ApiError

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
    async with open_call_group() as group:
        start = group.create_task
        health = start(client.operation.check_readiness())
        days = start(_read(visit, "tools.read", lambda: client.analytics.get_tool_analytics(since=since, by="day", limit=_DAYS + 1)))
        by_tool = start(_read(visit, "tools.read", lambda: client.analytics.get_tool_analytics(since=since, by="tool", limit=6)))
        calls = start(_read(visit, "tools.read", lambda: client.analytics.list_tool_calls(per_page=_SHOWN_CALLS)))
        memories = start(_read(visit, "brain:read", lambda: client.memory.list_memories(per_page=5)))
        waiting = start(_read(visit, "brain:read", lambda: client.memory.list_memories(state="pending_embed", per_page=1)))
        sessions = start(_read(visit, "sessions.read", lambda: client.sessions.list_sessions(status="active", per_page=5)))
        ready = start(_read(visit, "plans.read", lambda: client.plans.list_tasks(state="ready", per_page=1)))
        costs = start(_read(visit, "usage:read", lambda: client.usage.get_usage(month="this", by=["workspace"])))
        metrics = start(_read(visit, "platform:metrics", client.operation.get_metrics))
    figures, texts = days.result(), metrics.result()
    return visit.render(
        "overview/overview.html",
        health=health.result(),
        days=figures,
        by_tool=by_tool.result(),
        calls=calls.result(),
        memories=memories.result(),
        waiting=waiting.result(),
        sessions=sessions.result(),
        ready=ready.result(),
        costs=[] if (sums := costs.result()) is None else [total for total in sums.items if total.cost],
        queues=None if texts is None else parse_queues(texts),
        charts=None
        if figures is None
        else [
            ("Tool calls by day", build_call_chart(figures, since.date(), _DAYS + 1)),
            ("Call time by day", build_duration_chart(figures, since.date(), _DAYS + 1)),
        ],
    )


def parse_queues(metrics: str) -> list[QueueLength]:
    """Return the lengths of the job queues from the text of the metrics."""
    counts: dict[str, dict[str, int]] = {}
    for state, kind, value in _METRIC_LINE.findall(metrics):
        counts.setdefault(kind, {})[state] = int(float(value))
    return [QueueLength(kind, states.get("waiting", 0), states.get("failed", 0)) for kind, states in sorted(counts.items())]


async def _read(visit: Visit, scope: str, call: Callable[[], Coroutine[object, object, T]]) -> T | None:
    """Return the result of *call*; None if the key lacks *scope*, or the part of the platform is unavailable."""
    if not visit.can(scope):
        return None
    try:
        return await call()
    except ApiError as error:
        if error.status < 500:
            raise
        return None


VIEWS = (View("GET", "/", show_overview),)
