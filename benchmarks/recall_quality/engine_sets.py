"""
Recall with the same data on each set of engines: `python -m benchmarks.recall_quality.engine_sets --data FOLDER`.

The sets are the embedded engines; one PostgreSQL for records, vectors (pgvector) and full text; and PostgreSQL with pgvector and
OpenSearch. The servers are those of the tests, started for the run and stopped after it. Every set gets the same memories in the same
order, and the same vectors.

Printed are the quality of each mode, and the overlap of the first ten memories with those of the embedded engines: the mean share of their
ten (or fewer) that the set found too, and the share of questions with the same ten in the same order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.recall_quality import data, measures
from benchmarks.recall_quality.__main__ import DATA, QuestionRankings, rank_questions
from benchmarks.recall_quality.questions import Collection
from benchmarks.recall_quality.recallers import MODES, EngineAddresses, Product
from rookery.engines import embedders
from tests.postgres import create_database, start_postgres
from tests.search_servers import make_data_folder, run_search_node

SETS = ("LoCoMo turns", "agents")
COMPARED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSet:
    """A set of engines; *addresses* returns empty ones at each call."""

    name: str
    addresses: Callable[[], EngineAddresses]


@contextmanager
def run_engine_sets(names: Sequence[str]) -> Generator[list[EngineSet]]:
    """Start the servers that the sets *names* need, and yield the sets."""
    numbers = count(1)
    with ExitStack() as stack:
        sets = [EngineSet(name="embedded", addresses=EngineAddresses)]
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        server = stack.enter_context(start_postgres(folder))
        if "postgresql" in names:

            def use_postgresql() -> EngineAddresses:
                address = create_database(server, f"recall_{next(numbers)}")
                return EngineAddresses(database=address, vectors=address, texts=address)

            sets.append(EngineSet(name="postgresql", addresses=use_postgresql))
        if "opensearch" in names:
            node = stack.enter_context(run_search_node("opensearch", stack.enter_context(make_data_folder())))

            def use_opensearch() -> EngineAddresses:
                address = create_database(server, f"recall_{next(numbers)}")
                return EngineAddresses(
                    database=address, vectors=address, texts=f"opensearch://127.0.0.1:{node.port}/recall-{next(numbers)}"
                )

            sets.append(EngineSet(name="opensearch", addresses=use_opensearch))
        yield sets


async def measure(collections: Mapping[str, list[Collection]], engine_sets: Sequence[EngineSet], console: Console) -> None:
    """Print a table for each data set."""
    with tempfile.TemporaryDirectory() as folder:
        embedder = embedders.open("embedded:", data_dir=Path(folder))
        for name, parts in collections.items():
            rankings = dict[str, list[QuestionRankings]]()
            for engine_set in engine_sets:
                product = Product(embedder, addresses=engine_set.addresses)
                rankings[engine_set.name] = await rank_questions(product, parts)
                await product.close()
                console.log(f"{name}, {engine_set.name}")
            console.print(format_table(name, rankings))
        await embedder.close()


def format_table(name: str, rankings: Mapping[str, Sequence[QuestionRankings]]) -> Table:
    """Return the quality and the overlap of each set and mode."""
    table = Table(title=f"{name}, {len(rankings['embedded'])} questions (%)", title_justify="left")
    for column in ("engines", "mode", "frac@10", "MRR", "overlap of ten", "same ten in order"):
        table.add_column(column, justify="left" if column in {"engines", "mode"} else "right")
    for engine_set, found in rankings.items():
        for mode in MODES:
            means = measures.means([measures.measure(one.rankings[mode], one.question.gold) for one in found])
            pairs = [
                (one.rankings[mode][:COMPARED], base.rankings[mode][:COMPARED])
                for one, base in zip(found, rankings["embedded"], strict=True)
            ]
            overlaps = [len(set(ranking) & set(expected)) / len(expected) for ranking, expected in pairs if expected]
            figures = (means["frac@10"], means["MRR"], sum(overlaps) / len(overlaps), sum(a == b for a, b in pairs) / len(pairs))
            table.add_row(engine_set, mode, *(f"{100 * figure:.1f}" for figure in figures))
        table.add_section()
    return table


def main() -> int:
    """Run the command; 2 when the data is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall_quality.engine_sets", description="Compare recall by sets of engines."
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets (default: ../shared/data beside the repository)")
    parser.add_argument("--engines", action="append", default=[], choices=["postgresql", "opensearch"], help="only this set (repeatable)")
    options = parser.parse_args()
    try:
        sets = data.sets(options.data)
    except FileNotFoundError as error:
        sys.stderr.write(f"There is no data to measure with: {error.filename} is missing. Name its folder with --data.\n")
        return 2
    with run_engine_sets(options.engines or ["postgresql", "opensearch"]) as engine_sets:
        asyncio.run(measure({name: sets[name] for name in SETS}, engine_sets, Console(width=120)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
