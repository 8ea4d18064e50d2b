"""
The metrics of the server for Prometheus.

Each platform has a registry of its own. States such as a backlog or the health of an engine are read when a scrape needs them. Each
source has its own time-out, so that a slow engine delays no other figures.

If several processes share the address, a scrape reaches any of them, so the page of each has the figures of all. The label `process` keeps
their series apart: a sum would fall when a process is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Literal, TypeVar

import orjson
import prometheus_client
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rookery.kernel.logs import FailureLog
from rookery.kernel.server_group import ServerGroup

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
        is_shared: The figures are those of the whole store, so that one process reports them for all.
    """

    name: str
    metrics: Sequence[MetricDescription]
    read: Callable[[], Awaitable[Sequence[MetricSample]]]
    is_shared: bool = False
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


_PROCESS_UP = MetricDescription(
    "rookery_server_process_up", "gauge", "1: the figures of this server process are on the page; 0: it did not answer.", ("process",)
)
"""Only on the page of several processes."""

PROCESS_METRICS_PATH = "/metrics"
"""The path of `Metrics.export` on the Unix socket of a process."""


class Metrics:
    """
    The metrics of this process; created once, before anything is counted.

    Args:
        group: The processes whose figures the page has.
        source_timeout_s: Longest wait for one source during a scrape.
    """

    def __init__(self, *, group: ServerGroup | None = None, source_timeout_s: float = SOURCE_TIMEOUT_S) -> None:
        self._group = ServerGroup() if group is None else group
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
        group = self._group
        (own, own_up), (shared, shared_up) = await asyncio.gather(self._read(is_shared=False), self._read(is_shared=True))
        if group.count == 1:
            page = _Page(self._registry, [*own, *shared, *_build_families([_SOURCE_UP], [*own_up, *shared_up])])
            # Rendering thousands of lines takes 10 ms and more, which must not block the event loop.
            return await asyncio.to_thread(_encode, page, accept)
        own_page = _Page(self._registry, [*own, *_build_families([_SOURCE_UP], own_up)])
        timeout_s = 2 * self._source_timeout_s
        exports = await asyncio.gather(*(group.fetch(number, PROCESS_METRICS_PATH, timeout_s=timeout_s) for number in group.others))
        up = [(_PROCESS_UP.name, (str(group.number),), 1.0)]
        up += [(_PROCESS_UP.name, (str(number),), float(export is not None)) for number, export in zip(group.others, exports, strict=True)]
        common = [*shared, *_build_families([_SOURCE_UP], shared_up), *_build_families([_PROCESS_UP], up)]

        def render() -> tuple[bytes, str]:
            pages = {group.number: own_page.collect()}
            pages |= {number: _import(export) for number, export in zip(group.others, exports, strict=True) if export is not None}
            return _encode(_GroupPage(pages, common), accept)

        return await asyncio.to_thread(render)

    async def export(self) -> bytes:
        """Return the figures of this process as JSON, for the page of another process. Figures of the whole store are missing."""
        own, up = await self._read(is_shared=False)
        page = _Page(self._registry, [*own, *_build_families([_SOURCE_UP], up)])
        return await asyncio.to_thread(lambda: _export(page.collect()))

    async def _read(self, *, is_shared: bool) -> tuple[list[Metric], list[MetricSample]]:
        """Return the figures of the sources, and for each source whether it could be read."""
        sources = [source for source in self._sources if source.is_shared is is_shared]
        results = await asyncio.gather(*(source.samples(self._source_timeout_s) for source in sources))
        up = [(_SOURCE_UP.name, (source.name,), float(samples is not None)) for source, samples in zip(sources, results, strict=True)]
        states = [
            family for source, samples in zip(sources, results, strict=True) for family in _build_families(source.metrics, samples or ())
        ]
        return states, up


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


class _GroupPage(Collector):
    """
    The metrics of several processes on one page.

    Args:
        pages: The metric families of each process, by its number, which becomes the label `process`.
        common: The families of the whole store, which keep their labels.
    """

    def __init__(self, pages: Mapping[int, Iterable[Metric]], common: Iterable[Metric]) -> None:
        self._pages = pages
        self._common = common

    def collect(self) -> Iterable[Metric]:
        """Return each family once, with the samples of all processes."""
        families: dict[str, Metric] = {}
        for number, page in self._pages.items():
            for family in page:
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type, family.unit))
                for sample in family.samples:
                    merged.add_sample(sample.name, {**sample.labels, "process": str(number)}, sample.value)
        for family in self._common:
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type, family.unit))
            merged.samples.extend(family.samples)
        return families.values()


def _export(families: Iterable[Metric]) -> bytes:
    return orjson.dumps(
        [
            (
                family.name,
                family.documentation,
                family.type,
                family.unit,
                [(sample.name, sample.labels, sample.value) for sample in family.samples],
            )
            for family in families
        ]
    )


def _import(export: bytes) -> list[Metric]:
    families: list[Metric] = []
    for name, documentation, kind, unit, samples in orjson.loads(export):
        family = Metric(name, documentation, kind, unit)
        for sample in samples:
            family.add_sample(*sample)
        families.append(family)
    return families


def _encode(page: Collector, accept: str) -> tuple[bytes, str]:
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
