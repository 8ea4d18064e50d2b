"""
Which figures the platform shows beyond those of HTTP and of the record store, and where each comes from.

No label is ever a workspace, a key or anything that a caller wrote: kinds, modes, codes, engines, and tool servers with tools that
were seen to exist.
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
from rookery.access.limits import Limiter
from rookery.access.usage import Usage
from rookery.kernel.events import (
    Bus,
    MemoryArchived,
    MemoryDeleted,
    MemoryRecalled,
    MemoryStored,
    MemorySuperseded,
    ReindexCompleted,
    ToolCalled,
)
from rookery.kernel.jobs import Done, Failed, Handler, Job, Jobs, Kind, Outcome, Paused, Standing
from rookery.kernel.metrics import OTHER, SOURCE_S, Described, Metrics, Sample, Source
from rookery.tools.calling.journal import Journal
from rookery.tools.catalogue import Catalogue
from rookery.tools.models import Health
from rookery.tools.supervision.sessions import Sessions

_LAG_EVERY_S = 0.05
"""A look costs some microseconds; of what is as short as this, most is not seen."""
_LAG_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_MOST_SERVERS = 200

Probes = Mapping[str, Callable[[], Awaitable[str]]]


@dataclass(frozen=True, slots=True)
class Watched:
    """What has figures to read."""

    jobs: Jobs
    bcrypt: Bcrypt
    limiter: Limiter
    usage: Usage
    catalogue: Catalogue
    sessions: Sessions
    tool_calls: Journal
    probes: Probes


class Figures:
    """Counts what happens, and reads what stands; `run` watches the event loop."""

    def __init__(self, metrics: Metrics, bus: Bus) -> None:
        self._catalogue: Catalogue | None = None
        self._batches = metrics.histogram("rookery_job_batch_duration_seconds", "One batch of jobs in work.", "kind")
        self._jobs = metrics.counter(
            "rookery_jobs_run_total", "Jobs that were worked, by how it ended: done, failed or paused.", "kind", "outcome"
        )
        self._recalls = metrics.histogram("rookery_recall_duration_seconds", "Recalls, without HTTP and the key.", "mode")
        self._changes = metrics.counter(
            "rookery_memory_changes_total", "Memories stored, superseded, deleted, archived, restored, re-indexed by a command.", "change"
        )
        self._calls = metrics.counter(
            "rookery_tool_calls_total", "Tool calls, by how they ended: ok, or the code of the error.", "server", "tool", "outcome"
        )
        self._call_durations = metrics.histogram("rookery_tool_call_duration_seconds", "Tool calls, refused ones too.", "server", "tool")
        self._lag = metrics.histogram(
            "rookery_event_loop_lag_seconds", f"How late the event loop woke up, looked at every {_LAG_EVERY_S} s.", bounds=_LAG_S
        )
        self._metrics = metrics
        self._kinds: list[str] = []
        self._listen(bus)

    def watch(self, watched: Watched) -> None:
        """Read these when somebody asks; once."""
        self._catalogue = watched.catalogue
        for source in _sources(watched, self._kinds):
            self._metrics.read_from(source)

    def observed(self, kind: Kind) -> Kind:
        """Return *kind* with its batches counted."""
        self._kinds.append(kind.name)
        return dataclasses.replace(kind, handler=self._counting(kind.name, kind.handler))

    async def run(self) -> NoReturn:
        """Look how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._lag.took(max(0.0, loop.time() - due))

    def _listen(self, bus: Bus) -> None:
        bus.subscribe(MemoryRecalled, lambda event: self._recalls.took(event.duration_ms / 1000, event.mode))
        bus.subscribe(MemoryStored, lambda _: self._changes.add("stored"))
        bus.subscribe(MemorySuperseded, lambda _: self._changes.add("superseded"))
        bus.subscribe(MemoryDeleted, lambda _: self._changes.add("deleted"))
        bus.subscribe(MemoryArchived, lambda event: self._changes.add("restored" if event.restored else "archived"))
        bus.subscribe(ReindexCompleted, lambda event: self._changes.add("reindexed", by=event.count))
        bus.subscribe(ToolCalled, self._called)

    def _called(self, event: ToolCalled) -> None:
        is_known = self._catalogue is not None and self._catalogue.is_listed(event.server, event.tool)
        tool = event.tool if is_known else OTHER
        self._calls.add(event.server, tool, event.code or "ok")
        self._call_durations.took(event.duration_ms / 1000, event.server, tool)

    def _counting(self, kind: str, work: Handler) -> Handler:
        async def counted(jobs: Sequence[Job]) -> Mapping[str, Outcome]:
            started = time.perf_counter()
            outcomes = await work(jobs)
            self._batches.took(time.perf_counter() - started, kind)
            for job in jobs:
                self._jobs.add(kind, _word(outcomes.get(job.id, Done())))
            return outcomes

        return counted


def _word(outcome: Outcome) -> str:
    match outcome:
        case Done():
            return "done"
        case Failed():
            return "failed"
        case Paused():
            return "paused"
        case _:
            assert_never(outcome)


def _sources(watched: Watched, kinds: Sequence[str]) -> list[Source]:
    async def build() -> Sequence[Sample]:
        return [("rookery_build_info", (metadata.version("rookery"), platform.python_version()), 1)]

    async def jobs() -> Sequence[Sample]:
        samples: list[Sample] = []
        found = await watched.jobs.standing()
        for kind in {*kinds, *found}:
            standing = found.get(kind, _NO_JOBS)
            samples += [
                ("rookery_jobs_waiting", (kind,), standing.waiting),
                ("rookery_jobs_failed", (kind,), standing.failed),
                ("rookery_jobs_oldest_age_seconds", (kind,), standing.oldest.total_seconds()),
            ]
        return samples

    async def access() -> Sequence[Sample]:
        return [
            ("rookery_bcrypt_runs_total", (), watched.bcrypt.runs),
            ("rookery_bcrypt_pending", (), watched.bcrypt.inside),
            ("rookery_usage_rows_dropped_total", (), watched.usage.dropped),
            ("rookery_rate_limits_local", (), float(watched.limiter.is_local)),
        ]

    async def tools() -> Sequence[Sample]:
        samples: list[Sample] = [
            ("rookery_tool_call_rows_lost_total", (), watched.tool_calls.lost),
            ("rookery_tool_call_rows_unwritten", (), watched.tool_calls.unwritten),
        ]
        for server in watched.catalogue.all_servers()[:_MOST_SERVERS]:
            now, sessions = watched.sessions.condition(server).health, watched.sessions.of(server.key)
            samples += [("rookery_tool_server_health", (server.id, health.value), float(health is now)) for health in Health]
            samples += [
                ("rookery_tool_sessions_open", (server.id,), sum(session.is_open for session in sessions)),
                ("rookery_tool_calls_in_flight", (server.id,), sum(session.in_flight for session in sessions)),
                ("rookery_tool_session_falls_total", (server.id,), watched.sessions.falls[server.id]),
                ("rookery_tool_breakers_open", (server.id,), watched.sessions.left_alone(server.key)),
            ]
        return samples

    async def engines() -> Sequence[Sample]:
        names = list(watched.probes)
        states = await asyncio.gather(*(_is_up(watched.probes[name]) for name in names))
        return [("rookery_engine_up", (name,), float(state)) for name, state in zip(names, states, strict=True)]

    return [
        Source(name="build", metrics=_BUILD, read=build),
        Source(name="jobs", metrics=_JOBS, read=jobs),
        Source(name="access", metrics=_ACCESS, read=access),
        Source(name="tools", metrics=_TOOLS, read=tools),
        Source(name="engines", metrics=_ENGINES, read=engines),
    ]


async def _is_up(probe: Callable[[], Awaitable[str]]) -> bool:
    try:
        async with asyncio.timeout(SOURCE_S / 2):
            return await probe() == "ok"
    except Exception:  # noqa: BLE001 - whatever an engine raises, it is not up; /readyz tells why
        return False


_NO_JOBS = Standing(waiting=0, failed=0, oldest=timedelta())

_BUILD = (Described(name="rookery_build_info", kind="gauge", says="Always 1; what runs is in the labels.", labels=("version", "python")),)
_JOBS = (
    Described(
        name="rookery_jobs_waiting",
        kind="gauge",
        says="Jobs that are not done, those in work included; of the whole store.",
        labels=("kind",),
    ),
    Described(
        name="rookery_jobs_failed",
        kind="gauge",
        says="Jobs that failed for good, and are tried again daily; of the whole store.",
        labels=("kind",),
    ),
    Described(
        name="rookery_jobs_oldest_age_seconds",
        kind="gauge",
        says="How long the oldest job has been waiting; of the whole store.",
        labels=("kind",),
    ),
)
_ACCESS = (
    Described(name="rookery_bcrypt_runs_total", kind="counter", says="How often bcrypt was run to check a secret."),
    Described(name="rookery_bcrypt_pending", kind="gauge", says="Secrets being hashed or checked, or waiting for it."),
    Described(
        name="rookery_usage_rows_dropped_total", kind="counter", says="Rows of usage lost because the record store was down for long."
    ),
    Described(name="rookery_rate_limits_local", kind="gauge", says="1: the counter store is down, and this process counts alone."),
)
_TOOLS = (
    Described(
        name="rookery_tool_call_rows_lost_total",
        kind="counter",
        says="Rows of tool calls that could not be written: of no form that the record store takes, or left when the server stopped.",
    ),
    Described(
        name="rookery_tool_call_rows_unwritten",
        kind="gauge",
        says="Rows of tool calls that wait for the record store. At 10,000, calls are refused until they are written.",
    ),
    Described(
        name="rookery_tool_server_health",
        kind="gauge",
        says="1 for the health that a tool server has, as this process sees it; 0 for the others.",
        labels=("server", "health"),
    ),
    Described(name="rookery_tool_sessions_open", kind="gauge", says="Open sessions with a tool server.", labels=("server",)),
    Described(name="rookery_tool_calls_in_flight", kind="gauge", says="Calls that a tool server is working on.", labels=("server",)),
    Described(
        name="rookery_tool_session_falls_total",
        kind="counter",
        says="How often a session with a tool server ended by itself or could not be opened.",
        labels=("server",),
    ),
    Described(
        name="rookery_tool_breakers_open",
        kind="gauge",
        says="Sessions with a tool server that fell over and over and are left alone for a while.",
        labels=("server",),
    ),
)
_ENGINES = (
    Described(name="rookery_engine_up", kind="gauge", says="1: the engine answers; the same question as /readyz asks.", labels=("engine",)),
)
