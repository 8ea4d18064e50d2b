"""
The metrics of this process for Prometheus (D-05).

Each platform has a registry of its own. States such as a backlog or the health of an engine are read when a scrape needs them. Each
source has its own time-out, so that a slow engine delays no other figures.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Literal, TypeVar

import prometheus_client
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

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


prometheus_client.disable_created_metrics()
"""Otherwise the library adds the start time of each counter as a metric of its own."""


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """The name, kind, help text and label names of a metric."""

    name: str
    kind: MetricKind
    help_text: str
    labels: Labels = ()


MetricSample = tuple[str, Labels, float]
"""The name of a metric, its label values, and its current value."""

M = TypeVar("M", prometheus_client.Counter, prometheus_client.Histogram)


class _LabelledMetric(Generic[M]):
    """A metric of the library with a limit on combinations of label values. Its own look-up of a combination takes 3 µs."""

    def __init__(self, metric: M) -> None:
        self._metric = metric
        self._by_labels: dict[Labels, M] = {}

    def _find(self, labels: Labels) -> M:
        metric = self._by_labels.get(labels)
        if metric is None:
            if len(self._by_labels) >= MAX_LABEL_SETS:
                labels = (OTHER_LABEL,) * len(labels)
            metric = self._by_labels[labels] = self._metric.labels(*labels) if labels else self._metric
        return metric


class Counter(_LabelledMetric[prometheus_client.Counter]):
    """A count by labels that only increases."""

    def add(self, *labels: str, by: float = 1) -> None:
        """Increase the count by *by*."""
        self._find(labels).inc(by)


class Histogram(_LabelledMetric[prometheus_client.Histogram]):
    """A histogram of durations by labels."""

    def observe(self, seconds: float, *labels: str) -> None:
        """Record a duration of *seconds*."""
        self._find(labels).observe(seconds)


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
    "rookery_scrape_source_up", "gauge", "1: these figures were read in time; 0: they are missing from this response.", ("source",)
)


class Metrics:
    """
    The metrics of this process; created once, before anything is counted.

    Args:
        source_timeout_s: Longest wait for one source during a scrape.
    """

    def __init__(self, *, source_timeout_s: float = SOURCE_TIMEOUT_S) -> None:
        self._source_timeout_s = source_timeout_s
        self._registry = CollectorRegistry()
        self._descriptions: list[MetricDescription] = []
        self._sources: list[MetricSource] = []

    def add_counter(self, name: str, help_text: str, *labels: str) -> Counter:
        """Return a new counter; *name* ends in `_total`."""
        self._descriptions.append(MetricDescription(name, "counter", help_text, labels))
        return Counter(prometheus_client.Counter(name, help_text, labels, registry=self._registry))

    def add_histogram(self, name: str, help_text: str, *labels: str, bounds: Sequence[float] = DEFAULT_BUCKETS_S) -> Histogram:
        """Return a new histogram; *name* ends in its unit, `_seconds`."""
        self._descriptions.append(MetricDescription(name, "histogram", help_text, labels))
        return Histogram(prometheus_client.Histogram(name, help_text, labels, registry=self._registry, buckets=bounds))

    def add_source(self, source: MetricSource) -> None:
        """Add a source."""
        self._sources.append(source)

    def list_descriptions(self) -> list[MetricDescription]:
        """Return all metrics, except those of the interpreter and the process, which the client library adds."""
        return [*self._descriptions, *(description for source in self._sources for description in source.metrics), _SOURCE_UP]

    async def scrape(self, accept: str) -> tuple[bytes, str]:
        """
        Return the metrics as text, and its media type.

        Args:
            accept: The Accept header. It selects OpenMetrics or the Prometheus text format.
        """
        results = await asyncio.gather(*(source.samples(self._source_timeout_s) for source in self._sources))
        up = [(_SOURCE_UP.name, (source.name,), float(samples is not None)) for source, samples in zip(self._sources, results, strict=True)]
        states = [
            family
            for source, samples in zip(self._sources, results, strict=True)
            for family in _build_families(source.metrics, samples or ())
        ]
        # Rendering thousands of lines takes 10 ms and more, which must not block the event loop.
        return await asyncio.to_thread(_encode, _Page(self._registry, [*states, *_build_families([_SOURCE_UP], up)]), accept)


class _Page(Collector):
    """The metrics of one page: those counted, those read for it, and those of the interpreter and the process."""

    def __init__(self, counted: CollectorRegistry, states: Sequence[Metric]) -> None:
        self._counted = counted
        self._states = states

    def collect(self) -> Iterable[Metric]:
        """Return the metric families in the order of the page."""
        process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=process)
        return chain(self._counted.collect(), self._states, process.collect())


def _encode(page: _Page, accept: str) -> tuple[bytes, str]:
    encode, media_type = choose_encoder(accept)
    return encode(page), media_type


def _build_families(descriptions: Sequence[MetricDescription], samples: Sequence[MetricSample]) -> list[Metric]:
    families = {
        description.name: (CounterMetricFamily if description.kind == "counter" else GaugeMetricFamily)(
            description.name, description.help_text, labels=description.labels
        )
        for description in descriptions
    }
    for name, labels, value in samples:
        families[name].add_metric(labels, value)
    return list(families.values())
