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
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.recall_quality import data, measures
from benchmarks.recall_quality.intervals import bootstrap_interval
from benchmarks.recall_quality.questions import Collection, Question
from benchmarks.recall_quality.recallers import Confidence, EngineAddresses, FullTextBaseline, Product, Recaller
from rookery.engines import embedders

DATA = Path(__file__).parents[3] / "shared" / "data"
KEPT_SHARE = 0.9
"""The share of answerable questions that the threshold of the confidence table keeps."""

BINS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.01)
COMPARED_MEASURES = ("frac@1", "frac@5", "frac@10", "MRR", "nDCG@10")
TABLE_MEASURES = ("frac@1", "frac@5", "frac@10", "any@5", "all@10", "MRR", "nDCG@10")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRankings:
    """One question's rankings by their names."""

    collection: str
    question: Question
    rankings: Mapping[str, list[str]]


async def rank_questions(recaller: Recaller, collections: Sequence[Collection]) -> list[QuestionRankings]:
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


async def measure_confidence(recaller: Product, collections: Sequence[Collection]) -> list[Confidence]:
    """Ask each question with and without its answers."""
    confidences = list[Confidence]()
    for collection in collections:
        await recaller.learn(collection)
        confidences += [await recaller.measure_confidence(question) for question in collection.questions]
    return confidences


def format_confidence(confidences: Mapping[str, Sequence[Confidence]]) -> Table:
    """
    Return how well the relevance of the best hit tells questions without an answer from those with one.

    *abstained* is the share of unanswerable questions below the threshold that keeps `KEPT_SHARE` of the answerable ones; *found* is the
    same with the threshold among the questions whose answer is among the hits. The last two are what `is_confident` does.
    """
    table = Table(title=f"Questions without an answer (%; {KEPT_SHARE:.0%} of the answerable ones kept)", title_justify="left")
    for column in ("set", "n", "threshold", "abstained", "found", "confident: kept", "abstained"):
        table.add_column(column, justify="left" if column == "set" else "right")
    pooled = [confidence for found in confidences.values() for confidence in found]
    for name, found in [*confidences.items(), ("all", pooled)]:
        best = [max((relevance for relevance, _ in confidence.hits), default=0.0) for confidence in found]
        unanswered = [max(confidence.unanswered_hits, default=0.0) for confidence in found]
        answered = [value for value, confidence in zip(best, found, strict=True) if any(is_answer for _, is_answer in confidence.hits)]
        thresholds = [sorted(values)[int((1 - KEPT_SHARE) * len(values))] for values in (best, answered)]
        abstained = [sum(value < threshold for value in unanswered) / len(unanswered) for threshold in thresholds]
        kept_share = sum(confidence.is_confident for confidence in found) / len(found)
        abstained_share = sum(not confidence.unanswered_is_confident for confidence in found) / len(found)
        shares = [f"{100 * share:.1f}" for share in (*abstained, kept_share, abstained_share)]
        table.add_row(name, str(len(found)), f"{thresholds[0]:.3f}", *shares)
    return table


def format_calibration(confidences: Mapping[str, Sequence[Confidence]]) -> Table:
    """Return the share of answers among the hits by their relevance; half of the questions have no answer. Each set has the same weight."""
    table = Table(title="Is a relevance the share of answers?", title_justify="left")
    for column in ("relevance", "mean", "answers", "hits"):
        table.add_column(column, justify="right")
    hits = [
        (relevance, is_answer, 1 / len(found))
        for found in confidences.values()
        for confidence in found
        for relevance, is_answer in (*confidence.hits, *((relevance, False) for relevance in confidence.unanswered_hits))
    ]
    for low, high in pairwise(BINS):
        binned = [hit for hit in hits if low <= hit[0] < high]
        total = sum(weight for *_, weight in binned)
        if binned:
            mean = sum(relevance * weight for relevance, _, weight in binned) / total
            share = sum(is_answer * weight for _, is_answer, weight in binned) / total
            table.add_row(f"{low:.2f} to {min(high, 1):.2f}", f"{mean:.2f}", f"{share:.2f}", str(len(binned)))
    return table


def format_differences(name: str, rows: Sequence[Mapping[str, object]], before: Sequence[Mapping[str, object]]) -> Table:
    """Return the differences to an earlier run of the same set, with paired bootstrap intervals over its questions."""
    table = Table(title=f"{name}: difference to the earlier run (points, 95 % interval)", title_justify="left")
    for column in ("model", "mode", "n", *COMPARED_MEASURES):
        table.add_column(column, justify="right" if column in COMPARED_MEASURES else "left")
    earlier = {_row_key(row): row for row in before}
    for model, mode in dict.fromkeys((str(row["model"]), str(row["mode"])) for row in rows):
        pairs = [(row, earlier[_row_key(row)]) for row in rows if (row["model"], row["mode"]) == (model, mode) and _row_key(row) in earlier]
        if not pairs:
            continue
        cells = list[str]()
        for measure in COMPARED_MEASURES:
            mean, low, high = bootstrap_interval([100 * (float(str(new[measure])) - float(str(old[measure]))) for new, old in pairs])
            cells.append(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]")
        table.add_row(model, mode, str(len(pairs)), *cells)
    return table


def _row_key(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["model"], row["mode"], row["collection"], row["question"]


async def run(sets: Mapping[str, list[Collection]], options: argparse.Namespace, console: Console) -> None:
    """Measure the floor and each embedder on *sets*."""
    with tempfile.TemporaryDirectory() as folder:
        engines = [embedders.open(address, data_dir=Path(folder)) for address in options.embedder or ["embedded:"]]
        products = [(engine.model, Product(engine, addresses=lambda: EngineAddresses(texts=options.texts))) for engine in engines]
        recallers: list[tuple[str, Recaller]] = [("bm25", FullTextBaseline()), *products]
        confidences = dict[str, list[Confidence]]()
        for name, collections in sets.items():
            rows: list[dict[str, object]] = []
            for model, recaller in recallers:
                start = time.perf_counter()
                rows += make_rows(model, await rank_questions(recaller, collections))
                console.log(f"{name}, {model}: {time.perf_counter() - start:.0f} s")
            console.print(format_table(name, rows))
            file_name = f"{name.lower().replace(' ', '-')}.json"
            if options.out is not None:
                (options.out / file_name).write_text(json.dumps(rows, indent=1))
            if options.against is not None and (options.against / file_name).exists():
                console.print(format_differences(name, rows, json.loads((options.against / file_name).read_bytes())))
            if options.confidence:
                for _, product in products:
                    confidences.setdefault(name, []).extend(await measure_confidence(product, collections))
        if confidences:
            console.print(format_confidence(confidences), format_calibration(confidences))
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
    parser.add_argument("--against", type=Path, help="folder that an earlier run wrote with --out, to compare with")
    parser.add_argument(
        "--confidence", action="store_true", help="also ask each question without its answers, and show what relevance says"
    )
    parser.add_argument("--set", dest="sets", action="append", default=[], help="only this data set; may be given more than once")
    parser.add_argument("--embedder", action="append", default=[], help="address of an embedder (default: embedded:)")
    parser.add_argument("--texts", default="embedded:", help="address of the full-text engine (default: embedded:)")
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
    asyncio.run(run(selected, options, Console()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
