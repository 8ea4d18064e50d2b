"""
The metrics of this process for Prometheus (D-05).

Counting is one addition in a dictionary, because every request counts. Names and text are built when a scrape needs them. States such
as a backlog or the health of an engine are read at that time too. Each source has its own time-out, so that a slow engine delays no
other figures.
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

from rookery.kernel.logs import FailureLog

_log = structlog.stdlib.get_logger("rookery.metrics")

MetricKind = Literal["counter", "gauge", "histogram"]
Labels = tuple[str, ...]

SOURCE_TIMEOUT_S = 1.0
"""Longest wait for one source during a scrape."""

MAX_LABEL_SETS = 2000
"""Maximum combinations of label values per metric. Further ones are counted together under `other`."""

OTHER_LABEL = "other"

DEFAULT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Bucket bounds for durations that a caller waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricDescription:
    """The name, kind, help text and label names of a metric."""

    name: str
    kind: MetricKind
    help_text: str
    labels: Labels = ()


@dataclass(slots=True)
class DurationBuckets:
    """Durations of one combination of labels: the number in each bucket, and their sum in seconds."""

    bucket_counts: list[int]
    total_s: float = 0.0


MetricPoint = tuple[Labels, float | DurationBuckets]
MetricSample = tuple[str, Labels, float]
"""The name of a metric, its label values, and its current value."""


class Counter:
    """A count by labels that only increases."""

    def __init__(self, description: MetricDescription) -> None:
        self.description = description
        self._counts: dict[Labels, float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        """Increase the count by *by*."""
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
    """A histogram of durations by labels."""

    def __init__(self, description: MetricDescription, bounds: Sequence[float]) -> None:
        self.description = description
        self.bounds = tuple(bounds)
        self._timings: dict[Labels, DurationBuckets] = {}

    def observe(self, seconds: float, *labels: str) -> None:
        """Record a duration of *seconds*."""
        timings = self._timings.get(labels) or self._add_label_set(labels)
        timings.bucket_counts[bisect_left(self.bounds, seconds)] += 1
        timings.total_s += seconds

    def points(self) -> list[MetricPoint]:
        """Return a copy of all durations."""
        return [(labels, DurationBuckets(list(buckets.bucket_counts), buckets.total_s)) for labels, buckets in self._timings.items()]

    def _add_label_set(self, labels: Labels) -> DurationBuckets:
        if len(self._timings) >= MAX_LABEL_SETS:
            labels = (OTHER_LABEL,) * len(labels)
        return self._timings.setdefault(labels, DurationBuckets([0] * (len(self.bounds) + 1)))


@dataclass(slots=True, kw_only=True)
class MetricSource:
    """
    A group of figures that are read during a scrape.

    Attributes:
        read: Called by one scrape at a time. Concurrent scrapes share its result.
    """

    name: str
    metrics: Sequence[MetricDescription]
    read: Callable[[], Awaitable[Sequence[MetricSample]]]
    _reading: asyncio.Future[Sequence[MetricSample]] | None = field(default=None, init=False)
    _failures: FailureLog = field(default_factory=lambda: FailureLog(_log, "metrics.source_failed"), init=False)

    async def samples(self, timeout_s: float) -> Sequence[MetricSample] | None:
        """Return the figures; None if they are not available in time. A read in progress is not started again."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(self.read())
        reading_task = self._reading
        await asyncio.wait({reading_task}, timeout=timeout_s)
        if not reading_task.done():
            return None
        self._reading = None
        if reading_task.cancelled():
            return None
        error = reading_task.exception()
        if error is not None:
            self._failures.report(error, source=self.name)
            return None
        return reading_task.result()


_SOURCE_UP = MetricDescription(
    name="rookery_scrape_source_up",
    kind="gauge",
    help_text="1: these figures were read in time; 0: they are missing from this response.",
    labels=("source",),
)


_K = TypeVar("_K", Counter, Histogram)


class Metrics:
    """The metrics of this process; created once, before anything is counted."""

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
        """Return all metrics, except those of the interpreter and the process, which the client library adds."""
        return [
            *(metric.description for metric in self._metrics),
            *(description for source in self._sources for description in source.metrics),
            _SOURCE_UP,
        ]

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """
        Return the metrics as text, and its media type.

        Args:
            accept: The Accept header. It selects OpenMetrics or the Prometheus text format.
        """
        results = await asyncio.gather(*(source.samples(SOURCE_TIMEOUT_S) for source in self._sources))
        tables: list[tuple[MetricDescription, Sequence[float], list[MetricPoint]]] = [
            (metric.description, metric.bounds if isinstance(metric, Histogram) else (), metric.points()) for metric in self._metrics
        ]
        for source, samples in zip(self._sources, results, strict=True):
            points: dict[str, list[MetricPoint]] = {description.name: [] for description in source.metrics}
            for name, labels, value in samples or ():
                points[name].append((labels, value))
            tables += [(description, (), points[description.name]) for description in source.metrics]
        up: list[MetricPoint] = [
            ((source.name,), float(samples is not None)) for source, samples in zip(self._sources, results, strict=True)
        ]
        tables.append((_SOURCE_UP, (), up))
        # Rendering thousands of lines takes 10 ms and more, which must not block the event loop.
        return await asyncio.to_thread(_encode, tables, accept)

    def _register(self, metric: _K) -> _K:
        self._metrics.append(metric)
        return metric


class _MetricFamilies:
    """A snapshot of the metrics for the encoders of the client library."""

    def __init__(self, tables: Iterable[tuple[MetricDescription, Sequence[float], Sequence[MetricPoint]]]) -> None:
        self._tables = tables

    def collect(self) -> Iterable[Metric]:
        """Return the metric families, those of the interpreter and the process last."""
        yield from (_build_family(description, bounds, points) for description, bounds, points in self._tables)
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        yield from registry.collect()


def _encode(tables: Sequence[tuple[MetricDescription, Sequence[float], Sequence[MetricPoint]]], accept: str) -> tuple[bytes, str]:
    encode, media_type = choose_encoder(accept)
    return encode(_MetricFamilies(tables)), media_type


def _build_family(description: MetricDescription, bounds: Sequence[float], points: Sequence[MetricPoint]) -> Metric:
    name, help_text, labels = description.name, description.help_text, description.labels
    if description.kind == "histogram":
        family = HistogramMetricFamily(name, help_text, labels=labels)
        for values, timings in points:
            if isinstance(timings, DurationBuckets):
                family.add_metric(values, _cumulative_buckets(bounds, timings.bucket_counts), timings.total_s)
        return family
    flat = (CounterMetricFamily if description.kind == "counter" else GaugeMetricFamily)(name, help_text, labels=labels)
    for values, value in points:
        if not isinstance(value, DurationBuckets):
            flat.add_metric(values, value)
    return flat


def _cumulative_buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Return the cumulative count of each bucket by its upper bound as text."""
    return list(zip((*map(str, bounds), "+Inf"), accumulate(counts), strict=True))
