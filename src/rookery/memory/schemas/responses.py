"""The response models of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.projections import Projection
from rookery.kernel.schema import OMITTED_IF_NONE, Links, Meta, OmittedIfNone, ResponseModel, Timestamp, enum_schema
from rookery.memory.authorship import Author
from rookery.memory.memory_map import MemoryMapResult
from rookery.memory.models import (
    MEMORY_FIELDS,
    SCORE_DECIMALS,
    ArchivedReason,
    BootMemories,
    Memory,
    MemoryState,
    NameCount,
    RememberResult,
    SearchResult,
    Tombstone,
    get_state,
    read_fields,
)
from rookery.memory.ranking import HALF_LIVES_DAYS, RecallContext, RecallHit, memory_decay_factor
from rookery.memory.recall_models import DropRule, RecallResult

TEXT_FIELDS = frozenset({"content", "metadata"})
"""Fields that must not remain anywhere once a memory is deleted. Stored responses omit them; webhooks have them only on request."""


def round_score(number: float) -> float:
    """Return a score or a confidence as responses show it."""
    return round(number, SCORE_DECIMALS)


Score = Annotated[float, AfterValidator(round_score)]


class AuthorResponse(Projection[Author]):
    """
    The author of a memory or of a change.

    Attributes:
        kind: `api` or `agent`: a key of this kind; `operator`: the command line; `system`: a timer.
        name: The name that the key had then, or the operator's login.
        agent_id: The agent of the key, or the agent that the request named.
    """


class MemoryBaseResponse(Projection[Memory]):
    """
    A memory without its content and metadata.

    *created_by* and *updated_by* are null for a memory from before Rookery recorded authors. `superseded_by` names the memory that
    replaced this one, or that it was merged into. *archived_reason* is `merged` in the second case, and null if the memory was archived on
    request.
    """

    hidden = TEXT_FIELDS | {"base_confidence", "content_at", "indexed_model", "index_failed_at"}

    memory_scope: str
    effective_confidence: float
    archived_reason: Annotated[str, enum_schema(ArchivedReason)] | None
    indexed: bool
    state: Annotated[str, enum_schema(MemoryState)]
    created_by: AuthorResponse | None
    updated_by: AuthorResponse | None


class MemoryResponse(MemoryBaseResponse):
    """A memory."""

    content: str
    metadata: dict[str, object]


class MemoriesResponse(ResponseModel):
    """A page of memories."""

    data: list[MemoryResponse]
    links: Links
    meta: Meta


class MemoryVersionResponse(Projection[Tombstone]):
    """One version in a lineage. *memory* is null once the memory was replaced or deleted, because its content is erased."""

    hidden = frozenset({"workspace_id"})

    ended_at: Timestamp | None
    state: Annotated[str, enum_schema(MemoryState)]
    memory: MemoryResponse | None


class HistoryResponse(ResponseModel):
    """A page of a lineage, oldest first."""

    data: list[MemoryVersionResponse]
    links: Links
    meta: Meta


class HistoryToolResponse(ResponseModel):
    """The latest versions of a lineage, oldest first, and the number of all versions."""

    history: list[MemoryVersionResponse]
    count: int


class ForgetResponse(ResponseModel):
    """The ids of the deleted memories, and those of memories that do not exist."""

    forgotten: list[str]
    missing: list[str]


class RememberResponse(MemoryBaseResponse):
    """
    The stored memory, and the ids of others with the same content in the same space.

    It has neither content nor metadata, which the caller has. Responses are stored for repeated Idempotency-Keys, and deleted content
    must not remain there.
    """

    duplicate: bool
    duplicates: Sequence[str]


class BatchItemResponse(ResponseModel):
    """The result of one memory of a batch: *memory* or *error*."""

    index: int
    status: int
    memory: RememberResponse | None
    error: dict[str, object] | None


class BatchResponse(ResponseModel):
    """The results of a batch, in its order."""

    results: list[BatchItemResponse]


class RanksResponse(ResponseModel):
    """A memory's ranks among the hits of each index, from 1."""

    semantic: int | None
    keyword: int | None


class ScorePartsResponse(ResponseModel):
    """
    The parts of a score, which add up to it: meaning, words, the neighbours in the session, and the keywords of the request.

    Attributes:
        repeated: The reduction of a repeated memory that had a higher score than the one before it; less than 0.
    """

    meaning: Score
    words: Score
    neighbours: Score
    keywords: Score
    repeated: Annotated[Score | None, OMITTED_IF_NONE] = None


class ExplanationResponse(ResponseModel):
    """
    The explanation of a memory's rank.

    Attributes:
        is_repeated: True if a better memory differs from it by numbers and dates only, which costs it rank.
        highlight: A part of its content as HTML, with words of the question in `mark`.
    """

    place: int
    relevance: Score
    ranks: RanksResponse
    similarity: Score | None
    text_score: Score | None
    neighbour: Score | None
    matched_keywords: Sequence[str]
    keyword_share: Score
    scope: str
    decay: Score
    effective_confidence: Score
    parts: ScorePartsResponse
    is_repeated: Annotated[bool | None, OMITTED_IF_NONE] = None
    highlight: str


class NeighbourResponse(ResponseModel):
    """A memory beside a recalled one in its session."""

    id: str
    content: str
    type: str
    agent_id: str | None
    created_at: Timestamp


class ContextResponse(ResponseModel):
    """The memories stored just before and after a recalled one in its session, in the order of time."""

    before: list[NeighbourResponse]
    after: list[NeighbourResponse]


class RecalledMemory(Projection[Memory]):
    """
    A recalled memory.

    Attributes:
        score: The value that ranks the memories; comparable within one answer.
        relevance: The probability that the memory answers the question, in 0..1; comparable between answers.
        similarity: The cosine similarity of question and memory, if both were compared.
        similar: The number of memories that differ from it by numbers and dates only and are not in this answer, because they rank lower.
        context: Its neighbours in the session, if the request has *context*.
    """

    hidden = frozenset(
        {
            *("workspace_id", "base_confidence", "supersedes_id", "superseded_by", "content_at", "expires_at", "archived_at"),
            *("created_by", "updated_by", "indexed_at", "indexed_model", "index_failed_at"),
        }
    )

    memory_scope: str
    metadata: dict[str, object]
    score: float
    relevance: float
    similarity: float | None
    effective_confidence: float
    similar: Annotated[int | None, OMITTED_IF_NONE] = None
    context: Annotated[ContextResponse | None, OMITTED_IF_NONE] = None
    explain: Annotated[ExplanationResponse | None, OMITTED_IF_NONE] = None


class DroppedMemoryResponse(ResponseModel):
    """
    A memory that a recall did not return, though the key may read it.

    Attributes:
        rule: `top_k`: better ones took all places. `similar`: so they did, and a better one differs by numbers and dates only.
            `min_relevance`: it is less relevant. `max_tokens`: it did not fit. `filter`: *filters* reject it.
        score: The value that would rank it; for the rule `filter`, without the filters.
        excerpt: The start of its content.
    """

    id: str
    excerpt: str
    type: str
    project: str | None
    memory_scope: str
    rule: DropRule
    filters: Sequence[str]
    score: Score
    relevance: Score
    similarity: Score | None
    text_score: Score | None


class RecallExplanationResponse(ResponseModel):
    """
    The explanation of a whole recall.

    Attributes:
        mode: The search method that was used.
        candidates: The number of memories that were compared.
        confident_relevance: The relevance of the best memory from which on `is_confident` is true.
        dropped: The best of the memories that were not returned, at most 20.
    """

    mode: str
    candidates: int
    confident_relevance: Score
    dropped: list[DroppedMemoryResponse]


class RecallResponse(ResponseModel):
    """
    The memories that match a question, best first.

    Attributes:
        is_confident: True if the best memory is as relevant as answers usually are. If false, the workspace may have no answer.
        notice: The reason of a fallback to another mode, or of an incomplete explanation.
        explain: The number of candidates and what was dropped, if the request has *explain*. Each memory then has its own.
    """

    recall_id: str
    memories: list[RecalledMemory]
    is_confident: bool
    took_ms: int
    notice: OmittedIfNone = None
    explain: Annotated[RecallExplanationResponse | None, OMITTED_IF_NONE] = None


class SearchHitResponse(MemoryResponse):
    """
    A memory found by its words.

    Attributes:
        score: The value that ranks the memories; comparable within one answer. It is nearly 0 if most memories have the words.
    """

    score: float
    highlight: str


class SearchResponse(ResponseModel):
    """The result of a search. *notice* says that new memories are missing, if the index accepts only reads."""

    hits: list[SearchHitResponse]
    total: int
    took_ms: int
    next_cursor: Annotated[str | None, Field(description="The `cursor` of the next page; null on the last page.")] = None
    notice: OmittedIfNone = None


class CountResponse(Projection[NameCount]):
    """A name and the number of memories that have it."""


class TagsResponse(ResponseModel):
    """Tags, most frequent first."""

    tags: list[CountResponse]


class MapClusterResponse(ResponseModel):
    """Points that lie together: their centre, their number, and the words that set them apart."""

    x: int
    y: int
    count: int
    words: Sequence[str]


class MemoryMapResponse(ResponseModel):
    """
    Memories as points of a plane, on which similar ones are near each other.

    Attributes:
        total: The memories that match. If there are more than points, the points are a sample, stratified by group and time.
        unplaced: Memories of the sample without a vector yet; they have no point.
        ids: The memory of each point.
        coordinates: x and y of each point in turn, each in -32767..32767.
        point_groups: The number of each point's group. The number of groups stands for all smaller groups together.
        point_clusters: The number of each point's cluster.
        groups: The largest groups, at most eight; the empty name counts memories without the field.
        clusters: The clusters, largest first.
    """

    total: int
    unplaced: int
    ids: list[str]
    coordinates: list[int]
    point_groups: list[int]
    point_clusters: list[int]
    groups: list[CountResponse]
    clusters: list[MapClusterResponse]


class OrgResponse(ResponseModel):
    """An org (null for memories without one) and its projects."""

    org: str | None
    count: int
    projects: list[CountResponse]


class ScopesResponse(ResponseModel):
    """Orgs and projects, most memories first."""

    scopes: list[OrgResponse]


class ConfidenceResponse(ResponseModel):
    """A memory's id and confidence."""

    id: str
    confidence: float


class FeedbackResponse(ResponseModel):
    """The result of feedback: the ids whose confidence changed, and the confidence of every named memory."""

    recall_id: str
    used: list[str]
    ignored: list[str]
    memories: list[ConfidenceResponse]


class MemoryBootResponse(ResponseModel):
    """The memories that an agent starts with."""

    agent: list[MemoryResponse]
    shared: list[MemoryResponse]
    project: list[MemoryResponse]
    session: list[MemoryResponse]


_EXCERPT_CHARS = 300
_BASE_FIELDS = tuple(name for name in MemoryBaseResponse.model_fields if name in MEMORY_FIELDS)
_BOOT_FIELDS = tuple(MemoryBootResponse.model_fields)
_AUTHOR_FIELDS = tuple(AuthorResponse.model_fields)
_NEIGHBOUR_FIELDS = tuple(NeighbourResponse.model_fields)

_RECALLED_FIELDS = tuple(name for name in RecalledMemory.model_fields if name in MEMORY_FIELDS)


class MemorySerializer:
    """
    A serializer of the results of the memory services.

    Args:
        model: The embedder's model. Memories indexed with another model are stale.
        half_lives_days: Half-lives by type; they override `ranking.HALF_LIVES_DAYS`.
    """

    def __init__(self, *, clock: Clock, model: str, half_lives_days: Mapping[str, int | None] | None = None) -> None:
        self._clock = clock
        self._model = model
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    def serialize_version(self, caller: Caller, version: Memory | Tombstone) -> MemoryVersionResponse:
        """Return one version of a lineage, or its tombstone."""
        if isinstance(version, Tombstone):
            ended, memory, state = version.ended_at, None, MemoryState.DELETED
        else:
            ended, memory = None, self.serialize_memory(caller, version)
            state = get_state(version, model=self._model)
        return MemoryVersionResponse.from_parts(version, ended_at=ended, state=state, memory=memory)

    def serialize_memory(self, caller: Caller, memory: Memory) -> MemoryResponse:
        return MemoryResponse.model_construct(None, **self._all_fields(caller, memory))

    def serialize_remembered(self, caller: Caller, result: RememberResult) -> RememberResponse:
        """Return the result of storing a draft."""
        return RememberResponse.model_construct(
            None, **self._base_fields(caller, result.memory), duplicate=result.is_duplicate, duplicates=result.duplicates
        )

    def serialize_recall(self, result: RecallResult, *, explain: bool) -> RecallResponse:
        fields = {
            "recall_id": result.recall_id,
            "is_confident": result.is_confident,
            "took_ms": round(result.took_ms),
            "notice": result.notice,
        }
        if explain:
            explained = [
                RecalledMemory.model_construct(None, **_recalled_fields(hit), explain=_serialize_explanation(hit, place))
                for place, hit in enumerate(result.hits, start=1)
            ]
            return RecallResponse.model_construct(None, memories=explained, explain=_serialize_drops(result), **fields)
        memories = [RecalledMemory.model_construct(None, **_recalled_fields(hit)) for hit in result.hits]
        return RecallResponse.model_construct(None, memories=memories, **fields)

    def serialize_boot(self, caller: Caller, boot: BootMemories) -> MemoryBootResponse:
        """Return the memories that an agent starts with."""
        return MemoryBootResponse.model_construct(
            None, **{name: [self.serialize_memory(caller, memory) for memory in getattr(boot, name)] for name in _BOOT_FIELDS}
        )

    def serialize_search(self, caller: Caller, result: SearchResult) -> SearchResponse:
        hits = [
            SearchHitResponse.model_construct(
                None, **self._all_fields(caller, hit.memory), score=float(f"{hit.score:.{SCORE_DECIMALS}g}"), highlight=hit.highlight
            )
            for hit in result.hits
        ]
        return SearchResponse.model_construct(
            hits=hits,
            total=result.total,
            took_ms=round(result.took_ms),
            next_cursor=result.cursors[-1] if result.has_next and result.cursors else None,
            notice=result.notice,
        )

    def _all_fields(self, caller: Caller, memory: Memory) -> dict[str, object]:
        return {**self._base_fields(caller, memory), "content": memory.content, "metadata": memory.metadata}

    def _base_fields(self, caller: Caller, memory: Memory) -> dict[str, object]:
        state = get_state(memory, model=self._model)
        decay = memory_decay_factor(memory, at=self._clock(), half_lives_days=self._half_lives_days)
        is_merged = memory.archived_at is not None and memory.superseded_by is not None
        return {
            **read_fields(memory, _BASE_FIELDS),
            "workspace_id": caller.public_workspace_id,
            "created_by": _serialize_author(memory.created_by),
            "updated_by": _serialize_author(memory.updated_by),
            "memory_scope": memory.memory_scope.value,
            "effective_confidence": round_score(memory.confidence * decay),
            "archived_reason": ArchivedReason.MERGED.value if is_merged else None,
            "indexed": state is MemoryState.INDEXED,
            "state": state.value,
        }


def _serialize_author(author: Author | None) -> AuthorResponse | None:
    return None if author is None else AuthorResponse.model_construct(None, **read_fields(author, _AUTHOR_FIELDS))


def _recalled_fields(hit: RecallHit) -> dict[str, object]:
    score = hit.score
    return {
        **read_fields(hit.memory, _RECALLED_FIELDS),
        "memory_scope": hit.memory.memory_scope.value,
        "score": round_score(score.total),
        "relevance": round_score(score.relevance),
        "similarity": None if score.similarity is None else round_score(score.similarity),
        "effective_confidence": round_score(hit.effective_confidence),
        "similar": hit.similar_count or None,
        "context": None if hit.context is None else _serialize_context(hit.context),
    }


def _serialize_context(context: RecallContext) -> ContextResponse:
    before, after = (
        [NeighbourResponse.model_construct(None, **read_fields(memory, _NEIGHBOUR_FIELDS)) for memory in memories]
        for memories in (context.before, context.after)
    )
    return ContextResponse.model_construct(None, before=before, after=after)


def _serialize_explanation(hit: RecallHit, place: int) -> ExplanationResponse:
    score = hit.score
    return ExplanationResponse.from_parts(
        score,
        hit,
        place=place,
        ranks=RanksResponse(semantic=score.semantic_rank, keyword=score.keyword_rank),
        scope=hit.memory.memory_scope,
        parts=ScorePartsResponse.from_parts(score, repeated=score.reduction or None),
        is_repeated=hit.is_repeated or None,
        highlight=hit.highlight or "",
    )


def _serialize_drops(result: RecallResult) -> RecallExplanationResponse | None:
    explanation = result.explanation
    if explanation is None:
        return None
    return RecallExplanationResponse.from_parts(
        explanation,
        candidates=explanation.candidate_count,
        dropped=[
            DroppedMemoryResponse.from_parts(
                dropped,
                dropped.hit.score,
                memory := dropped.hit.memory,
                score=dropped.hit.score.total,
                memory_scope=memory.memory_scope.value,
                excerpt=memory.content[:_EXCERPT_CHARS],
            )
            for dropped in explanation.dropped
        ],
    )


def serialize_map(result: MemoryMapResult) -> MemoryMapResponse:
    return MemoryMapResponse.model_construct(
        None,
        total=result.total,
        unplaced=result.unplaced_count,
        ids=list(result.ids),
        coordinates=[number for pair in result.coordinates for number in pair],
        point_groups=list(result.point_groups),
        point_clusters=list(result.point_clusters),
        groups=[CountResponse.from_parts(group) for group in result.groups],
        clusters=[MapClusterResponse.from_parts(cluster) for cluster in result.clusters],
    )
