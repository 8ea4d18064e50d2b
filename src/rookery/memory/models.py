"""The nouns of memory: the record, what it may be asked for, what comes back. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from rookery.kernel.clock import to_micros
from rookery.kernel.preconditions import version_of
from rookery.memory.metadata import Metadata

Vector = bytes
"""Little-endian float32, unit length, in the embedder's native width: engines pad or not as they like (D-54)."""


SCORE_DECIMALS = 4
"""Decimals of the scores and confidences that answers show; further ones say nothing."""

DEFAULT_TYPE = "observation"
"""The type of a memory whose author gives none."""


class MemoryScope(StrEnum):
    """Who a memory belongs to (spec 2.5); recall's priority is `ranking`'s business."""

    PROJECT = "project"
    AGENT = "agent"
    SESSION = "session"
    SHARED = "shared"


class MemoryState(StrEnum):
    """
    The state of a memory: spec 3.4's six, and `failed` (D-50).

    A memory and its indexing job are stored in one transaction, so `created` and `pending_embed` are one state, shown as the
    second. A `deleted` memory is in no store; its tombstone is shown in histories.
    """

    CREATED = "created"
    PENDING_EMBED = "pending_embed"
    INDEXED = "indexed"
    STALE = "stale"
    FAILED = "failed"
    ARCHIVED = "archived"
    DELETED = "deleted"


class ArchivedReason(StrEnum):
    """Why a memory is archived, where it was not archived by itself."""

    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """
    One memory as the record store has it; times are UTC.

    Attributes:
        superseded_by: The memory that it was merged into (D-52), which is why it is archived; None: it was not.
    """

    id: str
    workspace_id: int
    org: str | None
    project: str | None
    agent_id: str | None
    session_id: str | None
    memory_scope: MemoryScope
    type: str
    tags: tuple[str, ...]
    confidence: float
    base_confidence: float
    source: str
    content: str
    metadata: Metadata = field(default_factory=dict[str, object])
    supersedes_id: str | None = None
    expires_at: datetime | None = None
    archived_at: datetime | None = None
    index_failed_at: datetime | None = None
    indexed_at: datetime | None = None
    content_at: datetime
    created_at: datetime
    updated_at: datetime
    indexed_model: str | None = None
    superseded_by: str | None = None

    @property
    def version(self) -> str:
        """
        The version of what is stored of it. Recall, indexing and the passing of time are no part of it.

        `updated_at` stands for its text and labels. Archiving, feedback and links to other memories leave that as it is.
        """
        return version_of(
            self.id,
            to_micros(self.updated_at),
            self.confidence,
            self.supersedes_id,
            self.superseded_by,
            None if self.archived_at is None else to_micros(self.archived_at),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDocument:
    """What the derived indexes hold of a memory: spec 2.6 and D-46. Built from a Memory, never shown to a caller."""

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
    """Of its metadata, for `Within.labels`."""

    @property
    def facets(self) -> tuple[str, ...]:
        """Its tags and labels as one set of names, for an engine that filters by both alike; no tag begins with NUL."""
        return (*self.tags, *(f"\0{label}" for label in sorted(self.labels)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFilter:
    """
    Which memories a query may see: filters as data, so that every engine can translate them (D-43).

    `visibility.sees` is the one definition; engines must agree with it and are tested against it.

    Attributes:
        org: That org, or no org and scope agent or session.
        project: That project (in any org, when org is None), or no project and scope shared, agent or session.
        agent_id: Names the agent whose own (scope agent) memories count; None: no agent's.
        includes_all_agents: Every agent's own memories count; for the record store alone.
        session_id: Names the session whose (scope session) memories count; None: no session's.
        scopes: Only these scopes; None: all that the rule lets through.
        tags: All of them.
        labels: All of these pairs of metadata, as `metadata.label` writes each.
        since: Created at or after; *until*: created before.
        orgs: The key's allow-list (D-23): an org of it, or no org as for *org*; None: any.
        projects: The same for projects, as for *project*.
        at: Memories that expire at or before it do not count.
    """

    workspace_id: int
    at: datetime
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    includes_all_agents: bool = False
    session_id: str | None = None
    scopes: frozenset[MemoryScope] | None = None
    type: str | None = None
    tags: frozenset[str] = field(default_factory=frozenset[str])
    labels: frozenset[str] = field(default_factory=frozenset[str])
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_confidence: float | None = None
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None

    @property
    def facets(self) -> frozenset[str]:
        """The tags and labels asked for, as `Document.facets` names them."""
        return self.tags | {f"\0{label}" for label in self.labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text to embed: *context* (date, type, tags; may be empty) goes before every chunk of *content* (D-55)."""

    context: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedDocument:
    """A document with the vectors of its chunks, in order; at least one."""

    document: IndexDocument
    vectors: tuple[Vector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorHit:
    """A memory found by meaning: its best chunk's cosine similarity, in -1..1."""

    memory_id: str
    similarity: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHit:
    """A memory found by words; *score* is comparable within one answer only, higher is better, above 0."""

    memory_id: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextQuery:
    """
    A full-text query as data: nothing in it is syntax any more (D-49).

    Attributes:
        any_of: Words of which the more the better; at least one must be found unless *phrases* is given. One of several parts, with
            spaces between them, is found where they stand side by side.
        phrases: Each must be found, its words side by side.
        none_of: Words or phrases of which none may be found.
        is_question: Only the best are wanted, so an engine may pass over words that too many memories have.
    """

    any_of: tuple[str, ...] = ()
    phrases: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()
    is_question: bool = False


RecallMode = Literal["semantic", "keyword", "hybrid"]
"""How recall finds: by meaning, by words, or by both (D-44)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """
    A memory to be, as its author gave it; defaults are filled in when it is stored (D-40).

    Attributes:
        expires_in_h: Hours until it expires; None: never, but for session memories (D-53).
        dedupe: Return the oldest one with the same content in the same space instead of storing another.
    """

    content: str
    type: str = DEFAULT_TYPE
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    memory_scope: MemoryScope = MemoryScope.PROJECT
    tags: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=dict[str, object])
    confidence: float = 0.8
    source: str = "manual"
    supersedes_id: str | None = None
    expires_in_h: float | None = None
    dedupe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberResult:
    """
    What came of a draft.

    Attributes:
        duplicates: Others with the same content in the same space, oldest first, at most ten.
        is_duplicate: Nothing was stored: *memory* is the one that was there (D-40, dedupe).
    """

    memory: Memory
    duplicates: tuple[str, ...] = ()
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryChange:
    """
    What to change of a memory: only the fields *changed_fields* names count, None among them where it means something.

    Attributes:
        expires_in_h: Hours from now; None: it no longer expires.
    """

    changed_fields: frozenset[str]
    content: str = ""
    type: str = ""
    org: str | None = None
    project: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Metadata = field(default_factory=dict[str, object])
    confidence: float = 0.8
    source: str = "manual"
    expires_in_h: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """
    What stays of a memory that left every store: no content, only its place in the lineage (D-41).

    Attributes:
        superseded_by: The memory that replaced it; None: it was deleted.
    """

    id: str
    workspace_id: int
    supersedes_id: str | None
    superseded_by: str | None
    created_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """What a caller asks for; `reach.within` makes it what the caller may see (D-42, D-43)."""

    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    scopes: frozenset[MemoryScope] | None = None
    type: str | None = None
    tags: frozenset[str] = field(default_factory=frozenset[str])
    labels: frozenset[str] = field(default_factory=frozenset[str])
    source: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_confidence: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """
    What recall is asked (D-42).

    Attributes:
        boost: The weight of *keywords*, 0..1.
        min_relevance: Leave out memories whose score is below it.
        max_tokens: Fill so many tokens in order, skipping what does not fit; None: no budget.
    """

    query: str
    filters: MemoryFilter = field(default_factory=MemoryFilter)
    top_k: int = 5
    mode: RecallMode = "semantic"
    keywords: tuple[str, ...] = ()
    boost: float = 0.2
    min_relevance: float | None = None
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExplanation:
    """
    How a memory came to its place in a recall (D-42, explain).

    Attributes:
        semantic_rank: Its place among those found by meaning, from 1; None: not among them.
        keyword_rank: The same for those found by words.
        text_score: The share of the best word score, 0..1.
        matched_keywords: Those of the question's keywords that it has.
        keyword_share: Their share of all keywords.
        decay: What its age leaves of its confidence, 0..1.
        place: Its final place, from 1.
    """

    semantic_rank: int | None
    keyword_rank: int | None
    similarity: float | None
    text_score: float | None
    matched_keywords: tuple[str, ...]
    keyword_share: float
    relevance: float
    decay: float
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """A recalled memory; *score* is its relevance unrounded (D-44), *similarity* None when it was not compared by meaning."""

    memory: Memory
    score: float
    similarity: float | None
    effective_confidence: float
    explanation: RankExplanation


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallResult:
    """The answer to a question, best first; *notice*: why it is by words alone, though it was to be by meaning (D-54)."""

    recall_id: str
    hits: tuple[RecallHit, ...]
    took_ms: float
    notice: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """A memory found by words; *highlight* is HTML (D-49)."""

    memory: Memory
    score: float
    highlight: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """A stretch of what a search found; *total* counts all of it."""

    hits: tuple[SearchHit, ...]
    total: int
    took_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NameCount:
    """A name and how many memories have it."""

    name: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OrgCount:
    """An org (None: memories without one), how many memories it has, and its projects, most first."""

    org: str | None
    count: int
    projects: tuple[NameCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceRow:
    """As much of a memory as its effective confidence needs."""

    memory_id: str
    type: str
    confidence: float
    content_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BootMemories:
    """What an agent begins with, each kind in its order (D-48)."""

    agent: tuple[Memory, ...]
    shared: tuple[Memory, ...]
    project: tuple[Memory, ...]
    session: tuple[Memory, ...]


def get_state(memory: Memory, *, model: str) -> MemoryState:
    """Return where *memory* stands (spec 3.4, D-50, D-54), *model* being the embedder's of now."""
    if memory.archived_at is not None:
        return MemoryState.ARCHIVED
    if memory.index_failed_at is not None:
        return MemoryState.FAILED
    if memory.indexed_at is None:
        return MemoryState.PENDING_EMBED
    if memory.indexed_at < memory.updated_at or memory.indexed_model not in (None, model):
        return MemoryState.STALE
    return MemoryState.INDEXED
