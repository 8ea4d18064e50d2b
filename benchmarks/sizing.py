"""
Compute the size of an installation: `python -m benchmarks.sizing` prints the tables of docs/how-to/sizing.md.

Every cost is a measurement, with the command that made it. What agents do, and how full machines may be, are choices: options of the
command.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

GB = 10**9
HOUR_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A measured cost of one memory, recall or call."""

    value: float
    unit: str
    what: str
    command: str


_COSTS = "python -m benchmarks.engine_costs --n 20000 --servers"

COSTS: Mapping[str, Cost] = {
    "records": Cost(value=1180, unit="bytes", what="A memory in the records in PostgreSQL, with indexes", command=_COSTS),
    "vectors": Cost(value=2051, unit="bytes", what="Its row in pgvector, with a vector of 384 floats", command=_COSTS),
    "hnsw": Cost(value=1249, unit="bytes", what="Its entries in the indexes of pgvector, mostly HNSW of half floats", command=_COSTS),
    "texts": Cost(value=1365, unit="bytes", what="Its words in OpenSearch, one copy", command=_COSTS),
    "embedded": Cost(value=4484, unit="bytes", what="A memory in the embedded engines: records, vectors, texts", command=_COSTS),
    "recall": Cost(value=30.0, unit="ms of CPU", what="A hybrid recall in Rookery, which embeds the question", command=_COSTS),
    "recall_postgresql": Cost(value=14.0, unit="ms of CPU", what="The same in PostgreSQL", command=_COSTS),
    "recall_opensearch": Cost(value=25.2, unit="ms of CPU", what="The same in OpenSearch", command=_COSTS),
    "remember": Cost(value=16.2, unit="ms of CPU", what="A memory in Rookery, from the request until it is indexed", command=_COSTS),
    "remember_postgresql": Cost(value=3.1, unit="ms of CPU", what="The same in PostgreSQL", command=_COSTS),
    "remember_opensearch": Cost(value=4.4, unit="ms of CPU", what="The same in OpenSearch", command=_COSTS),
    "process": Cost(value=281, unit="MB", what="A process of Rookery with its embedding model, resident", command=_COSTS),
}
"""Costs of a memory of 435 characters, one chunk, with the built-in embedding model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The decisions of the reader. Each is an option of the command."""

    recalls_per_hour: float = 60
    """Recalls of one agent in its busiest hour."""
    memories_per_hour: float = 6
    """Memories that one agent stores in its busiest hour."""
    utilisation: float = 0.6
    """Share of a core that may be busy in the busiest hour."""
    copies: float = 2
    """Copies of the data in PostgreSQL and in OpenSearch."""
    shard_gb: float = 30
    """Gigabytes of one shard of OpenSearch."""
    node_memory_gb: float = 96
    """Memory of a PostgreSQL server that its HNSW index may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """The needs of a number of memories. Gigabytes are 10^9 bytes, of one copy unless the name says otherwise."""

    memories: int
    records_gb: float
    vectors_gb: float
    hnsw_gb: float
    texts_gb: float
    disk_gb_all_copies: float
    installations: int
    shards: int
    embedding_core_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The needs of a number of agents in their busiest hour."""

    agents: int
    recalls_per_s: float
    memories_per_s: float
    server_cores: float
    indexing_cores: float
    postgresql_cores: float
    opensearch_cores: float
    processes: int
    processes_gb: float
    connections: int


CONNECTIONS_PER_PROCESS = 21
"""At most 10 to the records, 10 to the vectors, and one that receives wake-ups: `kernel/db/postgresql.py`, `kernel/postgresql.py`."""


def size_storage(memories: int, choices: Choices) -> Storage:
    """Return what *memories* need: bytes of one memory times their number."""
    part = {name: memories * COSTS[name].value / GB for name in ("records", "vectors", "hnsw", "texts")}
    # A search by HNSW reads rows of the index in no order, so all of it should be in memory. A workspace is in one installation.
    installations = max(1, math.ceil(part["hnsw"] / choices.node_memory_gb))
    return Storage(
        memories=memories,
        records_gb=part["records"],
        vectors_gb=part["vectors"],
        hnsw_gb=part["hnsw"],
        texts_gb=part["texts"],
        disk_gb_all_copies=sum(part.values()) * choices.copies,
        installations=installations,
        shards=installations * max(1, math.ceil(part["texts"] / installations / choices.shard_gb)),
        embedding_core_hours=memories * COSTS["remember"].value / 1000 / HOUR_S,
    )


def size_load(agents: int, choices: Choices) -> Load:
    """Return what *agents* need: requests per second times seconds of CPU, divided by the share of a core that may be busy."""
    recalls, memories = agents * choices.recalls_per_hour / HOUR_S, agents * choices.memories_per_hour / HOUR_S

    def cores(recall: str | None, remember: str | None) -> float:
        busy_ms = (recalls * COSTS[recall].value if recall else 0) + (memories * COSTS[remember].value if remember else 0)
        return busy_ms / 1000 / choices.utilisation

    server, indexing = cores("recall", None), cores(None, "remember")
    processes = max(1, math.ceil(server)) + max(1, math.ceil(indexing))  # a process uses about one core
    return Load(
        agents=agents,
        recalls_per_s=recalls,
        memories_per_s=memories,
        server_cores=server,
        indexing_cores=indexing,
        postgresql_cores=cores("recall_postgresql", "remember_postgresql"),
        opensearch_cores=cores("recall_opensearch", "remember_opensearch"),
        processes=processes,
        processes_gb=processes * COSTS["process"].value / 1000,
        connections=processes * CONNECTIONS_PER_PROCESS,
    )


def format_number(value: float) -> str:
    """Return a number with two significant digits below ten, and without decimals above."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def render_costs() -> str:
    """Return the table of measured costs."""
    rows = [[cost.what, f"{format_number(cost.value)} {cost.unit}"] for cost in COSTS.values()]
    return render_table(["What", "Measured"], rows)


def render_storage(sizes: Sequence[int], choices: Choices) -> str:
    """Return the table of memories."""
    rows = [size_storage(size, choices) for size in sizes]
    lines: list[tuple[str, Iterator[str]]] = [
        ("Records in PostgreSQL, GB", (format_number(row.records_gb) for row in rows)),
        ("Vectors in pgvector, GB", (format_number(row.vectors_gb) for row in rows)),
        ("Its indexes, GB, which should be in memory", (format_number(row.hnsw_gb) for row in rows)),
        ("Words in OpenSearch, GB", (format_number(row.texts_gb) for row in rows)),
        (f"Disk with {choices.copies:g} copies of all, GB", (format_number(row.disk_gb_all_copies) for row in rows)),
        (
            f"Installations, so that the indexes of each fit {choices.node_memory_gb:g} GB",
            (format_number(row.installations) for row in rows),
        ),
        (f"Shards of OpenSearch of at most {choices.shard_gb:g} GB, in all", (format_number(row.shards) for row in rows)),
        ("Core-hours to store and embed all once", (format_number(row.embedding_core_hours) for row in rows)),
    ]
    return render_table(["Memories", *(f"{size:,}" for size in sizes)], [[name, *values] for name, values in lines])


def render_load(counts: Sequence[int], choices: Choices) -> str:
    """Return the table of agents."""
    rows = [size_load(count, choices) for count in counts]
    lines: list[tuple[str, Iterator[str]]] = [
        ("Recalls per second", (format_number(row.recalls_per_s) for row in rows)),
        ("New memories per second", (format_number(row.memories_per_s) for row in rows)),
        ("Cores of Rookery's servers", (format_number(row.server_cores) for row in rows)),
        ("Cores of Rookery's workers, for new memories", (format_number(row.indexing_cores) for row in rows)),
        ("Cores of PostgreSQL", (format_number(row.postgresql_cores) for row in rows)),
        ("Cores of OpenSearch", (format_number(row.opensearch_cores) for row in rows)),
        ("Processes of Rookery", (format_number(row.processes) for row in rows)),
        ("Their memory, GB", (format_number(row.processes_gb) for row in rows)),
        ("Connections to PostgreSQL, at most", (format_number(row.connections) for row in rows)),
    ]
    return render_table(["Agents", *(f"{count:,}" for count in counts)], [[name, *values] for name, values in lines])


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


MEMORIES = (1_000_000, 100_000_000, 1_000_000_000)
AGENTS = (10, 1_000, 10_000)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--memories", type=int, nargs="+", default=MEMORIES)
    parser.add_argument("--agents", type=int, nargs="+", default=AGENTS)
    for choice in fields(Choices):
        parser.add_argument(f"--{choice.name.replace('_', '-')}", type=float, default=choice.default)
    options = parser.parse_args()
    choices = replace(Choices(), **{choice.name: getattr(options, choice.name) for choice in fields(Choices)})
    print("\n\n".join([render_costs(), render_storage(options.memories, choices), render_load(options.agents, choices)]))


if __name__ == "__main__":
    main()
