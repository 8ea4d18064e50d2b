"""The data types of memory: the record, queries and results. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field

from rookery.kernel.clock import to_micros
from rookery.kernel.ids import is_uuid
from rookery.kernel.pages import Position
from rookery.kernel.preconditions import compute_version
from rookery.kernel.projections import Patch
from rookery.kernel.schema import NotBlank, enum_schema
from rookery.kernel.validation_messages import WORD_PATTERN
from rookery.memory.authorship import Author
from rookery.memory.metadata import MAX_BYTES, MAX_KEYS, Metadata, build_labels, validate_metadata

Vector = bytes
"""Little-endian float32, unit length, in the embedder's native dimension. Engines may pad it."""


RecallMode = Literal["semantic", "keyword", "hybrid"]
"""The search method of recall: by meaning, by words, or by both."""

SCORE_DECIMALS = 4
"""Decimals of scores and confidences in responses."""

DEFAULT_TYPE = "observation"
"""The type of a memory whose author gives none."""

ALL_AGENTS = "*"
"""A wildcard agent id for lists: the own memories of every agent."""

MAX_CONTENT_CHARS = 50_000
MAX_TAGS = 100
MAX_TAG_CHARS = 128
MAX_NAME_CHARS = 100
"""The maximum length of an org, an agent id, a session id and a source."""
MAX_PROJECT_CHARS = 255
_MAX_EXPIRY_H = 87_600

FACET: Mapping[str, bool] = {"facet": True}
"""The metadata of a field of `Memory` that can be filtered by."""


class MemoryScope(StrEnum):
    """The owner of a memory: a project, an agent, a session or a whole org. `ranking` defines the priority in recall."""

    PROJECT = "project"
    AGENT = "agent"
    SESSION = "session"
    SHARED = "shared"


class MemoryState(StrEnum):
    """
    The state of a memory.

    A memory and its indexing job are stored in one transaction, so `created` and `pending_embed` are one state, returned as
    `pending_embed`. A `deleted` memory is in no store; its tombstone appears in histories.
    """

    CREATED = "created"
    PENDING_EMBED = "pending_embed"
    INDEXED = "indexed"
    STALE = "stale"
    FAILED = "failed"
    ARCHIVED = "archived"
    DELETED = "deleted"


class ArchivedReason(StrEnum):
    """The reason why a memory is archived, if it was not archived on request."""

    MERGED = "merged"


def _validate_uuid(text: str) -> str:
    normalized = text.lower()
    if not is_uuid(normalized):
        msg = "must be a UUID"
        raise ValueError(msg)
    return normalized


def _validate_single_agent(agent_id: str) -> str:
    if agent_id == ALL_AGENTS:
        msg = f"{ALL_AGENTS!r} stands for all agents in lists and cannot be the id of an agent"
        raise ValueError(msg)
    return agent_id


MemoryId = Annotated[str, AfterValidator(_validate_uuid)]
Type = Annotated[
    str,
    Field(
        pattern=WORD_PATTERN,
        description="observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, "
        "service, pattern, or your own: 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter. The type "
        "determines how fast confidence decays.",
        examples=["decision"],
    ),
]
Org = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, description="The organisation namespace.", examples=["acme"]), NotBlank]
Project = Annotated[
    str, Field(min_length=1, max_length=MAX_PROJECT_CHARS, description="The project within the org.", examples=["web"]), NotBlank
]
AgentId = Annotated[
    str,
    Field(min_length=1, max_length=MAX_NAME_CHARS, description="The agent that the memory belongs to; the key's own by default."),
    NotBlank,
]
SessionId = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, description="The session that the memory belongs to."), NotBlank]
ScopeName = Annotated[MemoryScope, enum_schema(MemoryScope), Field(strict=False)]
Scope = Annotated[
    MemoryScope,
    enum_schema(MemoryScope, "Visibility: the project, only the agent, the session, or the whole org (shared)."),
    Field(strict=False),
]
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG_CHARS), NotBlank]
Source = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS, description="The origin of the memory."), NotBlank]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """
    A memory as the record store has it; times are UTC. Exports have the fields up to `content`, in this order.

    A field with the metadata `FACET` can be filtered by in every index, without a column there: it becomes a label.

    Attributes:
        superseded_by: The memory that this one was merged into and therefore archived. None if it was not merged.
        created_by: Who stored it. None for a memory from before authors were recorded.
        updated_by: Who made the change of *updated_at*.
    """

    id: str
    type: str
    tags: tuple[str, ...]
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: MemoryScope
    confidence: float
    base_confidence: float
    source: str
    metadata: Metadata = field(default_factory=dict[str, object])
    supersedes_id: str | None = None
    superseded_by: str | None = None
    created_at: datetime
    updated_at: datetime
    content_at: datetime
    expires_at: datetime | None = None
    archived_at: datetime | None = None
    created_by: Author | None = None
    updated_by: Author | None = None
    content: str
    workspace_id: int
    indexed_at: datetime | None = None
    indexed_model: str | None = None
    index_failed_at: datetime | None = None

    @property
    def labels(self) -> frozenset[str]:
        """The labels by which `AccessFilter.labels` selects it: of its metadata and of its facet fields."""
        return build_labels(self.metadata, {name: getattr(self, name) for name in FACET_FIELDS})

    @property
    def version(self) -> str:
        """
        The version of the stored record, for ETags. Recall, indexing and age do not change it.

        `updated_at` covers its text and labels. Archiving, feedback and links to other memories do not change `updated_at`, so they are
        part of the version too.
        """
        return compute_version(
            self.id,
            to_micros(self.updated_at),
            self.confidence,
            self.supersedes_id,
            self.superseded_by,
            None if self.archived_at is None else to_micros(self.archived_at),
        )


MEMORY_FIELDS: tuple[str, ...] = tuple(column.name for column in fields(Memory))
EXPORTED_FIELDS = MEMORY_FIELDS[: MEMORY_FIELDS.index("content")]
"""The fields of a memory that an export has beside its content. The workspace and the indexing state are not exported."""

FACET_FIELDS: tuple[str, ...] = tuple(column.name for column in fields(Memory) if "facet" in column.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDocument:
    """The part of a memory that the derived indexes store. Built from a Memory, never returned to a caller."""

    memory_id: str
    workspace_id: int
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: MemoryScope
    type: str
    tags: tuple[str, ...]
    confidence: float
    source: str
    content: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    labels: frozenset[str] = frozenset()
    """The labels of its metadata, for `AccessFilter.labels`."""

    @property
    def facets(self) -> tuple[str, ...]:
        """Its tags and labels as one set of names, for engines that filter both alike. No tag begins with NUL."""
        return (*self.tags, *(f"\0{label}" for label in sorted(self.labels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFields:
    """The fields of a memory that decide who may read it."""

    id: str
    workspace_id: int
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: MemoryScope
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """
    The filters that a caller sends. `access_filter.build_access_filter` adds the rights of the key.

    Attributes:
        org: Memories of this org, and those without an org in scope agent or session.
        project: Memories of this project (in any org if *org* is None), and those without a project in scope shared, agent or session.
        agent_id: The agent whose own memories (scope agent) match; None excludes them.
        session_id: The session whose memories (scope session) match; None excludes them.
        continued_session_ids: The sessions that this one continues. Their memories match too.
        scopes: Only these scopes; None for all that the other fields allow.
        tags: A memory must have all of them.
        labels: A memory must have all of these labels of metadata and of facet fields, as `metadata` builds them.
        since: Created at or after; *until*: created before.
    """

    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    continued_session_ids: frozenset[str] = field(default_factory=frozenset[str])
    scopes: frozenset[MemoryScope] | None = None
    type: str | None = None
    tags: frozenset[str] = field(default_factory=frozenset[str])
    labels: frozenset[str] = field(default_factory=frozenset[str])
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_confidence: float | None = None

    @property
    def session_ids(self) -> frozenset[str]:
        """The sessions whose memories match."""
        return frozenset[str]() if self.session_id is None else self.continued_session_ids | {self.session_id}


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFilter(MemoryFilter):
    """
    The memories that a query may return, as data that every engine can translate.

    `visibility.is_visible` is the reference definition. Engines must agree with it and are tested against it.

    Attributes:
        at: Memories that expire at or before this time do not match.
        includes_all_agents: Every agent's own memories match. Supported by the record store only.
        orgs: The key's allow-list of orgs. Memories without an org match as for `org`. None allows any.
        projects: The key's allow-list of projects, likewise as for `project`.
    """

    workspace_id: int
    at: datetime
    includes_all_agents: bool = False
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None

    @property
    def facets(self) -> frozenset[str]:
        """The required tags and labels, named as in `IndexDocument.facets`."""
        return self.tags | {f"\0{label}" for label in self.labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text to embed. *context* (date, type, tags; may be empty) is put before every chunk of *content*."""

    context: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedDocument:
    """A document with the vectors of its chunks, in order; at least one."""

    document: IndexDocument
    vectors: tuple[Vector, ...]


class VectorHit(NamedTuple):
    """A memory found by meaning, with the cosine similarity of its best chunk, in -1..1. A tuple, as a recall makes hundreds of them."""

    memory_id: str
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHit:
    """
    A memory found by words.

    Attributes:
        score: Above 0, higher is better, and comparable within one result only.
        coverage: The share of the question's words that it has, weighted by their rarity, in 0..1. Engines fill it in for the first hit of
            a question. None: not computed.
    """

    memory_id: str
    score: float
    coverage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """
    A parsed full-text query; its strings contain no syntax.

    Attributes:
        any_of: Words that raise the score. At least one must match unless *phrases* is given. An entry of several parts, separated by
            spaces, matches where the parts are adjacent.
        phrases: All of these must match, each with its words adjacent.
        none_of: Words or phrases that must not match.
        is_question: Only the best hits are needed, so an engine may ignore words that too many memories contain.
        stem_terms: For words of *any_of*, the terms from `kernel.languages.to_query_stem_terms`, each of which matches like the word. An
            engine that does not index `to_stem_terms` ignores them.
        keeps_stop_words: English stop words may carry meaning, because the query may be in another language.
    """

    any_of: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    is_question: bool = False
    stem_terms: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    keeps_stop_words: bool = False


MapGrouping = Literal["project", "type"]
"""The field by which a map groups memories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """The fields of a memory that its author gives and may change."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT_CHARS, description="The text to remember."), NotBlank]
    type: Type = DEFAULT_TYPE
    org: Org | None = None
    project: Project | None = None
    tags: Annotated[tuple[Tag, ...], Field(max_length=MAX_TAGS, description="Converted to lower case; duplicates are removed.")] = ()
    metadata: Annotated[
        dict[str, object],
        Field(
            description="A JSON object of your own, stored and returned unchanged. At most "
            f"{MAX_BYTES // 1024} KiB and {MAX_KEYS} keys. Recall and search do not read it, but can filter by it.",
            examples=[{"user_id": "u_17", "ticket": 4211}],
        ),
        AfterValidator(validate_metadata),
    ] = field(default_factory=dict[str, object])
    confidence: Annotated[float, Field(ge=0, le=1, description="The author's certainty, 0 to 1.")] = 0.8
    source: Source = "manual"
    expires_in: Annotated[float, Field(gt=0, le=_MAX_EXPIRY_H, description="Hours until the memory expires and is deleted.")] | None = None


MemoryChange: TypeAlias = Patch[MemorySettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(MemorySettings):
    """A memory to store. Without `expires_in` it never expires, unless its scope is `session`."""

    type: Annotated[Type, Field(description=f"{DEFAULT_TYPE} by default.")] = DEFAULT_TYPE
    agent_id: Annotated[AgentId, AfterValidator(_validate_single_agent)] | None = None
    session_id: SessionId | None = None
    memory_scope: Scope = MemoryScope.PROJECT
    supersedes_id: Annotated[MemoryId, Field(description="The id of a memory to replace; that memory is deleted.")] | None = None
    dedupe: Annotated[bool, Field(description="Return an identical memory of the same space instead of storing another.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberResult:
    """
    The result of storing a draft.

    Attributes:
        duplicates: Ids of other memories with the same content in the same space, oldest first, at most ten.
        is_duplicate: True if nothing was stored and *memory* is the existing one.
    """

    memory: Memory
    duplicates: tuple[str, ...] = ()
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """
    The remains of a deleted memory: its position in the lineage, without its content.

    Attributes:
        superseded_by: The memory that replaced it; None if it was deleted.
    """

    id: str
    workspace_id: int
    supersedes_id: str | None
    superseded_by: str | None
    created_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A memory found by words; *highlight* is HTML."""

    memory: Memory
    score: float
    highlight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """
    One page of a search; *total* counts all matches.

    Attributes:
        positions: The positions of the hits, for cursors.
        has_next: There are hits after the last one.
        cursors: The cursors after each of the hits, in the form of the request.
        notice: What the result lacks, and why.
    """

    hits: tuple[SearchHit, ...]
    total: int
    took_ms: float
    positions: Sequence[Position] = ()
    has_next: bool = False
    cursors: Sequence[str] = ()
    notice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCount:
    """A name and the number of memories that have it."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgCount:
    """An org, its number of memories, and its projects, largest first. The org None counts memories without an org."""

    org: str | None
    count: int
    projects: tuple[NameCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceRow:
    """The fields of a memory that its effective confidence depends on."""

    memory_id: str
    type: str
    confidence: float
    content_at: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BootMemories:
    """The memories that an agent loads at its start, by scope, each list in its order."""

    agent: tuple[Memory, ...]
    shared: tuple[Memory, ...]
    project: tuple[Memory, ...]
    session: tuple[Memory, ...]


def read_fields(item: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(item, name) for name in names}


def get_state(memory: Memory, *, model: str) -> MemoryState:
    """Return the state of *memory*. *model* is the current embedder's model."""
    if memory.archived_at is not None:
        return MemoryState.ARCHIVED
    if memory.index_failed_at is not None:
        return MemoryState.FAILED
    if memory.indexed_at is None:
        return MemoryState.PENDING_EMBED
    if memory.indexed_at < memory.updated_at or memory.indexed_model not in (None, model):
        return MemoryState.STALE
    return MemoryState.INDEXED
