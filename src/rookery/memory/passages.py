"""Embedding of passages, of which some may have no vector."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import Embedder


async def embed_each(embedder: Embedder, passages: Sequence[Passage]) -> list[tuple[Vector, ...] | None]:
    """
    Return the vectors of each passage; None for one that the embedder cannot embed while it works.

    Raises:
        EngineUnavailable: The embedder is down.
    """
    try:
        return list(await embedder.embed_passages(passages))
    except NotEmbeddable as error:
        rejected = error.positions
    if not rejected or len(rejected) == len(passages):
        return [None] * len(passages)
    accepted = iter(await embed_each(embedder, [passage for position, passage in enumerate(passages) if position not in rejected]))
    return [None if position in rejected else next(accepted) for position in range(len(passages))]
