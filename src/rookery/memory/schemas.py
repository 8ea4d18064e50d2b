"""What callers send: the spec's field names with the bounds of D-10, D-40 and D-42. A number out of range is refused, not clamped."""

from __future__ import annotations

from typing import Annotated, Literal
from unicodedata import category

from pydantic import AfterValidator, Field

from rookery.kernel.http.pages import PageQuery
from rookery.kernel.ids import is_uuid
from rookery.kernel.wire import Body, Moment, Query
from rookery.memory.models import Change, Draft, Filters, MemoryScope, MemoryState, Mode, Question

MAX_CONTENT = 50_000
MAX_BATCH = 500
MAX_BODY_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 10 * 1024 * 1024

_TEN_YEARS_H = 87_600
_UNSEEN = frozenset({"Cc", "Cf", "Zl", "Zp", "Zs"})
"""Of which Unicode calls white space, controls, and what has no width: a text of nothing else is blank."""

ScopeName = Literal["project", "agent", "session", "shared"]
StateName = Literal["pending_embed", "indexed", "stale", "failed", "archived"]


def _not_blank(text: str) -> str:
    if all(category(char) in _UNSEEN for char in text):
        msg = "must not be blank"
        raise ValueError(msg)
    return text


def _uuid(text: str) -> str:
    folded = text.lower()
    if not is_uuid(folded):
        msg = "must be a UUID"
        raise ValueError(msg)
    return folded


def _sound(text: str) -> str:
    if "\0" in text or not text.isprintable():
        msg = "must be printable text"
        raise ValueError(msg)
    return text


Content = Annotated[str, Field(min_length=1, max_length=MAX_CONTENT, description="The text to remember."), AfterValidator(_not_blank)]
Type = Annotated[
    str,
    Field(
        pattern=r"^[a-z][a-z0-9_-]{0,63}$",
        description="observation, context, decision, convention, architecture, procedure, fact, research, plan, bug, documentation, "
        "service, pattern, or a word of your own. It decides how fast confidence decays.",
        examples=["decision"],
    ),
]
Org = Annotated[str, Field(min_length=1, max_length=100, description="The organisation namespace.", examples=["acme"])]
Project = Annotated[str, Field(min_length=1, max_length=255, description="The project within the org.", examples=["web"])]
AgentId = Annotated[str, Field(min_length=1, max_length=100, description="The agent it belongs to; by default the key's own.")]
SessionId = Annotated[str, Field(min_length=1, max_length=100, description="The session it belongs to.")]
Tag = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_not_blank)]
Tags = Annotated[list[Tag], Field(max_length=100, description="Lower-cased; repeats are dropped.")]
Confidence = Annotated[float, Field(ge=0, le=1, description="How sure the author is, 0 to 1.")]
Source = Annotated[str, Field(min_length=1, max_length=100, description="Where it comes from.")]
Scope = Annotated[ScopeName, Field(description="Who it is for: the project, the agent alone, the session, or the whole org.")]
Hours = Annotated[float, Field(gt=0, le=_TEN_YEARS_H, description="Hours until it expires and is deleted.")]
Text = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_not_blank)]
Keyword = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_not_blank)]
MemoryId = Annotated[str, AfterValidator(_uuid)]


class DraftBody(Body):
    """One memory to store, as part of a batch; null is as not given."""

    content: Content
    type: Type
    org: Org | None = None
    project: Project | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    memory_scope: Scope | None = None
    tags: Tags | None = None
    confidence: Confidence | None = None
    source: Source | None = None
    supersedes_id: Annotated[MemoryId, Field(description="The memory that this one replaces; it is deleted.")] | None = None
    expires_in: Hours | None = None
    dedupe: Annotated[bool, Field(description="Return an identical memory of the same space instead of storing another.")] | None = None

    def draft(self) -> Draft:
        """Return the draft, with D-40's defaults."""
        return Draft(
            content=self.content,
            type=self.type,
            org=self.org,
            project=self.project,
            agent_id=self.agent_id,
            session_id=self.session_id,
            memory_scope=MemoryScope.PROJECT if self.memory_scope is None else MemoryScope(self.memory_scope),
            tags=tuple(self.tags or ()),
            confidence=0.8 if self.confidence is None else self.confidence,
            source=self.source or "manual",
            supersedes_id=self.supersedes_id,
            expires_in_h=self.expires_in,
            dedupe=bool(self.dedupe),
        )


class RememberBody(DraftBody):
    """One memory to store; null is as not given."""

    wait_ms: Annotated[int, Field(ge=0, le=5000, description="Wait so long for it to be indexed before answering.")] | None = None

    @property
    def wait_s(self) -> float:
        """Seconds to wait."""
        return (self.wait_ms or 0) / 1000


class BatchBody(Body):
    """Many memories to store at once; each is judged by itself."""

    memories: Annotated[list[dict[str, object]], Field(min_length=1, max_length=MAX_BATCH, description="Each as the body of /remember.")]


class ChangeBody(Body):
    """What to change; a field that is left out stays. org, project and expires_in may be null: none."""

    content: Content | None = None
    type: Type | None = None
    org: Org | None = None
    project: Project | None = None
    tags: Tags | None = None
    confidence: Confidence | None = None
    source: Source | None = None
    expires_in: Hours | None = None

    def change(self) -> Change:
        """Return the change; null for a field that every memory has is as not given."""
        given = {name for name in self.model_fields_set if name in ("org", "project", "expires_in") or getattr(self, name) is not None}
        if "expires_in" in given:
            given = given - {"expires_in"} | {"expires_in_h"}
        return Change(
            given=frozenset(given),
            content=self.content or "",
            type=self.type or "",
            org=self.org,
            project=self.project,
            tags=tuple(self.tags or ()),
            confidence=0.8 if self.confidence is None else self.confidence,
            source=self.source or "manual",
            expires_in_h=self.expires_in,
        )


class RecallBody(Body):
    """A question to memory; null is as not given."""

    query: Annotated[Text, Field(description="What you want to know, in plain language.")]
    top_k: Annotated[int, Field(ge=1, le=100, description="How many memories at most.")] | None = None
    org: Org | None = None
    project: Project | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None
    include_scopes: Annotated[list[ScopeName], Field(max_length=4, description="Only memories of these scopes.")] | None = None
    type: Type | None = None
    tags: Annotated[list[Tag], Field(max_length=100, description="Only memories with all of these tags.")] | None = None
    source: Source | None = None
    since: Annotated[Moment, Field(description="Only memories created at or after this time.")] | None = None
    until: Annotated[Moment, Field(description="Only memories created before this time.")] | None = None
    min_confidence: Confidence | None = None
    keywords: Annotated[list[Keyword], Field(max_length=32, description="Words that raise a memory that has them.")] | None = None
    boost_keywords: Annotated[float, Field(ge=0, le=1, description="By how much, when it has all of them.")] | None = None
    mode: Annotated[Mode, Field(description="By meaning, by words, or by both; hybrid finds best.")] | None = None
    explain: Annotated[bool, Field(description="Say of each memory how it came to its place.")] | None = None
    max_tokens: (
        Annotated[int, Field(ge=1, le=1_000_000, description="Fill so many tokens in order, skipping what does not fit.")] | None
    ) = None

    def question(self, default_mode: Mode) -> Question:
        """Return the question, with D-42's and D-44's defaults."""
        scopes = frozenset(MemoryScope(name) for name in self.include_scopes or ())
        return Question(
            query=self.query,
            filters=_filters(self, scopes or None),
            top_k=5 if self.top_k is None else self.top_k,
            mode=self.mode or default_mode,
            keywords=tuple(dict.fromkeys(self.keywords or ())),
            boost=0.2 if self.boost_keywords is None else self.boost_keywords,
            max_tokens=self.max_tokens,
        )


class FeedbackBody(Body):
    """What became of the memories of a recall; null is as not given."""

    used: Annotated[list[MemoryId], Field(max_length=100, description="Memories that were of use; they gain confidence.")] | None = None
    ignored: Annotated[list[MemoryId], Field(max_length=100, description="Memories seen and not used; they lose some.")] | None = None


class SpaceQuery(Query):
    """Whose memories to look at."""

    org: Org | None = None
    project: Project | None = None
    agent_id: AgentId | None = None
    session_id: SessionId | None = None

    def filters(self) -> Filters:
        """Return the filters."""
        return Filters(org=self.org, project=self.project, agent_id=self.agent_id, session_id=self.session_id)


class NarrowQuery(SpaceQuery):
    """Which of them."""

    memory_scope: Scope | None = None
    type: Type | None = None
    tags: Annotated[list[Tag], Field(max_length=100, description="All of them; repeat the field for more than one.")] | None = None
    source: Source | None = None
    since: Moment | None = None
    until: Moment | None = None
    min_confidence: Confidence | None = None

    def filters(self) -> Filters:
        """Return the filters."""
        return _filters(self, None if self.memory_scope is None else frozenset({MemoryScope(self.memory_scope)}))


class SearchQuery(NarrowQuery):
    """A full-text search."""

    q: Annotated[Text, Field(description='Words, a "quoted phrase", -without this.')]
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    offset: Annotated[int, Field(ge=0, le=100_000)] = 0


class AgentPath(Query):
    """The agent that a path names."""

    agent_id: Annotated[AgentId, AfterValidator(_sound)]


class ContextQuery(PageQuery):
    """Which of an agent's own memories."""

    org: Org | None = None
    project: Project | None = None
    type: Type | None = None

    def filters(self, agent_id: str) -> Filters:
        """Return the filters."""
        return Filters(org=self.org, project=self.project, type=self.type, agent_id=agent_id)


class BootQuery(Query):
    """What an agent is about to work on."""

    org: Org | None = None
    project: Project | None = None
    session_id: SessionId | None = None
    max_memories: Annotated[int, Field(ge=1, le=500, description="How many memories at most, of all kinds together.")] = 50

    def filters(self, agent_id: str) -> Filters:
        """Return the filters."""
        return Filters(org=self.org, project=self.project, session_id=self.session_id, agent_id=agent_id)


class MemoriesQuery(NarrowQuery, PageQuery):
    """Which memories to list; without *state* all but archived ones."""

    state: StateName | None = None

    def memory_state(self) -> MemoryState | None:
        """Return the state asked for."""
        return None if self.state is None else MemoryState(self.state)


def _filters(asked: RecallBody | NarrowQuery, scopes: frozenset[MemoryScope] | None) -> Filters:
    """Return what *asked* narrows to; only scopes have two names, of one and of several."""
    return Filters(
        org=asked.org,
        project=asked.project,
        agent_id=asked.agent_id,
        session_id=asked.session_id,
        scopes=scopes,
        type=asked.type,
        tags=frozenset(tag.lower() for tag in asked.tags or ()),
        source=asked.source,
        since=asked.since,
        until=asked.until,
        min_confidence=asked.min_confidence,
    )
