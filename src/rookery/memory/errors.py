"""
What remembering can meet, beyond the kernel's errors (D-17, D-41).

    RookeryError
    ├── NotEmbeddable           422  not_embeddable
    ├── BacklogFull             429  backlog_full
    └── Conflict
        ├── MemoriesFull        409  max_memories_reached
        └── AlreadySuperseded   409  already_superseded
"""

from __future__ import annotations

from rookery.kernel.errors import Conflict, RookeryError


class NotEmbeddable(RookeryError):
    """The embedder works, but gives no vector for this text; another text, or recall by words, will do."""

    status, code = 422, "not_embeddable"

    def __init__(self) -> None:
        super().__init__("The embedder gives no vector for this text; ask by words (mode: keyword), or say it otherwise.")


class BacklogFull(RookeryError):
    """More memories of the workspace wait for indexing than it may have waiting; later there is room again (D-17)."""

    status, code = 429, "backlog_full"

    def __init__(self, limit: int, *, retry_after_s: int = 10) -> None:
        super().__init__(
            f"{limit:,} memories of this workspace wait for indexing, as many as may; try again in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            limit=limit,
            retry_after=retry_after_s,
        )


class MemoriesFull(Conflict):
    """The workspace has as many memories as it may (D-17); waiting does not help, deleting some does."""

    code = "max_memories_reached"

    def __init__(self, limit: int) -> None:
        super().__init__(f"This workspace has {limit:,} memories, as many as it may: delete or prune some first.", limit=limit)


class AlreadySuperseded(Conflict):
    """Somebody replaced the memory first; *head_id* is the one that stands for it now (D-41)."""

    code = "already_superseded"

    def __init__(self, memory_id: str, head_id: str) -> None:
        super().__init__(f"The memory {memory_id!r} was superseded already; supersede {head_id!r} instead.", head_id=head_id)
        self.head_id = head_id
