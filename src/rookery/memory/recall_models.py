"""The data types of recalls: requests, results, the log, the feedback, and training examples. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from rookery.memory.models import Memory, MemoryFilter, RecallMode
from rookery.memory.ranking import RecallHit


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """
    The parameters of a recall.

    Attributes:
        boost: The weight of *keywords*, 0..1.
        min_relevance: The minimum relevance of a result, 0..1.
        context: Neighbours in the session to return with each result, on either side, 0..2.
        explains: Also return what was dropped and why. This costs a second search if there are filters.
        max_tokens: A token budget, filled in order; memories that do not fit are skipped. None: no budget.
    """

    query: str
    filters: MemoryFilter = field(default_factory=MemoryFilter)
    top_k: int = 5
    mode: RecallMode = "hybrid"
    keywords: tuple[str, ...] = ()
    boost: float = 0.2
    min_relevance: float | None = None
    max_tokens: int | None = None
    context: int = 0
    explains: bool = False

    @property
    def keyword_boost(self) -> float:
        """The weight of *keywords*; 0 without any."""
        return self.boost if self.keywords else 0.0


DropRule = Literal["top_k", "similar", "min_relevance", "max_tokens", "filter"]
"""
The rule by which a recall dropped a memory.

    top_k          better ones took all places
    min_relevance  it is less relevant than the request wants
    max_tokens     it did not fit the remaining budget
    filter         a filter of the request rejects it
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedMemory:
    """
    A memory that the caller may read and that a recall did not return.

    Attributes:
        hit: The memory with its score. One that a filter rejects was compared in a search without the filters.
        filters: The names of the filters that reject it, for the rule `filter`.
    """

    hit: RecallHit
    rule: DropRule
    filters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallExplanation:
    """
    The explanation of a whole recall.

    Attributes:
        mode: The search method that was used.
        candidate_count: Memories that the indexes found and that were compared.
        confident_relevance: The relevance of the best memory from which on a recall is confident.
        dropped: The best of the memories that were not returned.
        notice: What *dropped* lacks, and why.
    """

    mode: RecallMode
    candidate_count: int
    confident_relevance: float
    dropped: tuple[DroppedMemory, ...]
    notice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """
    The result of a recall, best first.

    Attributes:
        is_confident: Whether the best memory is as relevant as answers usually are.
        notice: The reason of a fallback from semantic to keyword search, or of an incomplete explanation.
        explanation: What was compared and dropped, if the request wants it.
    """

    recall_id: str
    hits: tuple[RecallHit, ...]
    is_confident: bool
    took_ms: float = 0.0
    notice: str | None = None
    explanation: RecallExplanation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQueryRecord:
    """
    The query of a recall, for training examples.

    Attributes:
        semantic_ranks: The rank of each returned memory among the hits by meaning, in the order of the results; None if it was not
            among them. *keyword_ranks* is the same for hits by words.
    """

    query: str
    mode: RecallMode
    semantic_ranks: tuple[int | None, ...]
    keyword_ranks: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRequest:
    """
    The request of a recall, for the log of recalls and to run it again.

    Attributes:
        request: The request, with the mode that was used.
        key_name: The name of the key then. *orgs* and *projects* are its lists then.
    """

    request: RecallRequest
    key_name: str
    orgs: frozenset[str] | None
    projects: frozenset[str] | None
    is_confident: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallLogFilter:
    """A filter of the log of recalls; None: no filter. *since* is inclusive, *until* exclusive."""

    key_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    org: str | None = None
    project: str | None = None
    memory_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallViewer:
    """
    The part of the log of recalls that a key may see: its own recalls and, with *sees_other_keys*, those within its rights.

    Attributes:
        orgs: Recalls of other keys must name one of these. None: any, and those that name none. *projects* likewise.
        agent_id: The agent of the key. Recalls with the own memories of another agent are not visible. None: all are.
    """

    workspace_id: int
    key_id: str
    sees_other_keys: bool
    orgs: frozenset[str] | None
    projects: frozenset[str] | None
    agent_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRecall:
    """An entry of the log of recalls, with the feedback on each returned memory; None: no feedback."""

    record: RecallRecord
    request: LoggedRequest
    feedback: tuple[FeedbackVerdict | None, ...]


AbsenceReason = Literal[
    "returned",
    "not_visible",
    "archived",
    "stored_later",
    "filter",
    "not_indexed",
    "not_candidate",
    "min_relevance",
    "max_tokens",
    "similar",
    "top_k",
]
"""
The step at which a memory leaves a recall.

    returned       it does not leave: the recall returns it now
    not_visible    it does not exist, or one of the two keys may not read it
    archived       it is archived
    stored_later   it was stored after the recall
    filter         a filter of the request rejects it
    not_indexed    the indexes do not have it yet
    not_candidate  it is not among the best hits by meaning or by words
    min_relevance  it is less relevant than the request wants
    max_tokens     it does not fit the remaining budget
    similar        a better one differs by numbers and dates only, which costs it its place
    top_k          better ones take all places
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryVerdict:
    """
    The answer to why a recall returns a memory or does not.

    Attributes:
        filters: The names of the filters that reject it, for `filter`.
        rank: Its place among the compared memories, from 1. None if it was not compared.
        logged_rank: Its place in the logged result. None if it was not in it.
    """

    memory_id: str
    reason: AbsenceReason
    filters: tuple[str, ...] = ()
    rank: int | None = None
    score: float | None = None
    relevance: float | None = None
    logged_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallReplay:
    """A logged recall, its result now, and the verdict on one memory if one was named."""

    logged: LoggedRecall
    result: RecallResult
    verdict: MemoryVerdict | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRecord:
    """
    A stored recall, kept for 30 days so that feedback can refer to it.

    Attributes:
        query_record: Written only if the workspace records training examples.
        request: Written unless the workspace keeps no log of recalls, like *org* and the fields after it.
        agent_id: The agent whose own memories were visible: the one that the request named, or that of the key.
    """

    id: str
    workspace_id: int
    key_id: str
    memory_ids: tuple[str, ...]
    created_at: datetime
    query_record: RecallQueryRecord | None = None
    request: LoggedRequest | None = None
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None


class FeedbackVerdict(StrEnum):
    """The use that a caller made of a recalled memory."""

    USED = "used"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackResult:
    """
    The result of feedback.

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
    A memory's relation to a query or, if no recall is named, the storing of the memory.

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
