"""Embedding of passages, of which some may have no vector."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Memory, Passage, Vector
from rookery.memory.ports import Embedder
from rookery.usage.embedding_meter import EmbeddingPayer, charge_embeddings


async def embed_memories(embedder: Embedder, memories: Sequence[Memory], passages: Sequence[Passage]) -> list[tuple[Vector, ...] | None]:
    """
    Return the vectors of the passage of each memory; None for one that the embedder cannot embed while it works.

    The tokens of a service are charged to the workspaces and authors of *memories*.

    Raises:
        EngineUnavailable: The embedder is down.
    """
    lengths = (len(passage.content) for passage in passages)
    with charge_embeddings([(_find_payer(memory), length) for memory, length in zip(memories, lengths, strict=True)]):
        return await _embed_each(embedder, passages)


def _find_payer(memory: Memory) -> EmbeddingPayer:
    author = memory.updated_by or memory.created_by
    if author is None:
        return EmbeddingPayer(workspace_id=memory.workspace_id)
    return EmbeddingPayer(workspace_id=memory.workspace_id, key_id=author.key_id or "", agent_id=author.agent_id or "")


async def _embed_each(embedder: Embedder, passages: Sequence[Passage]) -> list[tuple[Vector, ...] | None]:
    try:
        return list(await embedder.embed_passages(passages))
    except NotEmbeddable as error:
        rejected = error.positions
    if not rejected or len(rejected) == len(passages):
        return [None] * len(passages)
    accepted = iter(await _embed_each(embedder, [passage for position, passage in enumerate(passages) if position not in rejected]))
    return [None if position in rejected else next(accepted) for position in range(len(passages))]
