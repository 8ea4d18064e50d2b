"""The nouns of agent sessions: who works on what, what happened, what is handed on (D-62). No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class SessionStatus(StrEnum):
    """Where a session stands; the first two are open, the others final."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    HANDED_OFF = "handed_off"
    ABANDONED = "abandoned"


OPEN_SESSION_STATUSES = frozenset({SessionStatus.ACTIVE, SessionStatus.PAUSED})

END_REASON_SUPERSEDED = "superseded"
"""Why a session ended that another one took over from."""

END_REASON_RESUMED = "resumed"
"""Why a session ended that was paused and got a successor."""


class SessionEventType(StrEnum):
    """What kind of thing happened."""

    NOTE = "note"
    ACTION = "action"
    DECISION = "decision"
    CHECKPOINT = "checkpoint"
    QUESTION = "question"
    ANSWER = "answer"
    ARTIFACT = "artifact"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNotes:
    """What one session tells the next: plain sentences, and *refs* to what they speak of (branch, commit, files…)."""

    summary: str | None = None
    completed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    refs: Mapping[str, object] = field(default_factory=dict[str, object])


class HandoffOutcome(StrEnum):
    """How a hand-off ceased to be offered."""

    LOADED = "loaded"
    IGNORED_STALE = "ignored_stale"
    TASK_COMPLETED = "task_completed"
    OWN_HANDOFF = "own_handoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """
    The notes of one session, offered to others until one of them takes them.

    Attributes:
        session_id: Who wrote it; a session has one, which it may write again while it is open.
        plan_id: To whose sessions it is offered; None: only to the one that resumes the writer.
        taken_by: The session that took it; None: it is still offered.
    """

    session_id: str
    workspace_id: int
    plan_id: str | None
    agent_id: str
    notes: SessionNotes
    written_at: datetime
    taken_by: str | None = None
    taken_at: datetime | None = None
    taken_how: HandoffOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """
    One stretch of one agent's work; times are UTC.

    Attributes:
        agent_id: Never empty: who names none, and whose key names none, goes by the type.
        key_id: The key that started it.
        resumed_from: The session whose work it goes on with; *resumed_by*: the one that goes on with its own.
        offered_id: The session whose hand-off it was offered at its start.
        end_reason: Beside the status, where somebody else ended it.
        last_seq: The number of its last event, which is how many it has.
        size: Bytes that its events take.
        memories_due: When its session memories are put away (D-53); None: they are, or it is open.
        version: Grows with each change of what PATCH and end change; events and heartbeats leave it.
    """

    id: str
    workspace_id: int
    agent_id: str
    agent_type: str
    key_id: str
    plan_id: str | None
    org: str | None
    project: str | None
    status: SessionStatus
    goal: str | None
    context: Mapping[str, object]
    summary: str | None = None
    resumed_from: str | None = None
    resumed_by: str | None = None
    offered_id: str | None = None
    end_reason: str | None = None
    started_at: datetime
    last_activity_at: datetime
    ended_at: datetime | None = None
    memories_due: datetime | None = None
    last_seq: int = 0
    size: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    version: int = 1

    @property
    def is_open(self) -> bool:
        """Whether it may still be worked in."""
        return self.status in OPEN_SESSION_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """
    One thing that happened in a session; never changed.

    Attributes:
        seq: From 1, without gaps.
        state: Of a checkpoint: whatever lets the work go on from there.
    """

    session_id: str
    workspace_id: int
    seq: int
    type: SessionEventType
    message: str
    data: Mapping[str, object]
    state: Mapping[str, object] | None
    task_id: str | None
    tokens_in: int
    tokens_out: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSessionEvent:
    """An event to be, as its author gave it."""

    type: SessionEventType = SessionEventType.NOTE
    message: str = ""
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    state: Mapping[str, object] | None = None
    task_id: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """
    What starting a session asks for.

    Attributes:
        agent_type: None: the agent's id.
        plan: By id or slug.
        takeover: End the agent's open session on the same plan, if there is one, and go on from it.
    """

    agent_type: str | None = None
    agent_id: str | None = None
    plan: str | None = None
    org: str | None = None
    project: str | None = None
    goal: str | None = None
    context: Mapping[str, object] = field(default_factory=dict[str, object])
    takeover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResumeRequest:
    """What resuming a session asks for; None: as the session before had it, and for agent_id the caller's own."""

    agent_type: str | None = None
    agent_id: str | None = None
    goal: str | None = None
    context: Mapping[str, object] | None = None
    takeover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """What PATCH changes: the fields that *fields_set* names, the others stay."""

    fields_set: frozenset[str]
    status: SessionStatus = SessionStatus.ACTIVE
    goal: str | None = None
    context: Mapping[str, object] = field(default_factory=dict[str, object])
    summary: str | None = None
    handoff: SessionNotes | None = None
    acknowledge: HandoffOutcome = HandoffOutcome.LOADED


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEndRequest:
    """
    How a session ends.

    Attributes:
        promote: Which of its session memories become the project's: all, none, or these ids (D-53).
    """

    status: SessionStatus = SessionStatus.COMPLETED
    summary: str | None = None
    handoff: SessionNotes | None = None
    promote: bool | tuple[str, ...] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are asked for; None: all. *plan_id* is an id; *orgs* and *projects* are the key's allow-lists."""

    status: SessionStatus | None = None
    agent_id: str | None = None
    plan_id: str | None = None
    org: str | None = None
    project: str | None = None
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session with what is shown beside it: its own hand-off, and what it did, as far as other rows tell."""

    session: AgentSession
    plan_slug: str | None
    handoff: Handoff | None
    tool_calls: int
    tasks_completed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousSessionState:
    """What a session that starts is told beside its plan: the hand-off and the last checkpoint, each with its age in seconds."""

    handoff: Handoff | None
    handoff_age_s: float
    checkpoint: SessionEvent | None
    checkpoint_agent_id: str | None
    checkpoint_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdate:
    """What a stream tells next: events, in order, and how the session stands if that changed."""

    events: Sequence[SessionEvent]
    status: SessionStatus | None = None
    is_ended: bool = False
