"""
Speed of scoring: `python -m benchmarks.scoring`.

On a new server: texts of 300 words, one at a time and 500 in a request; and requests of another client alone and during batches. In this
process, without HTTP: texts a second on one core. The texts are sentences of a list in changing order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from pathlib import Path
from random import Random

import httpx2

from benchmarks.load import measure
from benchmarks.servers import run_server
from rookery.engines import detection
from rookery.scoring.models import ScoredText
from rookery.scoring.scorer import ContentScorer

WORDS = 300
BATCH_TEXTS = 500
_SENTENCES = (
    "The ferry was late again, so we sat on the wall and counted the gulls until somebody lit the lamp over the ticket office.",
    "My brother said that the boat had a new engine, and that it would still be slow because of the tide and the mud.",
    "You made a good point about the timetable; however, the harbour master has the last word on it, as he always had.",
    "I understand why you were upset, and I think that you should write to the company before the end of the month.",
    "Few people read the notices on the board, which is a pity, since they explain where the money of last year went.",
    "When it came it was full of visitors with bicycles, dogs and one cello, and none of them wanted to wait for the next one.",
    "What a wonderful idea to meet at the lighthouse, where the view is wide and the coffee has been bad for thirty years.",
    "The survey lists nine hundred trips, of which about a third were late by more than ten minutes, mostly in the afternoon.",
)


def make_text(random: Random) -> str:
    """Return a text of about 300 words."""
    words = list[str]()
    while len(words) < WORDS:
        words += random.choice(_SENTENCES).split()
    return " ".join(words[:WORDS])


async def measure_beside_batches(url: str, key: str, texts: list[str], *, count: int) -> dict[str, object]:
    """Return the latency of `GET /v1/brain/tags` while batches run without a pause, and their speed."""
    headers, scored, running = {"Authorization": f"Bearer {key}"}, 0, True
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client:

        async def send_batches() -> None:
            nonlocal scored
            body = {"items": [{"text": text} for text in texts], "explain": False}
            while running:
                (await client.post("/v1/score/batch", json=body)).raise_for_status()
                scored += len(texts)

        batches = asyncio.create_task(send_batches())
        started = time.perf_counter()
        timed = await measure(url, key, lambda _: ("GET", "/v1/brain/tags", None), count=count, warm=0)
        elapsed_s = time.perf_counter() - started
        running = False
        await batches
    return {**timed.as_json(), "texts_scored_meanwhile": scored, "elapsed_s": round(elapsed_s, 2)}


def measure_in_process(texts: list[str]) -> dict[str, object]:
    """Return texts a second in one thread, without HTTP."""
    scorer = ContentScorer(detection.open)
    scored = [ScoredText(text=text) for text in texts]
    scorer.score_now(scored[:10])
    started, cpu = time.perf_counter(), time.thread_time()
    scorer.score_now(scored, explain=False)
    figures: dict[str, object] = {
        "texts_per_s": round(len(texts) / (time.perf_counter() - started)),
        "texts_per_cpu_s": round(len(texts) / (time.thread_time() - cpu)),
    }
    scorer.close()
    return figures


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scoring", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=5)
    options = parser.parse_args()
    random = Random(1)
    texts = [make_text(random) for _ in range(BATCH_TEXTS)]
    figures: dict[str, object] = {"load_before": os.getloadavg()[0], "in_process": measure_in_process(texts)}
    with tempfile.TemporaryDirectory(prefix="rookery-scoring-") as name, run_server(Path(name)) as running:
        url, key = running.url, running.api_key
        figures["rss_before_mb"] = round(running.rss_mb())
        one = measure(
            url, key, lambda number: ("POST", "/v1/score/content", {"text": texts[number % BATCH_TEXTS]}), count=options.count, warm=20
        )
        figures["one_text"] = asyncio.run(one).as_json()
        body = {"items": [{"text": text} for text in texts], "explain": False}
        batch = measure(url, key, lambda _: ("POST", "/v1/score/batch", body), count=options.batches, warm=1)
        figures["batch_of_500"] = asyncio.run(batch).as_json()
        tags = measure(url, key, lambda _: ("GET", "/v1/brain/tags", None), count=options.count, warm=20)
        figures["other_request_alone"] = asyncio.run(tags).as_json()
        figures["other_request_beside_batches"] = asyncio.run(measure_beside_batches(url, key, texts, count=options.count))
        figures["rss_after_mb"] = round(running.rss_mb())
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
