"""`python -m benchmarks.peers`: measure, print, keep; see the package for what is measured."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks.peers import competitors
from benchmarks.peers.competitors import PEERS, Competitor
from benchmarks.peers.embedding import MODEL
from benchmarks.recall_quality import data, measures

SETS = ("LoCoMo sessions", "LoCoMo turns")
QUALITY = ("frac@1", "frac@5", "frac@10", "any@5", "MRR")
_MODES = {"mcp-memory-service": ("hybrid", "semantic")}
_ROOKERY = {"hybrid": ("hybrid", True), "hybrid, without sessions": ("hybrid", False), "semantic": ("semantic", True)}
"""The mode of recall, and whether memories have sessions."""

_CONCURRENCY = 64


@dataclass(slots=True, kw_only=True)
class Measurements:
    """Measurements of one competitor on one data set, in milliseconds."""

    stored_ms: list[float] = field(default_factory=list[float])
    settled_s: float = 0.0
    recall_ms: list[float] = field(default_factory=list[float])
    measured: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])


def run(competing: Sequence[Competitor], collections: Sequence[data.Collection], *, name: str) -> dict[str, Measurements]:
    """
    Let every system in *competing* store and recall each of *collections*, in turns for each text and query.

    The work of others empties the caches of the processor, so each is first in turn.
    """
    measurements = {rival.name: Measurements() for rival in competing}
    for collection in collections:
        for rival in competing:
            rival.begin(f"{name}-{collection.name}".replace(" ", "-").lower())
        for number, (document, text) in enumerate(collection.documents.items()):
            for rival in _rotate(competing, number):
                measurements[rival.name].stored_ms.append(rival.store(document, text, collection.sessions.get(document)))
        for rival in competing:
            started_s = time.perf_counter()
            rival.settle()
            measurements[rival.name].settled_s += time.perf_counter() - started_s
        for number, question in enumerate(collection.questions):
            for rival in _rotate(competing, number):
                ms, ranking = rival.recall(question.text)
                measurements[rival.name].recall_ms.append(ms)
                measurements[rival.name].measured.append(measures.measure(ranking, question.gold))
    return measurements


def _rotate(competing: Sequence[Competitor], places: int) -> list[Competitor]:
    first = places % len(competing)
    return [*competing[first:], *competing[:first]]


def figures(measurements: Measurements, rss_mb: float) -> dict[str, float]:
    """Return the figures of one system."""
    stored_ms, recall_ms = measurements.stored_ms, measurements.recall_ms
    means = measures.means(measurements.measured)
    whole_s = sum(stored_ms) / 1000 + measurements.settled_s
    return {
        "remember_p50_ms": statistics.median(stored_ms),
        "remember_p95_ms": _p95(stored_ms),
        "findable_per_s": len(stored_ms) / whole_s,
        "recall_p50_ms": statistics.median(recall_ms),
        "recall_p95_ms": _p95(recall_ms),
        **{measure: 100 * means[measure] for measure in QUALITY},
        "rss_mb": rss_mb,
    }


def warm_embeddings(url: str, collections: Sequence[data.Collection], *, console: Console) -> None:
    """Embed all texts and queries once in the service, before the timing starts."""
    texts = [
        text
        for collection in collections
        for text in (*collection.documents.values(), *(question.text for question in collection.questions))
    ]
    started_s = time.perf_counter()
    with httpx2.Client(timeout=600) as http:
        for start in range(0, len(texts), _CONCURRENCY):
            http.post(f"{url}/embeddings", json={"model": MODEL, "input": texts[start : start + _CONCURRENCY]}).raise_for_status()
    console.log(f"{len(texts):,} texts embedded in {time.perf_counter() - started_s:.0f} s")


def format_table(name: str, rows: Mapping[str, Mapping[str, float]], *, documents: int, questions: int) -> Table:
    """Return the table of one data set."""
    table = Table(title=f"{name}: {documents:,} texts, {questions:,} questions", title_justify="left")
    table.add_column("")
    columns = list(next(iter(rows.values())))
    for column in columns:
        table.add_column(column, justify="right")
    for rival, rival_figures in rows.items():
        table.add_row(rival, *(f"{rival_figures[column]:,.1f}" for column in columns))
    return table


def main() -> int:
    """Run the command; 2 when the data is not there."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure memory beside its peers.")
    parser.add_argument("--peers", type=Path, required=True, help="where the peers' environments are, or are to be made")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--only", action="append", default=[], choices=list(PEERS), help="only this peer; may be given more than once")
    parser.add_argument("--set", dest="sets", action="append", default=[], help=f"only this data set (default: {', '.join(SETS)})")
    parser.add_argument("--questions", type=int, help="the highest number of questions of a collection")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    console = Console(stderr=True)
    try:
        sets = data.sets(options.data)
    except FileNotFoundError as error:
        sys.stderr.write(f"There is no data to measure with: {error.filename} is missing.\n")
        return 2
    selected = {
        name: [replace(collection, questions=collection.questions[: options.questions]) for collection in sets[name]]
        for name in options.sets or SETS
    }
    peers = options.peers.absolute()
    report: dict[str, object] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        folder.chmod(0o755)
        url = stack.enter_context(competitors.embeddings(folder))
        competing = [
            stack.enter_context(competitors.rookery(f"Rookery, {name}", folder, url, mode=mode, has_sessions=has_sessions))
            for name, (mode, has_sessions) in _ROOKERY.items()
        ]
        for peer in options.only or PEERS:
            python = competitors.install_peer(peers, peer)
            if peer == "hindsight":
                competing.append(stack.enter_context(competitors.hindsight(folder, python, url)))
            else:
                for mode in _MODES.get(peer, ("semantic",)):
                    library = competitors.library(f"{peer}, {mode}", folder, python, url, peer=peer, mode=mode)
                    competing.append(stack.enter_context(library))
        for name, collections in selected.items():
            warm_embeddings(url, collections, console=console)
            # Rookery's chunks are other texts than these: it stores all once before, so that they are embedded, too.
            run(competing[:1], [replace(collection, questions=()) for collection in collections], name="before")
            measurements = run(competing, collections, name=name)
            rows = {rival.name: figures(measurements[rival.name], rival.rss_mb()) for rival in competing}
            documents = sum(len(collection.documents) for collection in collections)
            report[name] = {"documents": documents, "rivals": rows}
            if not options.json:
                Console(width=200).print(
                    format_table(name, rows, documents=documents, questions=sum(len(collection.questions) for collection in collections))
                )
    if options.json:
        print(json.dumps(report, indent=2))
    return 0


def _p95(numbers: Sequence[float]) -> float:
    return sorted(numbers)[int(0.95 * (len(numbers) - 1))]


if __name__ == "__main__":
    sys.exit(main())
