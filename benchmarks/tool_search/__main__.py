"""
`python -m benchmarks.tool_search`: the figures of both halves, of meaning and words together and of each alone, and the time of a search.

`--grid` tries weights on the tuned half alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.tool_search.labelled import LABELLED, TAGLINES, LabelledTool
from rookery.access.models import Caller
from rookery.engines import embedders, similarity, upstreams
from rookery.engines.similarity.cache import SimilarityCache
from rookery.kernel.db import open_database
from rookery.kernel.http.operation_tools import RenderedOutput
from rookery.kernel.working_context import CallSession
from rookery.migrations import migrate
from rookery.tools.catalogue import Catalogue
from rookery.tools.discovery.tool_search import (
    SEMANTIC_WEIGHT,
    ToolDocument,
    ToolSearch,
    build_tool_document,
    combine_scores,
    score_by_words,
)
from rookery.tools.models import BuiltinTarget, JsonObject, Server
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.supervision.session_pool import SessionPool

SERVERS_OF_ALL = 16
ROUNDS = 300

CALLER = Caller(
    key_id="bench",
    key_kind="api",
    key_name="bench",
    workspace_id=1,
    public_workspace_id=1,
    scopes=frozenset({"*"}),
    agent_id=None,
    environment="live",
    servers=None,
    tools=None,
    orgs=None,
    projects=None,
    tool_limits={},
    address="127.0.0.1",
    request_id="req_bench",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool of a built-in server."""

    name: str
    description: str
    input_schema: Mapping[str, object]
    annotations: Mapping[str, object]
    output_schema: Mapping[str, object] = field(default_factory=lambda: {"type": "object"})
    required_scope: str = "mcp:read"
    meta: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def accepted_schema(self) -> Mapping[str, object]:
        """The published schema, which lists all arguments."""
        return self.input_schema


@dataclass(frozen=True, slots=True)
class SyntheticServer:
    """One of the servers with 1,024 tools in total, each with its own description."""

    number: int

    @property
    def id(self) -> str:
        """One for each number."""
        return f"many-{self.number}"

    name, tagline, description = "Many tools", "Tools of every kind", ""

    def tools(self) -> list[Tool]:
        """Return the 64 tools of the labelled set."""
        return [
            Tool(
                name=f"{tool.name}_{self.number}",
                description=f"{tool.description} Of team {self.number}.",
                input_schema=schema(tool),
                annotations={},
            )
            for tool in LABELLED
        ]

    async def call(
        self, tool: str, arguments: Mapping[str, object], caller: Caller, *, session: CallSession | None = None
    ) -> Mapping[str, object]:
        """Return nothing; the benchmark makes no calls."""
        del tool, arguments, caller, session
        return {}

    def render(self, tool: str, output: Mapping[str, object], arguments: Mapping[str, object]) -> RenderedOutput:
        """Return an empty text; the benchmark makes no calls."""
        del tool, arguments
        return RenderedOutput("", output)

    def compact(self, tool: str, text: str, structured: Mapping[str, object]) -> Mapping[str, object]:
        """Return *structured*; the benchmark makes no calls."""
        del tool, text
        return structured


def schema(tool: LabelledTool) -> JsonObject:
    """Return the schema of its arguments."""
    return {"type": "object", "properties": {name: {"type": "string", "description": text} for name, text in tool.arguments.items()}}


def definition(tool: LabelledTool) -> JsonObject:
    """Return the tool as its server would list it."""
    return {"name": tool.name, "description": tool.description, "inputSchema": schema(tool)}


def make_documents(tools: Sequence[LabelledTool]) -> list[ToolDocument]:
    """Return the search document of each tool."""
    servers = {name: Server(id=name, name=name, tagline=tagline, target=BuiltinTarget()) for name, tagline in TAGLINES.items()}
    return [build_tool_document(servers[tool.server], definition(tool)) for tool in tools]


def questions_of(half: str) -> list[tuple[str, int]]:
    """Return the questions of a half, each with the number of its tool."""
    of_people = [(str(getattr(tool, half)), at) for at, tool in enumerate(LABELLED)]
    return of_people + [(tool.agents, at) for at, tool in enumerate(LABELLED) if (at % 2 == 0) == (half == "tuned")]


def rank_positions(questions: Sequence[tuple[str, int]], scores: Sequence[Sequence[float]]) -> list[int]:
    """Return the rank, from 1, of the right tool for each question."""
    ranks: list[int] = []
    for (_, right), row in zip(questions, scores, strict=True):
        order = sorted(range(len(row)), key=lambda tool: (-row[tool], tool))
        ranks.append(order.index(right) + 1)
    return ranks


def format_row(name: str, places: Sequence[int]) -> str:
    """Return one line of the table."""
    count = len(places)
    first, five = sum(place == 1 for place in places), sum(place <= 5 for place in places)
    return (
        f"{name:28} @1 {100 * first / count:5.1f}   @5 {100 * five / count:5.1f}   MRR {statistics.mean(1 / place for place in places):.3f}"
    )


async def print_search_time(folder: Path, nearness: SimilarityCache) -> None:
    """Print the time of a search among 1,024 tools; each query is new."""
    migrate("embedded:", data_dir=folder)
    db = open_database("embedded:", data_dir=folder)
    servers = [SyntheticServer(number) for number in range(SERVERS_OF_ALL)]
    sessions = SessionPool(upstreams.open(servers))
    roster = ServerRegistry(builtins=[upstreams.build_builtin_entry(server) for server in servers])
    catalogue = Catalogue(db, sessions, roster)
    await sessions.start()
    await catalogue.start()
    for server in catalogue.list_servers(CALLER):
        await catalogue.wait_listed(server)
    search = ToolSearch(catalogue, roster, nearness)
    started = time.perf_counter()
    await search.preload_embeddings()
    learnt_s = time.perf_counter() - started
    count = sum(len(catalogue.list_tools(CALLER, server)) for server in catalogue.list_servers(CALLER))
    took: list[float] = []
    for number in range(ROUNDS):
        tool = LABELLED[number % len(LABELLED)]
        started = time.perf_counter()
        results = await search.find(CALLER, f"{tool.held_out} for team {number}")
        took.append((time.perf_counter() - started) * 1000)
        assert results, tool.held_out
    took.sort()
    print(
        f"{count} tools: p50 {took[len(took) // 2]:.1f} ms, p99 {took[len(took) * 99 // 100]:.1f} ms; all learnt once in {learnt_s:.1f} s"
    )
    await catalogue.aclose()
    await sessions.aclose()
    await db.close()


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grid", action="store_true")
    parser.add_argument("--misses", action="store_true", help="Which questions of the tuned half do not find their tool first.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        embedder = embedders.open("embedded:", data_dir=Path(folder))
        nearness = similarity.open(embedder)
        documents = make_documents(LABELLED)
        texts = [document.embedded_text for document in documents]
        await nearness.preload(texts)
        for half in ("tuned", "held_out"):
            questions = questions_of(half)
            near = [[similarity or 0.0 for similarity in await nearness.compare(question, texts)] for question, _ in questions]
            words = [score_by_words(question, documents) for question, _ in questions]
            both = [[combine_scores(*pair) for pair in zip(*scores, strict=True)] for scores in zip(words, near, strict=True)]
            print(format_row(f"{half}: both", rank_positions(questions, both)))
            print(format_row(f"{half}: meaning alone", rank_positions(questions, near)))
            print(format_row(f"{half}: words alone", rank_positions(questions, words)))
            if half == "tuned" and options.grid:
                for weight in [step / 20 for step in range(21)]:
                    tried = [
                        [combine_scores(*pair, semantic_weight=weight) for pair in zip(*scores, strict=True)]
                        for scores in zip(words, near, strict=True)
                    ]
                    print(
                        format_row(
                            f"  by meaning {weight:.2f}{' *' if weight == SEMANTIC_WEIGHT else ''}", rank_positions(questions, tried)
                        )
                    )
            if half == "tuned" and options.misses:
                for (question, right), place in zip(questions, rank_positions(questions, both), strict=True):
                    if place > 1:
                        print(f"  {place:3}  {LABELLED[right].server}/{LABELLED[right].name}: {question}")
        await print_search_time(Path(folder), nearness)
        await nearness.aclose()
        await embedder.close()


if __name__ == "__main__":
    started = time.perf_counter()
    asyncio.run(main())
    print(f"{time.perf_counter() - started:.0f} s")
