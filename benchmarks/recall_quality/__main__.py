"""`python -m benchmarks.recall_quality`: measure, print, keep; see the package for what is measured."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.recall_quality import data, measures
from benchmarks.recall_quality.recallers import FullTextBaseline, Hybrid, Recaller
from rookery.engines import embedders

DATA = Path(__file__).parents[3] / "shared" / "data"
TABLE_MEASURES = ("frac@1", "frac@5", "frac@10", "any@5", "all@10", "MRR", "nDCG@10")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRankings:
    """One question's rankings by their names."""

    collection: str
    question: data.Question
    rankings: Mapping[str, list[str]]


async def rank_questions(recaller: Recaller, collections: Sequence[data.Collection]) -> list[QuestionRankings]:
    """Rank the documents of each collection for all its questions."""
    rankings: list[QuestionRankings] = []
    for collection in collections:
        await recaller.learn(collection)
        rankings += [
            QuestionRankings(collection=collection.name, question=question, rankings=await recaller.rankings(question.text))
            for question in collection.questions
        ]
    return rankings


def make_rows(model: str, rankings: Sequence[QuestionRankings]) -> list[dict[str, object]]:
    """Return a row for each question and ranking, for later analysis."""
    return [
        {
            "model": model,
            "mode": mode,
            "collection": question_rankings.collection,
            "question": question_rankings.question.id,
            "category": question_rankings.question.category,
            "gold": sorted(question_rankings.question.gold),
            "ranking": ranking,
            **measures.measure(ranking, question_rankings.question.gold),
        }
        for question_rankings in rankings
        for mode, ranking in question_rankings.rankings.items()
    ]


def format_table(name: str, rows: Sequence[Mapping[str, object]]) -> Table:
    """Return the table of one data set: each model and mode, over all and by category."""
    table = Table(title=f"{name} (%; MRR over the top {measures.DEPTH})", title_justify="left")
    table.add_column("model")
    table.add_column("mode")
    table.add_column("category")
    table.add_column("n", justify="right")
    for measure in TABLE_MEASURES:
        table.add_column(measure, justify="right")
    for model, mode in dict.fromkeys((str(row["model"]), str(row["mode"])) for row in rows):
        ranked = [row for row in rows if (row["model"], row["mode"]) == (model, mode)]
        categories = sorted({str(row["category"]) for row in ranked})
        for category in ["all", *(categories if len(categories) > 1 else [])]:
            counted = [row for row in ranked if category in {"all", row["category"]}]
            means = measures.means([{measure: float(str(row[measure])) for measure in measures.MEASURES} for row in counted])
            figures = [f"{means[measure] * 100:.1f}" for measure in TABLE_MEASURES]
            table.add_row(model, mode, category, str(len(counted)), *figures, style="bold" if category == "all" else "dim")
        table.add_section()
    return table


async def run(sets: Mapping[str, list[data.Collection]], *, addresses: Sequence[str], out: Path | None, console: Console) -> None:
    """Measure the floor and each embedder on *sets*."""
    with tempfile.TemporaryDirectory() as folder:
        engines = [embedders.open(address, data_dir=Path(folder)) for address in addresses]
        recallers: list[tuple[str, Recaller]] = [("bm25", FullTextBaseline()), *((engine.model, Hybrid(engine)) for engine in engines)]
        for name, collections in sets.items():
            rows: list[dict[str, object]] = []
            for model, recaller in recallers:
                start = time.perf_counter()
                rows += make_rows(model, await rank_questions(recaller, collections))
                console.log(f"{name}, {model}: {time.perf_counter() - start:.0f} s")
            console.print(format_table(name, rows))
            if out is not None:
                (out / f"{name.lower().replace(' ', '-')}.json").write_text(json.dumps(rows, indent=1))
        for _, recaller in recallers:
            await recaller.close()
        for engine in engines:
            await engine.close()


def main() -> int:
    """Run the command; 2 when the data is not there."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall_quality", description="Measure how often recall finds what was asked for."
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the data sets (default: ../shared/data beside the repository)")
    parser.add_argument("--out", type=Path, help="folder for each question's result, as JSON")
    parser.add_argument("--set", dest="sets", action="append", default=[], help="only this data set; may be given more than once")
    parser.add_argument("--embedder", action="append", default=[], help="address of an embedder (default: embedded: and embedded:f32)")
    options = parser.parse_args()
    try:
        sets = data.sets(options.data)
    except FileNotFoundError as error:
        sys.stderr.write(f"There is no data to measure with: {error.filename} is missing. Name its folder with --data.\n")
        return 2
    unknown = set(options.sets) - set(sets)
    if unknown:
        parser.error(f"unknown set {', '.join(sorted(unknown))}; there are {', '.join(sets)}")
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
    selected = {name: sets[name] for name in options.sets or sets}
    asyncio.run(run(selected, addresses=options.embedder or list(embedders.ADDRESSES), out=options.out, console=Console()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
