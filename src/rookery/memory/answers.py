"""What memory answers: the spec's shapes and field names, and what D-40, D-42, D-49 and D-50 add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.http.pages import Links, Meta
from rookery.kernel.wire import Answer, Moment, Seldom, one_of
from rookery.memory.models import (
    SHOWN_DIGITS,
    ArchivedReason,
    Boot,
    Counted,
    Hit,
    Memory,
    MemoryState,
    OrgCount,
    Recalled,
    Remembered,
    Searched,
    Tombstone,
    state_of,
)
from rookery.memory.past import Judged
from rookery.memory.ranking import HALF_LIVES_DAYS, remaining

AUTHORS_TEXT = frozenset({"content", "metadata"})
"""The fields of a memory that must be nowhere once it is deleted (D-41): no stored response has them, and webhooks only if asked to."""


def rounded(number: float) -> float:
    """Return a score or a confidence as answers show it."""
    return round(number, SHOWN_DIGITS)


class MemoryWithoutText(Answer):
    """
    All of a memory but its author's text.

    *superseded_by* names the memory that replaced this one, or that it was merged into; *archived_reason* is `merged` in the
    second case, and null if it was archived by itself.
    """

    id: str
    workspace_id: int
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: str
    type: str
    tags: Sequence[str]
    confidence: float
    effective_confidence: float
    source: str
    supersedes_id: str | None
    superseded_by: str | None
    expires_at: Moment | None
    archived_at: Moment | None
    archived_reason: Annotated[str, one_of(ArchivedReason)] | None
    indexed: bool
    indexed_at: Moment | None
    state: Annotated[str, one_of(MemoryState)]
    created_at: Moment
    updated_at: Moment


class MemoryAnswer(MemoryWithoutText):
    """A memory (spec 2.5, D-50)."""

    content: str
    metadata: dict[str, object]


class MemoriesAnswer(Answer):
    """A page of memories (D-12)."""

    data: list[MemoryAnswer]
    links: Links
    meta: Meta


class VersionAnswer(Answer):
    """One memory of a lineage (D-41); *memory* is null once it was replaced or deleted: its content is nowhere any more."""

    id: str
    supersedes_id: str | None
    superseded_by: str | None
    created_at: Moment
    ended_at: Moment | None
    state: Annotated[str, one_of(MemoryState)]
    memory: MemoryAnswer | None


class HistoryAnswer(Answer):
    """A page of a lineage, oldest first (D-12, D-41)."""

    data: list[VersionAnswer]
    links: Links
    meta: Meta


class RememberAnswer(MemoryWithoutText):
    """
    The memory that was stored (spec 4.3, D-40), and others with the same content in the same space.

    It has neither content nor metadata, which the caller has: responses are stored for repeated Idempotency-Keys, and what is
    deleted must be nowhere (D-14, D-41).
    """

    duplicate: bool
    duplicates: Sequence[str]


class BatchItem(Answer):
    """What came of one memory of a batch: *memory* or *error*."""

    index: int
    status: int
    memory: RememberAnswer | None
    error: dict[str, object] | None


class BatchAnswer(Answer):
    """What came of a batch, in its order."""

    results: list[BatchItem]


class Ranks(Answer):
    """A memory's places among what each index found, from 1."""

    semantic: int | None
    keyword: int | None


class Explanation(Answer):
    """How a memory came to its place (D-42)."""

    place: int
    relevance: float
    ranks: Ranks
    similarity: float | None
    text_score: float | None
    matched_keywords: Sequence[str]
    keyword_share: float
    scope: str
    decay: float
    effective_confidence: float


class RecalledMemory(Answer):
    """A recalled memory (spec 4.3, D-42)."""

    id: str
    content: str
    type: str
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: str
    tags: Sequence[str]
    metadata: dict[str, object]
    source: str
    score: float
    similarity: float | None
    confidence: float
    effective_confidence: float
    created_at: Moment
    updated_at: Moment


class ExplainedMemory(RecalledMemory):
    """A recalled memory with the why of its place."""

    explain: Explanation


class RecallAnswer(Answer):
    """The memories that answer a question, best first; *notice*: that they were not looked for as asked (D-54)."""

    recall_id: str
    memories: list[RecalledMemory]
    took_ms: int
    notice: Seldom = None


class ExplainedAnswer(Answer):
    """The same, each with the why of its place."""

    recall_id: str
    memories: list[ExplainedMemory]
    took_ms: int
    notice: Seldom = None


class SearchHitAnswer(MemoryAnswer):
    """A memory found by its words (D-49)."""

    score: float
    highlight: str


class SearchAnswer(Answer):
    """What a search found (spec 4.3)."""

    hits: list[SearchHitAnswer]
    total: int
    took_ms: int


class Count(Answer):
    """A name and how many memories have it."""

    name: str
    count: int


class TagsAnswer(Answer):
    """Tags, most frequent first (spec 4.3)."""

    tags: list[Count]


class OrgAnswer(Answer):
    """An org (null: memories without one) and its projects."""

    org: str | None
    count: int
    projects: list[Count]


class ScopesAnswer(Answer):
    """Orgs and projects, most memories first (spec 4.3)."""

    scopes: list[OrgAnswer]


class Confidence(Answer):
    """A memory and how sure one may be of it."""

    id: str
    confidence: float


class FeedbackAnswer(Answer):
    """What came of feedback: the ids that counted now, and every memory named with its confidence (D-47)."""

    recall_id: str
    used: list[str]
    ignored: list[str]
    memories: list[Confidence]


class BootAnswer(Answer):
    """What an agent begins with (D-48)."""

    agent: list[MemoryAnswer]
    shared: list[MemoryAnswer]
    project: list[MemoryAnswer]
    session: list[MemoryAnswer]


class Answers:
    """
    Shapes what the verbs return.

    Args:
        model: The embedder's, by which a memory is stale (D-54).
        half_lives_days: By type, over `ranking.HALF_LIVES_DAYS`.
    """

    def __init__(self, *, clock: Clock, model: str, half_lives_days: Mapping[str, int | None] | None = None) -> None:
        self._clock = clock
        self._model = model
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    def version(self, caller: Caller, version: Memory | Tombstone) -> VersionAnswer:
        """Shape one memory of a lineage, or what stayed of it."""
        if isinstance(version, Tombstone):
            ended, by, memory, state = version.ended_at, version.superseded_by, None, MemoryState.DELETED
        else:
            ended, by, memory = None, version.superseded_by, self.memory(caller, version)
            state = state_of(version, model=self._model)
        return VersionAnswer(
            id=version.id,
            supersedes_id=version.supersedes_id,
            superseded_by=by,
            created_at=version.created_at,
            ended_at=ended,
            state=state.value,
            memory=memory,
        )

    def memory(self, caller: Caller, memory: Memory) -> MemoryAnswer:
        """Return a memory in full."""
        return MemoryAnswer.model_construct(None, **self._fields(caller, memory))

    def remembered(self, caller: Caller, done: Remembered) -> RememberAnswer:
        """Return what came of a draft."""
        return RememberAnswer.model_construct(
            None, **self._without_text(caller, done.memory), duplicate=done.is_duplicate, duplicates=done.duplicates
        )

    def recalled(self, recalled: Recalled, *, explain: bool) -> RecallAnswer | ExplainedAnswer:
        """Return the answer to a question."""
        took_ms, notice = round(recalled.took_ms), recalled.notice
        if explain:
            whys = [ExplainedMemory.model_construct(None, **_recalled(hit), explain=_explanation(hit)) for hit in recalled.hits]
            return ExplainedAnswer.model_construct(recall_id=recalled.recall_id, memories=whys, took_ms=took_ms, notice=notice)
        memories = [RecalledMemory.model_construct(None, **_recalled(hit)) for hit in recalled.hits]
        return RecallAnswer.model_construct(recall_id=recalled.recall_id, memories=memories, took_ms=took_ms, notice=notice)

    def judged(self, judged: Judged) -> FeedbackAnswer:
        """Return what came of feedback."""
        return FeedbackAnswer.model_construct(
            recall_id=judged.recall_id,
            used=list(judged.used),
            ignored=list(judged.ignored),
            memories=[Confidence.model_construct(id=each.id, confidence=each.confidence) for each in judged.memories],
        )

    def boot(self, caller: Caller, boot: Boot) -> BootAnswer:
        """Return what an agent begins with."""
        return BootAnswer.model_construct(
            agent=[self.memory(caller, each) for each in boot.agent],
            shared=[self.memory(caller, each) for each in boot.shared],
            project=[self.memory(caller, each) for each in boot.project],
            session=[self.memory(caller, each) for each in boot.session],
        )

    def searched(self, caller: Caller, searched: Searched) -> SearchAnswer:
        """Return what a search found."""
        hits = [
            SearchHitAnswer.model_construct(
                None, **self._fields(caller, hit.memory), score=float(f"{hit.score:.{SHOWN_DIGITS}g}"), highlight=hit.highlight
            )
            for hit in searched.hits
        ]
        return SearchAnswer.model_construct(hits=hits, total=searched.total, took_ms=round(searched.took_ms))

    def _fields(self, caller: Caller, memory: Memory) -> dict[str, object]:
        return {**self._without_text(caller, memory), "content": memory.content, "metadata": memory.metadata}

    def _without_text(self, caller: Caller, memory: Memory) -> dict[str, object]:
        state = state_of(memory, model=self._model)
        left = remaining(memory, at=self._clock(), half_lives_days=self._half_lives_days)
        return {
            "id": memory.id,
            "workspace_id": caller.shown_workspace_id,
            "org": memory.org,
            "project": memory.project,
            "agent_id": memory.agent_id,
            "session_id": memory.session_id,
            "memory_scope": memory.memory_scope.value,
            "type": memory.type,
            "tags": memory.tags,
            "confidence": memory.confidence,
            "effective_confidence": rounded(memory.confidence * left),
            "source": memory.source,
            "supersedes_id": memory.supersedes_id,
            "superseded_by": memory.superseded_by,
            "expires_at": memory.expires_at,
            "archived_at": memory.archived_at,
            "archived_reason": ArchivedReason.MERGED.value if memory.archived_at is not None and memory.superseded_by is not None else None,
            "indexed": state is MemoryState.INDEXED,
            "indexed_at": memory.indexed_at,
            "state": state.value,
            "created_at": memory.created_at,
            "updated_at": memory.updated_at,
        }


def tags_answer(tags: Sequence[Counted]) -> TagsAnswer:
    """Return tags with their counts."""
    return TagsAnswer.model_construct(tags=[_count(tag) for tag in tags])


def scopes_answer(orgs: Sequence[OrgCount]) -> ScopesAnswer:
    """Return orgs and projects with their counts."""
    shown = [
        OrgAnswer.model_construct(org=each.org, count=each.count, projects=[_count(project) for project in each.projects]) for each in orgs
    ]
    return ScopesAnswer.model_construct(scopes=shown)


def _count(counted: Counted) -> Count:
    return Count.model_construct(name=counted.name, count=counted.count)


def _recalled(hit: Hit) -> dict[str, object]:
    memory = hit.memory
    return {
        "id": memory.id,
        "content": memory.content,
        "type": memory.type,
        "org": memory.org,
        "project": memory.project,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "memory_scope": memory.memory_scope.value,
        "tags": memory.tags,
        "metadata": memory.metadata,
        "source": memory.source,
        "score": rounded(hit.score),
        "similarity": None if hit.similarity is None else rounded(hit.similarity),
        "confidence": memory.confidence,
        "effective_confidence": rounded(hit.effective_confidence),
        "created_at": memory.created_at,
        "updated_at": memory.updated_at,
    }


def _explanation(hit: Hit) -> Explanation:
    why = hit.why
    return Explanation.model_construct(
        place=why.place,
        relevance=rounded(why.relevance),
        ranks=Ranks.model_construct(semantic=why.semantic_rank, keyword=why.keyword_rank),
        similarity=None if why.similarity is None else rounded(why.similarity),
        text_score=None if why.text_score is None else rounded(why.text_score),
        matched_keywords=why.matched,
        keyword_share=rounded(why.keyword_share),
        scope=hit.memory.memory_scope.value,
        decay=rounded(why.decay),
        effective_confidence=rounded(hit.effective_confidence),
    )
