"""The nouns of what is kept of recalls: what was returned, what became of it, what may be learned from it (D-47, D-57). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from rookery.memory.models import Memory, RecallMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQueryRecord:
    """
    What was asked of a recall, for training rows (D-57).

    Attributes:
        semantic_ranks: Of each memory that was returned, in their order, among all that was found by meaning; None: it was not.
            So too *keyword_ranks*.
    """

    query: str
    mode: RecallMode
    semantic_ranks: tuple[int | None, ...]
    keyword_ranks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRecord:
    """
    What is kept of a recall for 30 days, so that feedback can be held against it (D-17, D-47).

    Attributes:
        query_record: Written only where the workspace keeps training rows.
    """

    id: str
    workspace_id: int
    key_id: str
    memory_ids: tuple[str, ...]
    created_at: datetime
    query_record: RecallQueryRecord | None = None


class FeedbackVerdict(StrEnum):
    """What a caller did with a memory that a recall returned (spec 4.3)."""

    USED = "used"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackResult:
    """
    What came of feedback (D-47).

    Attributes:
        used: Those whose use counted now; so too *ignored*.
        memories: All that were named and are there, as they are now.
    """

    recall_id: str
    used: tuple[str, ...]
    ignored: tuple[str, ...]
    memories: tuple[Memory, ...]


TrainingLabel = Literal["stored", "used", "ignored"]
"""What a training row says of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """
    What a memory was to a question, or, with no recall, that it was stored (D-57).

    Attributes:
        place: Where in the answer it stood, from 1; *semantic_rank* and *keyword_rank*: as `RecallQueryRecord` has them.
    """

    memory_id: str
    recall_id: str | None
    workspace_id: int
    label: TrainingLabel
    query: str | None = None
    mode: str | None = None
    place: int | None = None
    semantic_rank: int | None = None
    keyword_rank: int | None = None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledMemory:
    """A training row with its memory as it is now."""

    example: TrainingExample
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """
    Whether a workspace keeps training rows, and how many it has.

    Attributes:
        enabled_since: None: it does not.
    """

    enabled_since: datetime | None
    example_count: int


def build_example(recall: RecallRecord, memory_id: str, verdict: FeedbackVerdict, *, at: datetime) -> TrainingExample | None:
    """Return what *verdict* on a memory that *recall* returned teaches; None: it is not known what was asked."""
    asked = recall.query_record
    if asked is None:
        return None
    index = recall.memory_ids.index(memory_id)
    return TrainingExample(
        memory_id=memory_id,
        recall_id=recall.id,
        workspace_id=recall.workspace_id,
        label=verdict.value,
        query=asked.query,
        mode=asked.mode,
        place=index + 1,
        semantic_rank=asked.semantic_ranks[index],
        keyword_rank=asked.keyword_ranks[index],
        at=at,
    )
