"""
Comparison of approximate indexes: `python -m benchmarks.large_store_engines --n 100000 1000000`.

Needs `uv pip install faiss-cpu hnswlib usearch`; none of these is a dependency of Rookery. Each engine
runs in a separate process over the same vectors (see `large_store_vectors`) and searches the 100 nearest of the same questions,
as a recall does; the first ten are compared with those of an exact search. There are searches without a filter, and with filters that
a tenth and a fiftieth of the memories pass, as those of an org and a project. For each engine the fastest setting that finds 97 in 100
without a filter is printed, or the best one if no setting does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

import numpy as np
import numpy.typing as npt

from benchmarks.large_store_vectors import DIMENSION, Mixture
from rookery.engines.vectors.clustering import assign_lists, choose_list_count, compute_centroids

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
SearchFunction = Callable[[Floats, "Mask | None", int], Rows]

LIMIT = 100
GOAL = 0.97
FILTERS = {"all": 1, "a tenth": 10, "a fiftieth": 50}


def lists_in_numpy(rows: Floats, folder: Path) -> tuple[SearchFunction, Sequence[int]]:
    """Rows in the order of their nearest centroid in a mapped file, as in Rookery."""
    centroids = compute_centroids(rows, count=choose_list_count(len(rows)))
    nearest = assign_lists(rows, centroids)
    order = np.argsort(nearest, kind="stable")
    ends = np.cumsum(np.bincount(nearest, minlength=len(centroids)))
    starts = ends - np.diff(ends, prepend=0)
    ordered_rows = np.memmap(folder / "rows", dtype=np.float32, mode="w+", shape=rows.shape)
    for start in range(0, len(rows), 8192):
        ordered_rows[start : start + 8192] = rows[order[start : start + 8192]]
    ordered_rows.flush()

    def ask(question: Floats, mask: Mask | None, most: int) -> Rows:
        by_list = np.argsort(-np.vecdot(centroids, question))
        visible = None if mask is None else mask[order]
        places: list[Rows] = []
        scores: list[Floats] = []
        remaining = most
        for number in by_list.tolist():
            start, end = int(starts[number]), int(ends[number])
            if visible is None:
                scores.append(np.vecdot(ordered_rows[start:end], question))
                places.append(np.arange(start, end))
                remaining -= end - start
            else:
                row_numbers = np.flatnonzero(visible[start:end]) + start
                scores.append(np.vecdot(ordered_rows[row_numbers], question))
                places.append(row_numbers)
                remaining -= len(row_numbers)
            if remaining <= 0:
                break
        all_scores, all_places = np.concatenate(scores), np.concatenate(places)
        return order[all_places[np.argsort(-all_scores)[:LIMIT]]]

    return ask, [2000, 4000, 8000, 12_000, 16_000, 24_000, 32_000]


def faiss_index(recipe: str, settings: Sequence[int], *, rerank: bool) -> Callable[[Floats, Path], tuple[SearchFunction, Sequence[int]]]:
    """Return a factory of a faiss index, whose candidates are scored again with the whole vectors if it does not store these."""

    def make(rows: Floats, _: Path) -> tuple[SearchFunction, Sequence[int]]:
        faiss = library("faiss")
        faiss.omp_set_num_threads(2)
        index = faiss.index_factory(DIMENSION, recipe.format(lists=choose_list_count(len(rows))), faiss.METRIC_INNER_PRODUCT)
        index.train(rows[:: max(1, len(rows) // 200_000)])
        index.add(rows)
        faiss.omp_set_num_threads(1)
        is_graph = "HNSW" in recipe
        candidates = 400 if rerank else LIMIT

        def ask(question: Floats, mask: Mask | None, setting: int) -> Rows:
            parameters = faiss.SearchParametersHNSW(efSearch=setting) if is_graph else faiss.SearchParametersIVF(nprobe=setting)
            if mask is not None:
                packed = np.packbits(mask, bitorder="little")
                parameters.sel = faiss.IDSelectorBitmap(len(mask), faiss.swig_ptr(packed))
            nearest = cast("Rows", index.search(question[None], candidates, params=parameters)[1][0])
            nearest = nearest[nearest >= 0]
            if rerank:
                nearest = nearest[np.argsort(-np.vecdot(rows[nearest], question))]
            return nearest[:LIMIT]

        return ask, settings

    return make


def hnswlib_index(rows: Floats, _: Path) -> tuple[SearchFunction, Sequence[int]]:
    """A graph of whole vectors; its only filter is a Python function."""
    index = library("hnswlib").Index(space="ip", dim=DIMENSION)
    index.init_index(max_elements=len(rows), ef_construction=100, M=16)
    index.add_items(rows, num_threads=2)
    index.set_num_threads(1)

    def ask(question: Floats, mask: Mask | None, setting: int) -> Rows:
        index.set_ef(setting)

        def chosen(row: int) -> bool:
            return mask is None or bool(mask[row])

        return cast("Rows", index.knn_query(question, k=LIMIT, filter=None if mask is None else chosen)[0][0].astype(np.int64))

    return ask, [100, 150, 250, 400, 700]


def usearch_index(rows: Floats, _: Path) -> tuple[SearchFunction, Sequence[int]]:
    """A graph of half floats; a filter is applied to an over-fetched result."""
    index = library("usearch.index").Index(ndim=DIMENSION, metric="ip", dtype="f16", connectivity=16, expansion_add=100)
    index.add(np.arange(len(rows)), rows, threads=2)

    def ask(question: Floats, mask: Mask | None, setting: int) -> Rows:
        index.expansion_search = setting
        share = 1.0 if mask is None else max(float(mask.mean()), 0.005)
        nearest = cast("Rows", index.search(question, int(LIMIT / share)).keys.astype(np.int64))
        return (nearest if mask is None else nearest[mask[nearest]])[:LIMIT]

    return ask, [100, 150, 250, 400, 700]


ENGINES: dict[str, Callable[[Floats, Path], tuple[SearchFunction, Sequence[int]]]] = {
    "lists in numpy": lists_in_numpy,
    "faiss IVF, SQ8": faiss_index("IVF{lists},SQ8", [8, 16, 32, 64, 128], rerank=True),
    "faiss IVF, PQ fast scan": faiss_index("IVF{lists},PQ96x4fs", [8, 16, 32, 64, 128], rerank=True),
    "faiss HNSW": faiss_index("HNSW16,SQ8", [100, 150, 250, 400, 700], rerank=True),
    "usearch": usearch_index,
    "hnswlib": hnswlib_index,
}


def main() -> None:
    """Measure each engine at each size."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    arguments.add_argument("--n", type=int, nargs="+", default=[100_000])
    arguments.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    arguments.add_argument("--questions", type=int, default=100)
    arguments.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parsed = arguments.parse_args()
    for count in parsed.n:
        for name in parsed.engines:
            if parsed.here:
                measure(name, count, parsed.questions)
                continue
            options = ["--n", str(count), "--engines", name, "--questions", str(parsed.questions), "--here"]
            subprocess.run([sys.executable, "-m", "benchmarks.large_store_engines", *options], check=False)


def measure(name: str, count: int, number: int) -> None:
    """Build one and ask."""
    mixture = Mixture()
    rows = np.concatenate(list(mixture.memories(count)))
    questions = mixture.questions(number)
    tenant = np.random.default_rng(7).integers(0, 50, count)
    masks = {"all": None, "a tenth": tenant % 10 == 3, "a fiftieth": tenant == 13}
    exact = {which: nearest(rows, questions, mask) for which, mask in masks.items()}
    before = resident_mb()
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        ask, settings = ENGINES[name](rows, Path(folder))
        built_s = time.perf_counter() - started
        held_mb = resident_mb() - before
        best: dict[str, object] = {}
        for setting in settings:
            figures: dict[str, object] = {"engine": name, "memories": count, "build_s": round(built_s, 1), "rss_mb": round(held_mb)}
            figures["setting"] = setting
            for which, mask in masks.items():
                try:
                    figures[which] = run_queries(ask, questions, mask, setting, exact[which])
                except RuntimeError as error:
                    figures[which] = str(error).splitlines()[0][-80:]
            best = figures
            print("  ", json.dumps(figures), file=sys.stderr, flush=True)
            if recall_of(figures["all"]) >= GOAL:
                break
        print(json.dumps(best), flush=True)


def run_queries(ask: SearchFunction, questions: Floats, mask: Mask | None, setting: int, exact: Rows) -> dict[str, float]:
    """Return the milliseconds and the recall of one setting."""
    ask(questions[0], mask, setting)
    times: list[float] = []
    hits = 0
    for question, right in zip(questions, exact, strict=True):
        started = time.perf_counter()
        nearest = ask(question, mask, setting)
        times.append((time.perf_counter() - started) * 1e3)
        hits += len(np.intersect1d(nearest[:10], right))
    times.sort()
    return {
        "p50_ms": round(times[len(times) // 2], 2),
        "p95_ms": round(times[int(len(times) * 0.95)], 2),
        "recall": round(hits / exact.size, 3),
    }


def nearest(rows: Floats, questions: Floats, mask: Mask | None) -> Rows:
    """Return the ten nearest of each, exactly."""
    row_numbers = np.arange(len(rows)) if mask is None else np.flatnonzero(mask)
    return np.array(
        [row_numbers[np.argsort(-np.vecdot(rows[row_numbers] if mask is not None else rows, question))[:10]] for question in questions]
    )


def recall_of(figures: object) -> float:
    """Return the recall in what `run_queries` returned."""
    return float(cast("dict[str, float]", figures)["recall"]) if isinstance(figures, dict) else 0.0


def library(name: str) -> ModuleType:
    """Load what is not there for most who check this file."""
    return importlib.import_module(name)


def resident_mb() -> float:
    """Return how much memory this process holds."""
    with Path("/proc/self/statm").open(encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
