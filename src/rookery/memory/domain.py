"""The registration of the memory domain."""

from __future__ import annotations

from rookery.kernel.domain import Domain
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.working_context import WorkingContextFinder
from rookery.memory.api import MemoryApi
from rookery.memory.core_wiring import MemoryPorts
from rookery.memory.jobs import MemoryJobs
from rookery.memory.retention import MemoryPurge
from rookery.memory.wiring import MemoryServices

_ORPHANS_INTERVAL_S = 24 * 3600
"""Interval of the search for texts that a killed process left without a memory. The first one is at the start, when they are there."""


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    services, ports = runtime.use(MemoryServices), runtime.use(MemoryPorts)
    api = MemoryApi(
        remember=services.remember,
        records=services.records,
        recall=services.recall,
        search=services.search,
        listing=services.listing,
        map=services.map,
        feedback=services.feedback,
        recall_log=services.recall_log,
        context=services.context,
        serializer=services.serializer,
        mode=runtime.settings.recall_mode,
        contexts=runtime.use(WorkingContextFinder),
    )

    async def probe_vectors() -> str:
        await ports.vectors.count(0)
        await services.indexer.recheck_writes("vectors")
        return "ok"

    async def probe_texts() -> str:
        await ports.texts.setup()
        await services.indexer.recheck_writes("texts")
        return "ok"

    return Domain(
        operations=[("/v1/brain", api.operations())],
        tool_servers=[api.server()],
        job_kinds=MemoryJobs(
            db=runtime.db,
            queue=runtime.jobs,
            indexer=services.indexer,
            clock=runtime.clock,
            # An embedder on another host takes large batches of several processes at once, and no core of this one.
            shares=runtime.shares if runtime.settings.embedder.reveal().startswith("embedded:") else None,
        ).kinds(),
        periodic_tasks=[
            PeriodicTask(name="results of recalls", interval_s=0.5, run=services.recall_buffer.flush),
            PeriodicTask(name="training examples", interval_s=0.5, run=services.training.flush),
            PeriodicTask(name="expired memories", interval_s=60, run=services.retention.sweep),
            PeriodicTask(name="texts without a memory", interval_s=_ORPHANS_INTERVAL_S, run=services.orphaned_texts.remove, is_single=True),
            PeriodicTask(name="embedding migration", interval_s=30, run=services.migration.run_periodic),
        ],
        probes={"vectors": probe_vectors, "texts": probe_texts},
        purgers=[MemoryPurge(runtime.jobs, runtime.clock)],
    )
