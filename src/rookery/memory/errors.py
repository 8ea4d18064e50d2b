"""
Errors of storing memories.

    RookeryError
    ├── NotEmbeddable           422  not_embeddable
    ├── BacklogFull             429  backlog_full
    └── Conflict
        ├── MemoriesFull        409  max_memories_reached
        └── AlreadySuperseded   409  already_superseded
"""

from __future__ import annotations

from collections.abc import Collection

from rookery.kernel.errors import Conflict, RookeryError


class NotEmbeddable(RookeryError):
    """
    The embedder works, but returns no vector for this question, and the mode is `semantic`.

    Attributes:
        positions: The positions of all such passages, if several passages were embedded together.
    """

    status, code = 422, "not_embeddable"

    def __init__(self, positions: Collection[int] = ()) -> None:
        super().__init__("The embedder returns no vector for this text; use mode 'hybrid' or 'keyword', or rephrase the text.")
        self.positions = frozenset(positions)


class BacklogFull(RookeryError):
    """`ROOKERY_MAX_BACKLOG` memories of the workspace wait for indexing."""

    status, code = 429, "backlog_full"
    fields = "`limit`, `retry_after`; header `Retry-After`"

    def __init__(self, limit: int, *, retry_after_s: int = 10) -> None:
        super().__init__(
            f"{limit:,} memories of this workspace wait for indexing, the maximum; retry in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            limit=limit,
            retry_after=retry_after_s,
        )


class MemoriesFull(Conflict):
    """The workspace has `ROOKERY_MAX_MEMORIES` memories. Retrying does not help; deleting memories does."""

    code = "max_memories_reached"
    fields = "`limit`"

    def __init__(self, limit: int) -> None:
        super().__init__(f"This workspace has {limit:,} memories, the maximum; delete or prune some first.", limit=limit)


class AlreadySuperseded(Conflict):
    """Another memory replaced this one first."""

    code = "already_superseded"
    fields = "`head_id`: the id of the current memory"

    def __init__(self, memory_id: str, head_id: str) -> None:
        super().__init__(f"The memory {memory_id!r} is already superseded; supersede {head_id!r} instead.", head_id=head_id)
        self.head_id = head_id
