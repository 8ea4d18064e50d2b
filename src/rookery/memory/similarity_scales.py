"""The scale of a question's similarities: known for the built-in model, estimated from the workspace for all others."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreaker
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import AccessFilter, Passage, Vector
from rookery.memory.ports import Embedder
from rookery.memory.store import samples
from rookery.memory.visibility import filter_readable_ids
from rookery.usage.embedding_meter import SERVER_PAYER, charge_embeddings

STANDARD_SCORES_TO_FULL = 4.0
"""Standard deviations above the mean of a workspace from which on a similarity counts as full."""

PRIOR_WEIGHT = 10
"""The weight of the assumed standard deviation, in sampled memories."""

PRIOR_DEVIATION = 0.12
"""
The assumed standard deviation of cosines, as a share of the distance between their mean and 1.

Measured: 0.06 to 0.19 in eight workspaces of MiniLM, 0.11 to 0.15 in four of bge-small, whose means are 0.0 to 0.4 and 0.4 to 0.55.
"""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityScale:
    """
    The cosines that count as no similarity and as full similarity.

    Attributes:
        is_measured: It is known for the model, and not estimated from a workspace.
    """

    zero: float
    full: float
    is_measured: bool = False

    def normalize(self, similarity: float) -> float:
        """Return *similarity* on this scale, in 0..1."""
        return min(max((similarity - self.zero) / (self.full - self.zero), 0.0), 1.0)

    def normalize_all(self, similarities: Mapping[str, float]) -> dict[str, float]:
        """Return each of *similarities* on this scale. A call of `normalize` for each of hundreds would take three times as long."""
        zero, width = self.zero, self.full - self.zero
        shares = {memory_id: (similarity - zero) / width for memory_id, similarity in similarities.items()}
        return {memory_id: 0.0 if share < 0.0 else min(share, 1.0) for memory_id, share in shares.items()}


def estimate_scale(similarities: Sequence[float], *, background: Sequence[float]) -> SimilarityScale:
    """
    Return the scale of one question's cosines, for a model whose scale is unknown.

    Args:
        similarities: Those of a sample of the workspace; may be empty.
        background: Those of texts that have nothing to do with the question. They matter only in a small workspace. Without any, the mean
            is that of the sample alone.
    """
    weight = PRIOR_WEIGHT / len(background) if background else 0.0
    weights = len(similarities) + weight * len(background)
    mean = (math.fsum(similarities) + weight * math.fsum(background)) / weights if weights else 0.0
    total = PRIOR_WEIGHT + len(similarities)
    prior = PRIOR_DEVIATION * max(1.0 - mean, 1e-6)
    spread = math.fsum((similarity - mean) ** 2 for similarity in similarities)
    deviation = math.sqrt((spread + PRIOR_WEIGHT * prior**2) / total)
    return SimilarityScale(zero=mean, full=mean + STANDARD_SCORES_TO_FULL * deviation)


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
