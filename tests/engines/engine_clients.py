"""Sixteen clients that remember, recall and search without a pause, and the kinds of answers that they get."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import quantiles

import httpx2
import pytest

CLIENTS = 16
COUNTED_LOCALLY = "counted locally"
_MAX_ROUNDS = 200
_ROUNDS_DURING_FAULT = 2


@dataclass
class Answers:
    """
    The answers of one phase.

    Attributes:
        kinds: Their kinds by request, such as `recall by meaning` or `search 503 texts`.
        recall_ms: The durations of recalls.
    """

    kinds: Counter[str] = field(default_factory=Counter[str])
    recall_ms: list[float] = field(default_factory=list[float])

    def add(self, request: str, response: httpx2.Response) -> None:
        """Count an answer to *request*, and separately whether its rate limit was counted by the process alone."""
        self.kinds[f"{request} {_describe(response)}"] += 1
        if "X-RateLimit-Scope" in response.headers:
            self.kinds[COUNTED_LOCALLY] += 1

    def percentiles(self) -> tuple[float, float]:
        """Return the median and the 99th percentile of recalls, in milliseconds."""
        cuts = quantiles(self.recall_ms, n=100, method="inclusive")
        return cuts[49], cuts[98]


class Clients:
    """
    The clients of one fault.

    Attributes:
        acknowledged: The ids of the memories that were answered with 201, by a word that only they contain.
        during: The answers to requests that began while the engine had the fault.
    """

    def __init__(self, http: httpx2.AsyncClient, name: str) -> None:
        self.acknowledged: dict[str, str] = {}
        self.before, self.during = Answers(), Answers()
        self._http = http
        self._name = name
        self._has_fault = asyncio.Event()
        self._started_count = self._done_count = 0
        self._progress = asyncio.Condition()

    @asynccontextmanager
    async def work(self) -> AsyncGenerator[None]:
        """Let the clients work. They end after their requests during the fault."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._run(number))
            async with self._progress:
                await self._progress.wait_for(lambda: self._started_count == CLIENTS)
            yield

    async def work_during_fault(self) -> None:
        """Wait until each client has sent its requests since the fault began."""
        self._has_fault.set()
        async with self._progress:
            await self._progress.wait_for(lambda: self._done_count == CLIENTS)

    async def probe(self) -> Answers:
        """Send one round of requests, and return the answers."""
        answers = Answers()
        await self._send_round(answers, f"{self._name}probe{len(self.acknowledged)}")
        return answers

    async def _run(self, number: int) -> None:
        rounds = 0
        while rounds == 0 or (not self._has_fault.is_set() and rounds < _MAX_ROUNDS):
            rounds += 1
            await self._send_round(self.before, f"{self._name}c{number}r{rounds}")
            if rounds == 1:
                await self._note(started=1)
        await self._has_fault.wait()
        for _ in range(_ROUNDS_DURING_FAULT):
            rounds += 1
            await self._send_round(self.during, f"{self._name}c{number}r{rounds}")
        await self._note(done=1)

    async def _note(self, *, started: int = 0, done: int = 0) -> None:
        async with self._progress:
            self._started_count += started
            self._done_count += done
            self._progress.notify_all()

    async def _send_round(self, answers: Answers, word: str) -> None:
        others = " ".join(f"w{part}" for part in hashlib.sha256(word.encode()).digest()[:6])
        memory = {"content": f"{word} {others}", "type": "observation", "org": "acme", "project": "web"}
        stored = await self._http.post("/v1/brain/remember", json=memory)
        if stored.status_code == 201:
            self.acknowledged[word] = stored.json()["id"]
        answers.add("remember", stored)
        started = time.perf_counter()
        recalled = await self._http.post("/v1/brain/recall", json={"query": f"where is {word}?", "top_k": 3})
        answers.recall_ms.append((time.perf_counter() - started) * 1000)
        answers.add("recall", recalled)
        if answers is not self.before:
            answers.add("search", await self._http.get("/v1/brain/search", params={"q": word}))


def _describe(response: httpx2.Response) -> str:
    """Return the kind of an answer; fail for any other than the stated kinds."""
    body = response.json()
    if response.status_code == 503:
        assert body["error"] == "engine_unavailable", body
        assert int(response.headers["Retry-After"]) > 0
        return f"503 {body['engine']}"
    if response.status_code == 507:
        assert body["error"] == "storage_full", body
        return "507"
    if response.status_code not in {200, 201}:
        pytest.fail(f"an answer of no stated kind: {response.status_code} {response.text}")
    notice = str(body.get("notice") or "")
    kind = "complete"
    if notice:
        kind = notice.removeprefix("Results are ").partition(" is unavailable")[0].partition(" accepts only reads")[0]
    return kind
