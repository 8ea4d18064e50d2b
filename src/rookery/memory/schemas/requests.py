"""The request models of memory. Numbers out of range are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, cast

import orjson
from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic.fields import FieldInfo

from rookery.kernel.pages import PageSlice
from rookery.kernel.projections import Body, Patch, get_field_types
from rookery.kernel.schema import CursorQuery, ItemsOf, NotBlank, PageQuery, QueryModel, RequestModel, Timestamp, enum_schema
from rookery.memory.memory_map import MAX_POINTS
from rookery.memory.metadata import (
    MAX_FILTER_VALUE_CHARS,
    MAX_KEYS,
    build_facet_label,
    build_label,
    to_filter_text,
)
from rookery.memory.models import (
    FACET_FIELDS,
    AgentId,
    Draft,
    MapGrouping,
    Memory,
    MemoryFilter,
    MemoryId,
    MemoryScope,
    MemorySettings,
    MemoryState,
    Org,
    Project,
    Scope,
    ScopeName,
    SessionId,
    Source,
    Tag,
    Type,
)
from rookery.memory.recall_models import RecallMode, RecallRequest

MAX_QUERY_CHARS = 2_000
MAX_BATCH_SIZE = 500
MAX_FORGET_IDS = 100
MAX_BATCH_BYTES = 10 * 1024 * 1024

_FILTER_FIELDS = frozenset(column.name for column in fields(MemoryFilter))


def _validate_query_length(query: str) -> str:
    if len(query) > MAX_QUERY_CHARS:
        message = (
            f"must have at most {MAX_QUERY_CHARS:,} characters, not {len(query):,}: send the question alone, without the text around it"
        )
        raise ValueError(message)
    return query


def _validate_printable(text: str) -> str:
    if "\0" in text or not text.isprintable():
        msg = "must be printable text"
        raise ValueError(msg)
    return text


def _validate_pairs(pairs: dict[str, object]) -> dict[str, object]:
    for key, value in pairs.items():
        if to_filter_text(value) is None:
            msg = f"the value of {key!r} must be a text of at most {MAX_FILTER_VALUE_CHARS} characters, a number, true, false or null"
            raise ValueError(msg)
    return pairs


_FIELD_HINTS: Mapping[str, str] = {
    "text": "content",
    "memory": "content",
    "data": "content",
    "message": "content",
    "messages": "content",
    "document": "content",
    "user_id": "agent_id",
    "user": "agent_id",
    "agent": "agent_id",
    "run_id": "session_id",
    "thread_id": "session_id",
    "conversation_id": "session_id",
    "app_id": "project",
    "namespace": "org",
    "organization": "org",
    "org_id": "org",
    "project_id": "project",
    "category": "type",
    "kind": "type",
    "memory_type": "type",
    "categories": "tags",
    "labels": "tags",
    "scope": "memory_scope",
    "ttl": "expires_in",
    "expiration_date": "expires_in",
    "importance": "confidence",
    "payload": "metadata",
    "properties": "metadata",
    "attributes": "metadata",
    "custom": "metadata",
}
"""Field names of mem0, Letta, Zep and vector stores, with the Rookery field to suggest."""

_RECALL_FIELD_HINTS: Mapping[str, str] = {
    **_FIELD_HINTS,
    "text": "query",
    "q": "query",
    "question": "query",
    "prompt": "query",
    "query_text": "query",
    "limit": "top_k",
    "k": "top_k",
    "n": "top_k",
    "n_results": "top_k",
    "max_results": "top_k",
    "num_results": "top_k",
    "per_page": "top_k",
    "threshold": "min_relevance",
    "min_score": "min_relevance",
    "score_threshold": "min_relevance",
    "similarity_threshold": "min_relevance",
    "filters": "metadata",
    "filter": "metadata",
    "where": "metadata",
    "scope": "include_scopes",
    "scopes": "include_scopes",
    "memory_scope": "include_scopes",
    "search_mode": "mode",
}

MinConfidence = Annotated[float, Field(ge=0, le=1, description="Only memories with at least this effective confidence, 0 to 1.")]
Since = Annotated[Timestamp | None, Field(description="Only memories created at or after this time.")]
Until = Annotated[Timestamp | None, Field(description="Only memories created before this time.")]
MetadataFilter = Annotated[
    dict[str, object],
    Field(
        max_length=MAX_KEYS,
        description="Only memories whose metadata has all of these values at its top level. Values are compared as text: "
        '`42` and `"42"` are equal.',
        examples=[{"user_id": "u_17"}],
    ),
    AfterValidator(_validate_pairs),
]
QueryText = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"maxLength": MAX_QUERY_CHARS}),
    AfterValidator(_validate_query_length),
    NotBlank,
]
WaitMs = Annotated[int, Field(ge=0, le=5000, description="Maximum milliseconds to wait for indexing before the response.")]
Keyword = Annotated[str, Field(min_length=1, max_length=200), NotBlank]


class DraftBody(Body[Draft]):
    """One memory to store, as part of a batch. A null field counts as missing."""

    resets_by_null = True
    hints: ClassVar[Mapping[str, str]] = _FIELD_HINTS


class RememberBody(DraftBody):
    """One memory to store. A null field counts as missing."""

    wait_ms: WaitMs | None = None

    @property
    def wait_s(self) -> float:
        """Seconds to wait for indexing."""
        return (self.wait_ms or 0) / 1000


class BatchBody(RequestModel):
    """Memories to store in one request. Each is accepted or rejected on its own."""

    memories: Annotated[
        list[dict[str, object]],
        ItemsOf(RememberBody),
        Field(min_length=1, max_length=MAX_BATCH_SIZE, description="Memories with the fields of the body of /remember."),
    ]
    wait_ms: (
        Annotated[WaitMs, Field(description="Maximum milliseconds to wait for indexing of all memories before the response.")] | None
    ) = None

    @property
    def wait_s(self) -> float:
        """Seconds to wait for indexing."""
        return (self.wait_ms or 0) / 1000


class ChangeBody(Patch[MemorySettings]):
    """
    The fields to change. Missing fields keep their value.

    org, project, tags, metadata and expires_in accept null, which clears them. A new metadata object replaces the old one.
    """

    resets_by_null = frozenset({"tags", "metadata"})
    hints: ClassVar[Mapping[str, str]] = _FIELD_HINTS


class FacetFilters(BaseModel):
    """The filters by the facet fields of `Memory`, with their types and descriptions."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: object) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        types = get_field_types(Memory)
        facets = {name: FieldInfo.from_annotated_attribute(cast("type[Any]", types[name] | None), None) for name in FACET_FIELDS}
        cls.__pydantic_fields__ = {**cls.model_fields, **facets}


class RecallBody(FacetFilters, RequestModel):
    """A recall request. A null field counts as missing."""

    hints: ClassVar[Mapping[str, str]] = _RECALL_FIELD_HINTS

    query: Annotated[QueryText, Field(description="The question, in plain language.")]
    top_k: Annotated[int, Field(ge=1, le=100, description="Maximum number of memories; 5 by default.")] | None = None
    org: Org | None = None
    project: Project | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    include_scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=4, description="Only memories of these scopes.")] | None = (
        None
    )
    type: Type | None = None
    tags: Annotated[list[Tag], Field(max_length=100, description="Only memories with all of these tags.")] | None = None
    metadata: MetadataFilter | None = None
    source: Source | None = None
    since: Since = None
    until: Until = None
    min_confidence: MinConfidence | None = None
    min_relevance: (
        Annotated[
            float, Field(ge=0, le=1, description="The minimum `relevance` of a memory: the probability that it answers the question.")
        ]
        | None
    ) = None
    keywords: (
        Annotated[list[Keyword], Field(max_length=32, description="Words that raise the score of memories that contain them.")] | None
    ) = None
    boost_keywords: (
        Annotated[float, Field(ge=0, le=1, description="The increase for a memory that contains all keywords; 0.2 by default.")] | None
    ) = None
    mode: (
        Annotated[RecallMode, Field(description="semantic: by meaning; keyword: by words; hybrid: by both, with the best results.")] | None
    ) = None
    explain: Annotated[bool, Field(description="Explain each memory's rank, and what was dropped by which rule.")] | None = None
    context: (
        Annotated[int, Field(ge=0, le=2, description="Return this many memories stored before and after each one in its session.")] | None
    ) = None
    max_tokens: (
        Annotated[
            int, Field(ge=1, le=1_000_000, description="A token budget, filled in order of rank. Memories that do not fit are skipped.")
        ]
        | None
    ) = None

    def to_request(self, default_mode: RecallMode) -> RecallRequest:
        """Return the recall request. Fields that were left out have their defaults."""
        return RecallRequest(
            query=self.query,
            filters=_build_filter(self, frozenset(self.include_scopes or ()) or None),
            top_k=5 if self.top_k is None else self.top_k,
            mode=self.mode or default_mode,
            keywords=tuple(dict.fromkeys(self.keywords or ())),
            boost=0.2 if self.boost_keywords is None else self.boost_keywords,
            min_relevance=self.min_relevance,
            max_tokens=self.max_tokens,
            context=self.context or 0,
            explains=bool(self.explain),
        )


class FeedbackBody(RequestModel):
    """Feedback on the memories of a recall. A null field counts as missing."""

    used: Annotated[list[MemoryId], Field(max_length=100, description="Memories that were useful; they gain confidence.")] | None = None
    ignored: Annotated[list[MemoryId], Field(max_length=100, description="Memories that were not used; they lose confidence.")] | None = (
        None
    )


class ForgetBody(RequestModel):
    """Memories to delete. An id without a memory is reported and is not an error."""

    ids: Annotated[list[str], Field(min_length=1, max_length=MAX_FORGET_IDS)]


class SpaceQuery(QueryModel):
    """Filters by owner."""

    org: Org | None = None
    project: Project | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None

    def to_filter(self) -> MemoryFilter:
        return _build_filter(self)


class FilterQuery(FacetFilters, SpaceQuery):
    """Filters by owner and by field."""

    memory_scope: Scope | None = None
    type: Type | None = None
    tags: (
        Annotated[list[Tag], Field(max_length=100, description="Only memories with all of these tags; repeat the field for several.")]
        | None
    ) = None
    metadata: MetadataFilter | None = None
    source: Source | None = None
    since: Since = None
    until: Until = None
    min_confidence: MinConfidence | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather_metadata(cls, values: object) -> object:
        """Collect the query parameters `metadata.key=value` and `metadata[key]=value` into one object, and parse `metadata={…}`."""
        if not isinstance(values, dict):
            return values
        fields, pairs = dict[str, object](), dict[str, object]()
        for name, value in cast("dict[str, object]", values).items():
            if name.startswith("metadata.") and len(name) > len("metadata."):
                pairs[name.removeprefix("metadata.")] = value
            elif name.startswith("metadata[") and name.endswith("]") and len(name) > len("metadata[]"):
                pairs[name.removeprefix("metadata[").removesuffix("]")] = value
            elif name == "metadata" and isinstance(value, str) and value.lstrip().startswith("{"):
                pairs |= _parse_object(value)
            else:
                fields[name] = value
        return fields | {"metadata": pairs} if pairs else fields

    def to_filter(self) -> MemoryFilter:
        return _build_filter(self, None if self.memory_scope is None else frozenset({self.memory_scope}))


class SearchQuery(FilterQuery, CursorQuery):
    """A full-text search."""

    offset_fields: ClassVar[frozenset[str]] = frozenset({"offset"})
    size_field: ClassVar[str] = "limit"

    hints: ClassVar[Mapping[str, str]] = {"query": "q", "text": "q", "search": "q", "top_k": "limit", "per_page": "limit", "k": "limit"}

    q: Annotated[QueryText, Field(description='Words, a "quoted phrase", -excluded.')]
    limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of hits.")] = 20
    offset: Annotated[int, Field(ge=0, le=100_000, description="The number of hits to skip.")] = 0

    @property
    def slice(self) -> PageSlice:
        """The part of the hits that the page has."""
        return PageSlice(self.limit, self.offset, self.position)


class MapQuery(FilterQuery):
    """Filters of a map of memories."""

    by: Annotated[MapGrouping, Field(description="The field that groups the points, for their colour.")] = "project"
    limit: Annotated[int, Field(ge=1, le=MAX_POINTS, description="Maximum points; of more memories, a stratified sample is placed.")] = (
        MAX_POINTS
    )


class AgentPath(QueryModel):
    """The agent id of a path."""

    agent_id: Annotated[AgentId, AfterValidator(_validate_printable)]


class ContextQuery(PageQuery):
    """Filters of an agent's own memories."""

    org: Org | None = None
    project: Project | None = None
    type: Type | None = None

    def to_filter(self, agent_id: str) -> MemoryFilter:
        return replace(_build_filter(self), agent_id=agent_id)


class BootQuery(QueryModel):
    """The task that an agent starts."""

    org: Org | None = None
    project: Project | None = None
    session_id: SessionId | None = None
    max_memories: Annotated[int, Field(ge=1, le=500, description="Maximum number of memories of all scopes together.")] = 50

    def to_filter(self, agent_id: str | None) -> MemoryFilter:
        return replace(_build_filter(self), agent_id=agent_id)


class MemoriesQuery(FilterQuery, PageQuery):
    """Filters of a list of memories. Without *state*, all but archived ones are listed."""

    state: Annotated[
        Annotated[MemoryState, enum_schema(MemoryState)] | None,
        Field(description="Only memories in this state; by default all that are not archived."),
    ] = None


def _parse_object(text: str) -> Mapping[str, object]:
    try:
        return cast("Mapping[str, object]", orjson.loads(text))
    except orjson.JSONDecodeError:
        msg = 'metadata is not valid JSON; send metadata.user_id=u_17, or metadata={"user_id": "u_17"}'
        raise ValueError(msg) from None


def _build_filter(body: BaseModel, scopes: frozenset[MemoryScope] | None = None) -> MemoryFilter:
    """Return the filter of the fields of *body*. Scopes have different fields in its models."""
    values = {name: value for name, value in body if value is not None}
    pairs = [build_label(key, to_filter_text(value) or "") for key, value in values.get("metadata", {}).items()]
    return MemoryFilter(
        scopes=scopes,
        tags=frozenset(tag.lower() for tag in values.pop("tags", ())),
        labels=frozenset([*pairs, *(build_facet_label(name, values[name]) for name in FACET_FIELDS if name in values)]),
        **{name: value for name, value in values.items() if name in _FILTER_FIELDS},
    )
