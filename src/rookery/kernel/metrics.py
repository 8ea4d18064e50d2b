"""
What this process counted and timed, as Prometheus reads it (D-05).

Counting is a dictionary and an addition, since every request does it; families, names and text are made when somebody asks.
What is a state of something (a backlog, the health of an engine) is read then too, each source within a bound of its own, so
that a slow engine takes its own figures from an answer and no others.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeVar

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from rookery.kernel.log_limits import FailureLog

_log = structlog.stdlib.get_logger("rookery.metrics")

MetricKind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

SOURCE_TIMEOUT_S = 1.0
"""So long a scrape waits for one source."""

MAX_LABEL_SETS = 2000
"""So many combinations of labels one metric may have; further ones are counted together, under `other`."""

OTHER_LABEL = "other"

DEFAULT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bounds for what a caller waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDescription:
    """A metric's name, as Prometheus shows it, what kind it is, what it says, and by which labels."""

    name: str
    kind: MetricKind
    help_text: str
    labels: Labels = ()


@dataclass(slots=True)
class DurationBuckets:
    """Durations of one combination of labels: how many in each bucket, and their sum in seconds."""

    bucket_counts: list[int]
    total_s: float = 0.0


MetricPoint = tuple[Labels, float | DurationBuckets]
MetricSample = tuple[str, Labels, float]
"""A metric's name, its labels' values, and its value now."""


class Counter:
    """A count that only grows, by its labels."""

    def __init__(self, described: MetricDescription) -> None:
        self.description = described
        self._counts: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Count *by* more."""
        counts = self._counts
        if labels in counts:
            counts[labels] += by
        else:
            self._add_label_set(labels, by)

    def points(self) -> list[MetricPoint]:
        """Return all counts."""
        return list(self._counts.items())

    def _add_label_set(self, labels: Labels, by: float) -> None:
        if len(self._counts) >= MAX_LABEL_SETS:
            labels = (OTHER_LABEL,) * len(labels)
        self._counts[labels] = self._counts.get(labels, 0) + by


class Histogram:
    """How long things took, by their labels."""

    def __init__(self, described: MetricDescription, bounds: Sequence[float]) -> None:
        self.description = described
        self.bounds = tuple(bounds)
        self._timings: dict[Labels, DurationBuckets] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Note that one took *seconds*."""
        timings = self._timings.get(labels) or self._add_label_set(labels)
        timings.bucket_counts[bisect_left(self.bounds, seconds)] += 1
        timings.total_s += seconds

    def points(self) -> list[MetricPoint]:
        """Return all timings, as they are now."""
        return [(labels, DurationBuckets(list(each.bucket_counts), each.total_s)) for labels, each in self._timings.items()]

    def _add_label_set(self, labels: Labels) -> DurationBuckets:
        if len(self._timings) >= MAX_LABEL_SETS:
            labels = (OTHER_LABEL,) * len(labels)
        return self._timings.setdefault(labels, DurationBuckets([0] * (len(self.bounds) + 1)))


@dataclass(slots=True, kw_only=True)
class MetricSource:
    """
    Figures that are read when somebody asks.

    Attributes:
        read: Asked by one scrape at a time; others that come meanwhile share its answer.
    """

    name: str
    metrics: Sequence[MetricDescription]
    read: Callable[[], Awaitable[Sequence[MetricSample]]]
    _reading: asyncio.Future[Sequence[MetricSample]] | None = field(default=None, init=False)
    _failures: FailureLog = field(default_factory=lambda: FailureLog(_log, "metrics.source_failed"), init=False)

    async def samples(self, timeout_s: float) -> Sequence[MetricSample] | None:
        """Return the figures; None: they could not be had in time. What is still being read is not asked for again."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self.read())
        reading = self._reading
        await asyncio.wait({reading}, timeout=timeout_s)
        if not reading.done():
            return None
        self._reading = None
        if reading.cancelled():
            return None
        error = reading.exception()
        if error is not None:
            self._failures.report(error, source=self.name)
            return None
        return reading.result()


_SOURCE_UP = MetricDescription(
    name="rookery_scrape_source_up",
    kind="gauge",
    help_text="1: these figures could be read in time; 0: they are missing from this answer.",
    labels=("source",),
)


_K = TypeVar("_K", Counter, Histogram)


class Metrics:
    """All figures of this process; made once, before anything counts."""

    def __init__(self) -> None:
        self._metrics: list[Counter | Histogram] = []
        self._sources: list[MetricSource] = []

    def add_counter(self, name: str, help_text: str, *labels: str) -> Counter:
        """Return a new counter; *name* ends in `_total`."""
        return self._register(Counter(MetricDescription(name=name, kind="counter", help_text=help_text, labels=labels)))

    def add_histogram(self, name: str, help_text: str, *labels: str, bounds: Sequence[float] = DEFAULT_BUCKETS_S) -> Histogram:
        """Return a new histogram; *name* ends in its unit, `_seconds`."""
        return self._register(Histogram(MetricDescription(name=name, kind="histogram", help_text=help_text, labels=labels), bounds))

    def add_source(self, source: MetricSource) -> None:
        """Add a source."""
        self._sources.append(source)

    def list_descriptions(self) -> list[MetricDescription]:
        """Return what there is, but for the figures of the interpreter and of the process that the library adds."""
        return [*(each.description for each in self._metrics), *(each for source in self._sources for each in source.metrics), _SOURCE_UP]

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """
        Return the figures as text, and its media type.

        Args:
            accept: The Accept header: OpenMetrics, if it is asked for; else Prometheus' own format.
        """
        found = await asyncio.gather(*(source.samples(SOURCE_TIMEOUT_S) for source in self._sources))
        tables: list[tuple[MetricDescription, Sequence[float], list[MetricPoint]]] = [
            (each.description, each.bounds if isinstance(each, Histogram) else (), each.points()) for each in self._metrics
        ]
        for source, samples in zip(self._sources, found, strict=True):
            points: dict[str, list[MetricPoint]] = {each.name: [] for each in source.metrics}
            for name, labels, value in samples or ():
                points[name].append((labels, value))
            tables += [(each, (), points[each.name]) for each in source.metrics]
        up: list[MetricPoint] = [((source.name,), float(samples is not None)) for source, samples in zip(self._sources, found, strict=True)]
        tables.append((_SOURCE_UP, (), up))
        # Making the text of some thousand lines takes 10 ms and more, which no request should wait for.
        return await asyncio.to_thread(_encode, tables, accept)

    def _register(self, kept: _K) -> _K:
        self._metrics.append(kept)
        return kept


class _MetricFamilies:
    """The figures of one moment, for the library's encoders."""

    def __init__(self, tables: Iterable[tuple[MetricDescription, Sequence[float], Sequence[MetricPoint]]]) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Return the families, those of the interpreter and the process last."""
        yield from (_build_family(described, bounds, points) for described, bounds, points in self._tables)
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        yield from registry.collect()


def _encode(tables: Sequence[tuple[MetricDescription, Sequence[float], Sequence[MetricPoint]]], accept: str) -> tuple[bytes, str]:
    encode, media_type = choose_encoder(accept)
    return encode(_MetricFamilies(tables)), media_type


def _build_family(described: MetricDescription, bounds: Sequence[float], points: Sequence[MetricPoint]) -> Metric:
    name, says, labels = described.name, described.help_text, described.labels
    if described.kind == "histogram":
        family = HistogramMetricFamily(name, says, labels=labels)
        for values, timings in points:
            if isinstance(timings, DurationBuckets):
                family.add_metric(values, _cumulative_buckets(bounds, timings.bucket_counts), timings.total_s)
        return family
    flat = (CounterMetricFamily if described.kind == "counter" else GaugeMetricFamily)(name, says, labels=labels)
    for values, value in points:
        if not isinstance(value, DurationBuckets):
            flat.add_metric(values, value)
    return flat


def _cumulative_buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return what each bucket and all below it hold, by its upper bound as text."""
    return list(zip((*map(str, bounds), "+Inf"), accumulate(counts), strict=True))
