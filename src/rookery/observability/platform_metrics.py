"""
The metrics of the platform, beyond those of HTTP and of the record store, and their sources.

No label is ever a workspace, a key or a text of a caller. Labels are kinds, modes, codes, engines, and known tool servers and tools.
"""

from __future__ import annotations

import asyncio
import dataclasses
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import NoReturn, assert_never

from rookery.access.hashing import Bcrypt
from rookery.access.rate_limits import RateLimiter
from rookery.access.usage_log import UsageLog
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import Job, JobDeferred, JobDone, JobFailed, JobHandler, JobKind, JobOutcome, JobPaused, JobQueue, JobQueueStats
from rookery.kernel.metrics import OTHER_LABEL, SOURCE_TIMEOUT_S, MetricDescription, Metrics, MetricSample, MetricSource
from rookery.memory.events import MemoryArchived, MemoryDeleted, MemoryRecalled, MemoryStored, MemorySuperseded, ReindexCompleted
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.catalogue import Catalogue
from rookery.tools.events import ToolCalled
from rookery.tools.models import HealthStatus
from rookery.tools.supervision.session_pool import SessionPool

_LAG_INTERVAL_S = 0.05
"""Interval of the lag measurement. It costs some microseconds; most delays shorter than the interval are missed."""
_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_MAX_SERVERS = 200

Probes = Mapping[str, Callable[[], Awaitable[str]]]


@dataclass(frozen=True, slots=True)
class MetricTargets:
    """The objects whose state is read during a scrape."""

    jobs: JobQueue
    bcrypt: Bcrypt
    limiter: RateLimiter
    usage: UsageLog
    catalogue: Catalogue
    sessions: SessionPool
    tool_calls: CallBuffer
    probes: Probes
    breakers: EngineBreakers


class PlatformMetrics:
    """Counts events and reads states. `measure_loop_lag` measures the delay of the event loop."""

    def __init__(self, metrics: Metrics, bus: EventBus) -> None:
        self._catalogue: Catalogue | None = None
        self._batches = metrics.add_histogram("rookery_job_batch_duration_seconds", "Duration of one batch of jobs.", "kind")
        self._jobs = metrics.add_counter(
            "rookery_jobs_run_total", "Jobs that were run, by outcome: done, failed or paused.", "kind", "outcome"
        )
        self._recalls = metrics.add_histogram(
            "rookery_recall_duration_seconds", "Duration of a recall, without HTTP and the check of the key.", "mode"
        )
        self._degraded_recalls = metrics.add_counter(
            "rookery_recalls_degraded_total",
            "Recalls without an index that their mode needs, because it was unavailable, by the mode used instead.",
            "mode",
        )
        self._changes = metrics.add_counter(
            "rookery_memory_changes_total",
            "Memories stored, superseded, deleted, archived, restored, or re-indexed by a command.",
            "change",
        )
        self._calls = metrics.add_counter(
            "rookery_tool_calls_total", "Tool calls, by outcome: ok, or the error code.", "server", "tool", "outcome"
        )
        self._call_durations = metrics.add_histogram(
            "rookery_tool_call_duration_seconds", "Duration of a tool call, including rejected calls.", "server", "tool"
        )
        self._lag = metrics.add_histogram(
            "rookery_event_loop_lag_seconds",
            f"Delay of the event loop, measured every {_LAG_INTERVAL_S} s.",
            bounds=_LAG_BUCKETS_S,
        )
        self._metrics = metrics
        self._kinds: list[str] = []
        self._subscribe(bus)

    def add_sources(self, targets: MetricTargets) -> None:
        """Add the sources of states. Call this once."""
        self._catalogue = targets.catalogue
        for source in _build_sources(targets, self._kinds):
            self._metrics.add_source(source)

    def instrument_kind(self, kind: JobKind) -> JobKind:
        """Return a copy of *kind* whose batches are counted and timed."""
        self._kinds.append(kind.name)
        return dataclasses.replace(kind, handler=self._instrument_handler(kind.name, kind.handler))

    async def measure_loop_lag(self) -> NoReturn:
        """Measure the delay of the event loop until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_INTERVAL_S
            await asyncio.sleep(_LAG_INTERVAL_S)
            self._lag.observe(max(0.0, loop.time() - due))

    def _subscribe(self, bus: EventBus) -> None:
        bus.subscribe(MemoryRecalled, self._count_recall)
        bus.subscribe(MemoryStored, lambda _: self._changes.add("stored"))
        bus.subscribe(MemorySuperseded, lambda _: self._changes.add("superseded"))
        bus.subscribe(MemoryDeleted, lambda _: self._changes.add("deleted"))
        bus.subscribe(MemoryArchived, lambda event: self._changes.add("restored" if event.restored else "archived"))
        bus.subscribe(ReindexCompleted, lambda event: self._changes.add("reindexed", by=event.count))
        bus.subscribe(ToolCalled, self._count_tool_call)

    def _count_recall(self, event: MemoryRecalled) -> None:
        self._recalls.observe(event.duration_ms / 1000, event.mode)
        if event.is_degraded:
            self._degraded_recalls.add(event.mode)

    def _count_tool_call(self, event: ToolCalled) -> None:
        is_known = self._catalogue is not None and self._catalogue.is_listed(event.server, event.tool)
        tool = event.tool if is_known else OTHER_LABEL
        self._calls.add(event.server, tool, event.code or "ok")
        self._call_durations.observe(event.duration_ms / 1000, event.server, tool)

    def _instrument_handler(self, kind: str, work: JobHandler) -> JobHandler:
        async def run_counted(jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
            started = time.perf_counter()
            outcomes = await work(jobs)
            self._batches.observe(time.perf_counter() - started, kind)
            for job in jobs:
                outcome = outcomes.get(job.id, JobDone())
                if not isinstance(outcome, JobDeferred):
                    self._jobs.add(kind, _outcome_label(outcome))
            return outcomes

        return run_counted


def _outcome_label(outcome: JobDone | JobFailed | JobPaused) -> str:
    match outcome:
        case JobDone():
            return "done"
        case JobFailed():
            return "failed"
        case JobPaused():
            return "paused"
        case _:
            assert_never(outcome)


def _build_sources(targets: MetricTargets, kinds: Sequence[str]) -> list[MetricSource]:
    async def build() -> Sequence[MetricSample]:
        return [("rookery_build_info", (metadata.version("rookery"), platform.python_version()), 1)]

    async def jobs() -> Sequence[MetricSample]:
        samples: list[MetricSample] = []
        all_stats = await targets.jobs.get_stats()
        for kind in {*kinds, *all_stats}:
            stats = all_stats.get(kind, _EMPTY_STATS)
            samples += [
                ("rookery_jobs_waiting", (kind,), stats.waiting),
                ("rookery_jobs_failed", (kind,), stats.failed),
                ("rookery_jobs_oldest_age_seconds", (kind,), stats.oldest_age.total_seconds()),
            ]
        return samples

    async def access() -> Sequence[MetricSample]:
        return [
            ("rookery_bcrypt_runs_total", (), targets.bcrypt.run_count),
            ("rookery_bcrypt_pending", (), targets.bcrypt.pending_count),
            ("rookery_usage_rows_dropped_total", (), targets.usage.dropped_count),
            ("rookery_rate_limits_local", (), float(targets.limiter.is_local)),
        ]

    async def tools() -> Sequence[MetricSample]:
        samples: list[MetricSample] = [
            ("rookery_tool_call_rows_lost_total", (), targets.tool_calls.lost),
            ("rookery_tool_call_rows_unwritten", (), targets.tool_calls.unwritten),
        ]
        for server in targets.catalogue.list_shared_servers()[:_MAX_SERVERS]:
            now, sessions = targets.sessions.get_health_state(server).health, targets.sessions.list_sessions(server.key)
            samples += [("rookery_tool_server_health", (server.id, health.value), float(health is now)) for health in HealthStatus]
            samples += [
                ("rookery_tool_sessions_open", (server.id,), sum(session.is_open for session in sessions)),
                ("rookery_tool_calls_in_flight", (server.id,), sum(session.in_flight for session in sessions)),
                ("rookery_tool_session_falls_total", (server.id,), targets.sessions.failure_counts[server.id]),
                ("rookery_tool_breakers_open", (server.id,), targets.sessions.count_open_breakers(server.key)),
            ]
        return samples

    async def engines() -> Sequence[MetricSample]:
        names = list(targets.probes)
        states = await asyncio.gather(*(_is_up(targets.probes[name]) for name in names))
        return [("rookery_engine_up", (name,), float(state)) for name, state in zip(names, states, strict=True)]

    async def breakers() -> Sequence[MetricSample]:
        samples: list[MetricSample] = []
        for breaker in targets.breakers:
            labels = (breaker.engine, breaker.operation)
            samples += [
                ("rookery_engine_breaker_open", labels, float(breaker.is_rejecting)),
                ("rookery_engine_call_failures_total", labels, breaker.failure_count),
            ]
        return samples

    return [
        MetricSource(name="build", metrics=_BUILD_METRICS, read=build),
        MetricSource(name="jobs", metrics=_JOB_METRICS, read=jobs, is_shared=True),
        MetricSource(name="access", metrics=_ACCESS_METRICS, read=access),
        MetricSource(name="tools", metrics=_TOOL_METRICS, read=tools),
        MetricSource(name="engines", metrics=_ENGINE_METRICS, read=engines),
        MetricSource(name="engine breakers", metrics=_BREAKER_METRICS, read=breakers),
    ]


async def _is_up(probe: Callable[[], Awaitable[str]]) -> bool:
    try:
        async with asyncio.timeout(SOURCE_TIMEOUT_S / 2):
            return await probe() == "ok"
    except Exception:  # noqa: BLE001 - any exception means that the engine is not up; /readyz shows the reason
        return False


_EMPTY_STATS = JobQueueStats(waiting=0, failed=0, oldest_age=timedelta())

_BUILD_METRICS = (
    MetricDescription("rookery_build_info", "gauge", "Always 1; the labels are the versions of Rookery and Python.", ("version", "python")),
)
_JOB_METRICS = (
    MetricDescription(
        "rookery_jobs_waiting", "gauge", "Jobs of the whole store that are not done, including those in progress.", ("kind",)
    ),
    MetricDescription("rookery_jobs_failed", "gauge", "Jobs of the whole store that have failed and are retried daily.", ("kind",)),
    MetricDescription("rookery_jobs_oldest_age_seconds", "gauge", "Age of the oldest waiting job of the whole store.", ("kind",)),
)
_ACCESS_METRICS = (
    MetricDescription("rookery_bcrypt_runs_total", "counter", "Runs of bcrypt to check a secret."),
    MetricDescription("rookery_bcrypt_pending", "gauge", "Secrets that are being hashed or checked, or wait for it."),
    MetricDescription(
        "rookery_usage_rows_dropped_total", "counter", "Usage records lost because the record store was unavailable for too long."
    ),
    MetricDescription("rookery_rate_limits_local", "gauge", "1: the counter store is unavailable, and this process counts on its own."),
)
_TOOL_METRICS = (
    MetricDescription(
        "rookery_tool_call_rows_lost_total",
        "counter",
        "Records of tool calls that could not be written: invalid for the record store, or unwritten when the server stopped.",
    ),
    MetricDescription(
        "rookery_tool_call_rows_unwritten",
        "gauge",
        "Records of tool calls that wait to be written. At 10,000, calls are rejected until they are written.",
    ),
    MetricDescription(
        "rookery_tool_server_health",
        "gauge",
        "1 for the current health of a tool server according to this process; 0 for the other values.",
        ("server", "health"),
    ),
    MetricDescription("rookery_tool_sessions_open", "gauge", "Open sessions with a tool server.", ("server",)),
    MetricDescription("rookery_tool_calls_in_flight", "gauge", "Calls that a tool server is processing.", ("server",)),
    MetricDescription(
        "rookery_tool_session_falls_total", "counter", "Sessions with a tool server that failed or could not be opened.", ("server",)
    ),
    MetricDescription(
        "rookery_tool_breakers_open",
        "gauge",
        "Sessions with a tool server that failed repeatedly and are paused by a circuit breaker.",
        ("server",),
    ),
)
_ENGINE_METRICS = (MetricDescription("rookery_engine_up", "gauge", "1: the engine responds, as in /readyz; 0: it does not.", ("engine",)),)
_BREAKER_METRICS = (
    MetricDescription(
        "rookery_engine_breaker_open",
        "gauge",
        "1: calls of the engine fail at once in this process, because the last ones failed.",
        ("engine", "operation"),
    ),
    MetricDescription(
        "rookery_engine_call_failures_total",
        "counter",
        "Calls of an engine for a request that failed or took too long.",
        ("engine", "operation"),
    ),
)
