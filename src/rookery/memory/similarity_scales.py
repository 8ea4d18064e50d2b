"""The scale of a question's similarities: known for the built-in model, estimated from the workspace for all others (D-44)."""

from __future__ import annotations

import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from operator import mul

from rookery.kernel.db import Database
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.fusion import SimilarityScale, estimate_scale
from rookery.memory.models import Passage, Vector
from rookery.memory.store import samples
from rookery.memory.vector_filter import filter_ids

SAMPLE_SIZE = 400
"""
Memories whose similarities are compared with those of the candidates. Their mean is then exact to a twentieth of a standard deviation.
"""

_SAMPLE_TTL_S = 3600.0
"""Age at which the sample of a large workspace is drawn again. A smaller workspace is its own sample, read for each question."""

_MAX_CACHED_SAMPLES = 256

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


class SimilarityScales:
    """
    The scales of questions.

    A model whose scale was measured says so (`Embedder.full_similarity`). For any other one, a question's cosines are compared with those
    of a fixed sample of the workspace. The sample ignores access rights: a scale shows at most how similar the workspace is on the whole.

    Args:
        timer: A clock in seconds that never goes back.
    """

    def __init__(self, *, db: Database, timer: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._timer = timer
        self._backgrounds: dict[str, tuple[Vector, ...]] = {}
        self._samples: OrderedDict[int, tuple[float, Sequence[str]]] = OrderedDict()

    async def get_scale(self, index: IndexVersion, workspace_id: int, vector: Vector) -> SimilarityScale:
        """
        Return the scale of the cosines between the question *vector* and the vectors of *index*.

        Raises:
            EngineUnavailable: The vectors or the embedder are down.
        """
        full = index.embedder.full_similarity
        if full is not None:
            return SimilarityScale(zero=0.0, full=full)
        background = await self._get_background(index)
        ids = await self._get_sample(workspace_id)
        hits = await index.vectors.search(vector, where=filter_ids(workspace_id, ids), limit=len(ids)) if ids else []
        return estimate_scale(
            [hit.similarity for hit in hits], background=[_multiply(vector, background_vector) for background_vector in background]
        )

    async def _get_background(self, index: IndexVersion) -> tuple[Vector, ...]:
        """Return the vectors of `_BACKGROUND`, computed on the first question of each model."""
        model = index.embedder.model
        vectors = self._backgrounds.get(model)
        if vectors is None:
            chunks = await index.embedder.embed_passages([Passage(context="", content=text) for text in _BACKGROUND])
            vectors = self._backgrounds[model] = tuple(chunk[0] for chunk in chunks)
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


def _multiply(one: Vector, other: Vector) -> float:
    """Return the dot product of two vectors of 32-bit floats."""
    return sum(map(mul, array("f", one), array("f", other)))
