"""
Speed and memory of embedding models in this process, each in a process of its own, by turns.

    python -m benchmarks.embedding_models embedded: embedded:e5-small 'embedded:/models/bge-small-en-v1.5?pooling=cls'
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import onnxruntime

from benchmarks.texts import questions, texts
from rookery.engines import embedders
from rookery.memory.models import Passage

_PASSAGE_CHARS = 460
"""About 110 to 125 tokens of English, so one chunk in all models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run; times are CPU time of the whole process, so that other work of the machine hardly counts."""

    load_s: float
    query_cpu_ms: float
    query_p50_ms: float
    texts_per_cpu_s: float
    memory_mb: float


async def measure(url: str, data_dir: Path, *, queries: int, passages: int) -> Figures:
    """Measure the embedder at *url*. Its files exist already."""
    assert onnxruntime
    before = _resident_mb()
    started = time.process_time()
    engine = embedders.open(url, data_dir=data_dir, dimension=16_384)
    await engine.warm()
    load_s = time.process_time() - started
    waits_ms = list[float]()
    started_cpu = time.process_time()
    for question in islice(questions(), queries):
        started = time.perf_counter()
        await engine.embed_query(question)
        waits_ms.append((time.perf_counter() - started) * 1000)
    query_cpu_ms = (time.process_time() - started_cpu) * 1000 / queries
    long_text = " ".join(islice(texts(), 300))
    batch = [Passage(context="", content=long_text[index * 40 : index * 40 + _PASSAGE_CHARS]) for index in range(passages)]
    started_cpu = time.process_time()
    await engine.embed_passages(batch)
    texts_per_cpu_s = passages / (time.process_time() - started_cpu)
    memory_mb = _resident_mb() - before
    await engine.close()
    return Figures(
        load_s=load_s,
        query_cpu_ms=query_cpu_ms,
        query_p50_ms=statistics.median(waits_ms),
        texts_per_cpu_s=texts_per_cpu_s,
        memory_mb=memory_mb,
    )


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    msg = "/proc/self/status has no VmRSS"
    raise OSError(msg)


def main() -> None:
    """Measure each address several times by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="*", default=["embedded:", "embedded:e5-small"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--passages", type=int, default=60)
    parser.add_argument("--once", type=Path, help="Measure one address with the files in this folder, and print JSON.")
    arguments = parser.parse_args()
    if arguments.once:
        (url,) = arguments.urls
        figures = asyncio.run(measure(url, arguments.once, queries=arguments.queries, passages=arguments.passages))
        print(json.dumps(asdict(figures)))
        return
    with tempfile.TemporaryDirectory(prefix="rookery-bench-") as folder:
        runs: dict[str, list[Figures]] = {url: [] for url in arguments.urls}
        for round_number in range(arguments.rounds + 1):
            for url, of_url in runs.items():
                sizes = ["--queries", str(arguments.queries), "--passages", str(arguments.passages)]
                command = [sys.executable, "-m", "benchmarks.embedding_models", url, "--once", folder, *sizes]
                output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
                if round_number:  # the first round builds the files
                    of_url.append(Figures(**json.loads(output.splitlines()[-1])))
    for url, of_url in runs.items():
        medians = {name: statistics.median(asdict(figures)[name] for figures in of_url) for name in asdict(of_url[0])}
        print(url, "  ".join(f"{name} {value:.2f}" for name, value in medians.items()))


if __name__ == "__main__":
    main()
