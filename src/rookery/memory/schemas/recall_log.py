"""The request and response models of the log of recalls."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.access.models import Caller
from rookery.kernel.projections import Projection
from rookery.kernel.schema import Links, Meta, PageQuery, QueryModel, ResponseModel, Timestamp
from rookery.memory.models import MemoryFilter, MemoryId, RecallMode, read_fields
from rookery.memory.recall_models import AbsenceReason, FeedbackVerdict, LoggedRecall, RecallLogFilter, RecallReplay
from rookery.memory.schemas.responses import MemorySerializer, RecallResponse, Score

_Name = Annotated[str, Field(min_length=1, max_length=255)]


class RecallsQuery(PageQuery):
    """Filters of the log of recalls."""

    key_id: Annotated[_Name, Field(description="Only recalls of this key.")] | None = None
    agent_id: Annotated[_Name, Field(description="Only recalls for this agent.")] | None = None
    session_id: Annotated[_Name, Field(description="Only recalls in this session.")] | None = None
    org: Annotated[_Name, Field(description="Only recalls in this org.")] | None = None
    project: Annotated[_Name, Field(description="Only recalls in this project.")] | None = None
    memory_id: Annotated[MemoryId, Field(description="Only recalls that returned this memory.")] | None = None
    since: Annotated[Timestamp | None, Field(description="Only recalls at or after this time.")] = None
    until: Annotated[Timestamp | None, Field(description="Only recalls before this time.")] = None

    def to_filter(self) -> RecallLogFilter:
        names = ("key_id", "agent_id", "session_id", "org", "project", "since", "until")
        memory_id = None if self.memory_id is None else self.memory_id.lower()
        return RecallLogFilter(memory_id=memory_id, **read_fields(self, names))


class ExplainQuery(QueryModel):
    """The memory to look for in the repeated recall."""

    memory_id: Annotated[MemoryId, Field(description="Also say at which step this memory leaves the recall.")] | None = None


class LoggedMemoryResponse(ResponseModel):
    """A memory that a recall returned: its place, and the feedback on it that counted."""

    id: str
    rank: int
    feedback: FeedbackVerdict | None


class RecallFiltersResponse(Projection[MemoryFilter]):
    """The filters of a recall; null: none. *metadata* is the number of conditions on metadata, which are stored as digests."""

    hidden = frozenset({"continued_session_ids", "scopes", "labels"})

    include_scopes: list[str] | None
    tags: list[str]
    metadata: int


class LoggedRecallResponse(ResponseModel):
    """
    An entry of the log of recalls.

    Attributes:
        key_name: The name that the key had then.
        agent_id: The agent whose own memories the recall could return: the one of the request, or that of the key.
        filters: The filters of the request.
        memories: The returned memories, best first. Those that were deleted since are among them.
    """

    id: str
    created_at: Timestamp
    key_id: str
    key_name: str
    agent_id: str | None
    session_id: str | None
    org: str | None
    project: str | None
    query: str
    mode: RecallMode
    top_k: int
    keywords: list[str]
    min_relevance: float | None
    max_tokens: int | None
    filters: RecallFiltersResponse
    is_confident: bool
    memories: list[LoggedMemoryResponse]


class RecallsResponse(ResponseModel):
    """A page of the log of recalls, newest first."""

    data: list[LoggedRecallResponse]
    links: Links
    meta: Meta


class MemoryVerdictResponse(ResponseModel):
    """
    The step at which a memory leaves the recall.

    Attributes:
        reason: `returned`: it is in the result now. `not_visible`: it does not exist, or one of the two keys may not read it. `archived`.
            `stored_later`: it was stored after the recall. `filter`: *filters* reject it. `not_indexed`: the indexes do not have it yet.
            `not_candidate`: it is not among the best hits by meaning or by words. `min_relevance`: it is less relevant. `max_tokens`: it
            does not fit. `top_k`: better ones take all places.
        rank: Its place among the compared memories now. Null if it was not compared.
        logged_rank: Its place in the logged result. Null if it was not in it.
    """

    memory_id: str
    reason: AbsenceReason
    filters: list[str]
    rank: int | None
    score: Score | None
    relevance: Score | None
    logged_rank: int | None


class RecallReplayResponse(ResponseModel):
    """A logged recall, its result now with the explanation, and the verdict on the memory that the request named."""

    logged: LoggedRecallResponse
    now: RecallResponse
    memory: MemoryVerdictResponse | None


def present_logged(caller: Caller, logged: LoggedRecall) -> LoggedRecallResponse:
    """Return an entry of the log, the same for each caller that may see it."""
    del caller
    return serialize_logged(logged)


def serialize_logged(logged: LoggedRecall) -> LoggedRecallResponse:
    """Return an entry of the log."""
    record, request, filters = logged.record, logged.request.request, logged.request.request.filters
    return LoggedRecallResponse.from_parts(
        record,
        logged.request,
        request,
        keywords=list(request.keywords),
        filters=RecallFiltersResponse.from_parts(
            filters,
            include_scopes=None if filters.scopes is None else sorted(filters.scopes),
            tags=sorted(filters.tags),
            metadata=len(filters.labels),
        ),
        memories=[
            LoggedMemoryResponse(id=memory_id, rank=rank, feedback=verdict)
            for rank, (memory_id, verdict) in enumerate(zip(record.memory_ids, logged.feedback, strict=True), start=1)
        ],
    )


def serialize_replay(replay: RecallReplay, serializer: MemorySerializer) -> RecallReplayResponse:
    """Return a repeated recall."""
    verdict = replay.verdict
    return RecallReplayResponse(
        logged=serialize_logged(replay.logged),
        now=serializer.serialize_recall(replay.result, explain=True),
        memory=None if verdict is None else MemoryVerdictResponse.from_parts(verdict, filters=list(verdict.filters)),
    )
