"""Scores of texts, computed in a thread of their own so that other requests do not wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial

from rookery.kernel.workspace_shares import WorkspaceShares, WorkspaceTurns
from rookery.scoring.detection import DetectionModel
from rookery.scoring.models import ContentScore, ScoredText
from rookery.scoring.plain_text import extract_plain_text
from rookery.scoring.ports import AiDetector
from rookery.scoring.sycophancy.assessment import assess_sycophancy

MAX_CHUNK_TEXTS = 8
MAX_CHUNK_CHARS = 20_000
"""Size of a part of a batch. Between two parts, the texts of other workspaces have their turn."""

PAUSE_S = 0.0001
"""Pause after each text, in which the event loop runs. Without it, the loop waits for the interpreter's switch interval of 5 ms."""


class ContentScorer:
    """
    AI detection and sycophancy of texts. Nothing is stored or logged.

    Args:
        open_detector: Returns the engine of AI detection, which loads its weights with the first text.
        shares: The shares of workspaces in the cores. None: those of a command, which are not limited.
    """

    def __init__(self, open_detector: Callable[[], AiDetector], *, shares: WorkspaceShares | None = None) -> None:
        self._open_detector = open_detector
        self._shares = shares or WorkspaceShares()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scoring")
        self._turns = WorkspaceTurns()

    @cached_property
    def detector(self) -> AiDetector:
        """The engine of AI detection."""
        return self._open_detector()

    async def score(self, text: ScoredText, *, workspace_id: int = 0, explain: bool = True) -> ContentScore:
        """Return the scores of *text*, as `score_many` does."""
        return (await self.score_many([text], workspace_id=workspace_id, explain=explain))[0]

    async def score_many(self, texts: Sequence[ScoredText], *, workspace_id: int = 0, explain: bool = True) -> list[ContentScore]:
        """
        Return the scores of each text, in order.

        Args:
            texts: The texts.
            workspace_id: The workspace of the request; 0: a command. The parts of one workspace wait for each other.
            explain: Compute the signals of AI detection.
        """
        loop = asyncio.get_running_loop()
        scores = list[ContentScore]()
        for chunk in _split(texts):
            async with self._turns.take(workspace_id), self._shares.take(workspace_id):
                scores += await loop.run_in_executor(self._executor, partial(self.score_now, chunk, explain=explain))
        return scores

    async def get_detection_model(self) -> DetectionModel:
        """Return the model of AI detection. Its weights are loaded in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: self.detector.model)

    def score_now(self, texts: Sequence[ScoredText], *, explain: bool = True) -> list[ContentScore]:
        """Return the scores of each text, in this thread."""
        scores = list[ContentScore]()
        for text in texts:
            plain = extract_plain_text(text.text)
            detection = self.detector.detect_prose(plain, explain=explain)
            scores.append(ContentScore(detection=detection, sycophancy=assess_sycophancy(text, plain=plain)))
            time.sleep(PAUSE_S)
        return scores

    def close(self) -> None:
        """Finish the running part and end the thread. Idempotent."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def _split(texts: Sequence[ScoredText]) -> Iterator[Sequence[ScoredText]]:
    start, chars = 0, 0
    for position, text in enumerate(texts):
        size = len(text.text)
        if position > start and (position - start >= MAX_CHUNK_TEXTS or chars + size > MAX_CHUNK_CHARS):
            yield texts[start:position]
            start, chars = position, 0
        chars += size
    if start < len(texts):
        yield texts[start:]
