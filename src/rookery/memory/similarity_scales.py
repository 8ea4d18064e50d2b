"""The scale of a question's similarities: known for the built-in model, estimated from the workspace for all others."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul

from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreaker
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.errors import NotEmbeddable
from rookery.memory.fusion import SimilarityScale, estimate_scale
from rookery.memory.models import AccessFilter, Passage, Vector
from rookery.memory.ports import Embedder
from rookery.memory.store import samples
from rookery.memory.vector_filter import filter_readable_ids
from rookery.usage.embedding_meter import SERVER_PAYER, charge_embeddings

SAMPLE_SIZE = 400
"""
Memories whose similarities are compared with those of the candidates. Their mean is then exact to a twentieth of a standard deviation.
"""

_SAMPLE_TTL_S = 3600.0
"""Age at which the sample of a large workspace is drawn again. A smaller workspace is its own sample, read for each question."""

_MAX_CACHED_SAMPLES = 256

_MAX_BACKGROUND_WAIT_S = 2.0
"""Time from the first question of a model in which questions wait for the vectors of `_BACKGROUND`. Later ones do without."""

_BACKGROUND_RETRY_INTERVAL_S = 30.0
"""Minimum time between two attempts to compute these vectors."""

_BACKGROUND = (
    "The train to the coast leaves at half past nine.",
    "She painted the garden fence green last summer.",
    "Interest rates were raised by a quarter of a point.",
    "The recipe needs two eggs, flour and a little salt.",
    "Our server writes its log to a file that rotates each night.",
    "He broke his arm while climbing and could not work for weeks.",
    "The museum shows photographs of the old harbour.",
    "A function should return an error instead of a null pointer.",
)
"""Texts that have nothing in common, for workspaces with too few memories to estimate a scale."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt to compute the vectors of `_BACKGROUND`. Its result is empty if the embedder did not return them."""

    started_s: float
    task: asyncio.Task[tuple[Vector, ...]]


class SimilarityScales:
    """
    The scales of questions.

    A model whose scale was measured says so (`Embedder.full_similarity`). For any other one, a question's cosines are compared with those
    of a fixed sample of the workspace, of which only memories count that the caller may read.

    Args:
        breaker: The circuit breaker of the vectors.
        timer: A clock in seconds that never goes back.
        max_background_wait_s: Maximum wait for the vectors of background texts, without which scales are less exact.
    """

    def __init__(
        self,
        *,
        db: Database,
        breaker: EngineBreaker,
        timer: Callable[[], float] = time.monotonic,
        max_background_wait_s: float = _MAX_BACKGROUND_WAIT_S,
    ) -> None:
        self._db = db
        self._breaker = breaker
        self._timer = timer
        self._max_background_wait_s = max_background_wait_s
        self._backgrounds: dict[str, tuple[Vector, ...]] = {}
        self._attempts: dict[str, _Attempt] = {}
        self._samples: OrderedDict[int, tuple[float, Sequence[str]]] = OrderedDict()

    async def get_scale(self, index: IndexVersion, access_filter: AccessFilter, vector: Vector) -> SimilarityScale:
        """
        Return the scale of the cosines between the question *vector* and the vectors of *index*.

        Raises:
            EngineUnavailable: The vectors are down.
        """
        full = index.embedder.full_similarity
        if full is not None:
            return SimilarityScale(zero=0.0, full=full, is_measured=True)
        background = await self._get_background(index.embedder)
        ids = await self._get_sample(access_filter.workspace_id)
        where = filter_readable_ids(access_filter, ids)
        hits = await self._breaker.call(lambda: index.vectors.search(vector, where=where, limit=len(ids))) if ids else []
        return estimate_scale(
            [hit.similarity for hit in hits], background=[_multiply(vector, background_vector) for background_vector in background]
        )

    async def _get_background(self, embedder: Embedder) -> tuple[Vector, ...]:
        """
        Return the vectors of `_BACKGROUND`, or nothing while the embedder has not returned them.

        A service may answer questions and be busy with passages for minutes, or reject one of these texts. No question fails for that.
        """
        model = embedder.model
        if model in self._backgrounds:
            return self._backgrounds[model]
        now_s, attempt = self._timer(), self._attempts.get(model)
        if attempt is None or (attempt.task.done() and now_s - attempt.started_s >= _BACKGROUND_RETRY_INTERVAL_S):
            attempt = self._attempts[model] = _Attempt(now_s, asyncio.create_task(_embed_background(embedder)))
        # All questions share the attempt, so one that is cancelled does not cancel it.
        await asyncio.wait({attempt.task}, timeout=max(0.0, attempt.started_s + self._max_background_wait_s - now_s))
        vectors = attempt.task.result() if attempt.task.done() and not attempt.task.cancelled() else ()
        if vectors:
            self._backgrounds[model] = vectors
        return vectors

    async def _get_sample(self, workspace_id: int) -> Sequence[str]:
        drawn_at_s, ids = self._samples.get(workspace_id, (0.0, ()))
        if ids and self._timer() - drawn_at_s < _SAMPLE_TTL_S:
            self._samples.move_to_end(workspace_id)
            return ids
        ids = await self._db.lookup(lambda tx: samples.list_first_ids(tx, workspace_id, limit=SAMPLE_SIZE + 1))
        if len(ids) > SAMPLE_SIZE:
            ids = await self._db.read(lambda tx: samples.sample_ids(tx, workspace_id, size=SAMPLE_SIZE))
            self._samples[workspace_id] = self._timer(), ids
            while len(self._samples) > _MAX_CACHED_SAMPLES:
                self._samples.popitem(last=False)
        return ids


async def _embed_background(embedder: Embedder) -> tuple[Vector, ...]:
    try:
        with charge_embeddings([(SERVER_PAYER, 0)]):
            chunks = await embedder.embed_passages([Passage(context="", content=text) for text in _BACKGROUND])
    except (EngineUnavailable, NotEmbeddable):
        return ()
    return tuple(vectors[0] for vectors in chunks)


def _multiply(one: Vector, other: Vector) -> float:
    """Return the dot product of two vectors of 32-bit floats."""
    return sum(map(mul, array("f", one), array("f", other)))
