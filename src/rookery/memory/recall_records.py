"""The data types of stored recalls: the results, the feedback, and training examples (D-47, D-57). No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from rookery.memory.models import Memory, RecallMode


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQueryRecord:
    """
    The query of a recall, for training examples (D-57).

    Attributes:
        semantic_ranks: The rank of each returned memory among the hits by meaning, in the order of the results; None if it was not
            among them. *keyword_ranks* is the same for hits by words.
    """

    query: str
    mode: RecallMode
    semantic_ranks: tuple[int | None, ...]
    keyword_ranks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRecord:
    """
    A stored recall, kept for 30 days so that feedback can refer to it (D-17, D-47).

    Attributes:
        query_record: Written only if the workspace records training examples.
    """

    id: str
    workspace_id: int
    key_id: str
    memory_ids: tuple[str, ...]
    created_at: datetime
    query_record: RecallQueryRecord | None = None


class FeedbackVerdict(StrEnum):
    """The use that a caller made of a recalled memory (spec 4.3)."""

    USED = "used"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackResult:
    """
    The result of feedback (D-47).

    Attributes:
        used: The memories whose use changed their confidence; *ignored* likewise.
        memories: All named memories that still exist, in their current state.
    """

    recall_id: str
    used: tuple[str, ...]
    ignored: tuple[str, ...]
    memories: tuple[Memory, ...]


TrainingLabel = Literal["stored", "used", "ignored"]
"""The label of a training example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingExample:
    """
    A memory's relation to a query or, if no recall is named, the storing of the memory (D-57).

    Attributes:
        place: Its position in the result, from 1. *semantic_rank* and *keyword_rank* are those of `RecallQueryRecord`.
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
    """A training example with its memory in the current state."""

    example: TrainingExample
    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatus:
    """
    The training settings of a workspace and its number of examples.

    Attributes:
        enabled_since: The time since when examples are recorded; None if they are not.
    """

    enabled_since: datetime | None
    example_count: int


def build_example(recall: RecallRecord, memory_id: str, verdict: FeedbackVerdict, *, at: datetime) -> TrainingExample | None:
    """Return the training example of *verdict* on a memory of *recall*. None if the query was not recorded."""
    query_record = recall.query_record
    if query_record is None:
        return None
    index = recall.memory_ids.index(memory_id)
    return TrainingExample(
        memory_id=memory_id,
        recall_id=recall.id,
        workspace_id=recall.workspace_id,
        label=verdict.value,
        query=query_record.query,
        mode=query_record.mode,
        place=index + 1,
        semantic_rank=query_record.semantic_ranks[index],
        keyword_rank=query_record.keyword_ranks[index],
        at=at,
    )
