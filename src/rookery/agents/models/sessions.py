"""Agent sessions, their events and their hand-offs. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field

from rookery.agents.models.plans import Org, Project, require_size
from rookery.kernel.unset import UNSET


class SessionStatus(StrEnum):
    """The status of a session. ACTIVE and PAUSED are open, the others final."""

    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    HANDED_OFF = "handed_off"
    ABANDONED = "abandoned"


OPEN_SESSION_STATUSES = frozenset({SessionStatus.ACTIVE, SessionStatus.PAUSED})

END_REASON_SUPERSEDED = "superseded"
"""The end reason of a session that another one took over."""

END_REASON_RESUMED = "resumed"
"""The end reason of a paused session that was resumed in a new one."""


class SessionEventType(StrEnum):
    NOTE = "note"
    ACTION = "action"
    DECISION = "decision"
    CHECKPOINT = "checkpoint"
    QUESTION = "question"
    ANSWER = "answer"
    ARTIFACT = "artifact"
    ERROR = "error"


MAX_OBJECT_BYTES = 64 * 1024
"""Maximum size of a session context, the data of an event and the refs of a hand-off as JSON, in bytes."""

MAX_SUMMARY_LENGTH = 50_000


def _limit_object(value: dict[str, object]) -> dict[str, object]:
    require_size(MAX_OBJECT_BYTES, value)
    return value


def _to_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _to_refs(value: object) -> object:
    """Convert a list of names to `{"files": […]}`, and an empty list to no refs."""
    if isinstance(value, list):
        return {"files": cast("list[object]", value)} if value else {}
    return value


def require_printable(text: str) -> str:
    """Return *text*. Raise ValueError if it is blank, or has a line break or another character that cannot be printed."""
    if not text.isprintable() or not text.strip():
        msg = "must be printable and not blank"
        raise ValueError(msg)
    return text


Object = Annotated[dict[str, object], AfterValidator(_limit_object), Field(description="Any JSON object, at most 64 KiB.")]
Line = Annotated[str, Field(min_length=1, max_length=10_000)]
Lines = Annotated[
    tuple[Line, ...],
    Field(strict=False, max_length=200),
    BeforeValidator(_to_list, json_schema_input_type=Line | Annotated[list[Line], Field(max_length=200)]),
]
PrintableName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(require_printable)]
AgentType = Annotated[PrintableName, Field(description="The kind of agent, such as claude-code or reviewer.", examples=["claude-code"])]
AgentId = Annotated[PrintableName, Field(description="The agent. Default: the agent of the key, else the agent_type.")]
PlanReference = Annotated[str, Field(min_length=1, max_length=255, description="The id or slug of the plan.")]
Goal = Annotated[str, Field(max_length=10_000, description="The goal of the session.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNotes:
    """The content of a hand-off, in plain sentences."""

    summary: Annotated[str, Field(max_length=MAX_SUMMARY_LENGTH, description="The current state of the work.")] | None = None
    completed: Annotated[Lines, Field(description="Finished work.")] = ()
    remaining: Annotated[Lines, Field(description="Unfinished work.")] = ()
    blockers: Annotated[Lines, Field(description="Obstacles.")] = ()
    decisions: Annotated[Lines, Field(description="Decisions and their reasons.")] = ()
    next_steps: Annotated[Lines, Field(description="The next steps, most important first.")] = ()
    refs: Annotated[Object, BeforeValidator(_to_refs), Field(description="References such as branch, commit and files.")] = field(
        default_factory=dict[str, object]
    )


class HandoffOutcome(StrEnum):
    """The reason why a hand-off is no longer offered."""

    LOADED = "loaded"
    IGNORED_STALE = "ignored_stale"
    TASK_COMPLETED = "task_completed"
    OWN_HANDOFF = "own_handoff"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """
    The notes of one session, offered to later sessions until one of them takes them.

    Attributes:
        session_id: The session that wrote it. A session has one hand-off, and can replace it while it is open.
        plan_id: The plan whose sessions it is offered to. None offers it only to the session that resumes the writer.
        taken_by: The session that took it. None while it is offered.
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

    @property
    def delivery(self) -> str:
        """The reason why the hand-off is no longer offered, or `pending`."""
        return "pending" if self.taken_how is None else self.taken_how.value


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSession:
    """
    A period of work by one agent. Times are UTC.

    Attributes:
        agent_id: The agent; never empty. It defaults to the agent of the key, then to the type.
        key_id: The key that started the session.
        resumed_from: The session that this one continues.
        resumed_by: The session that continues this one.
        offered_id: The session whose hand-off was offered to this one at its start.
        last_seq: The seq of the last event, and so the number of events.
        size: The size of the events in bytes.
        memories_due: The time to archive the session memories. None if the session is open or they are archived.
        version: The ETag of the session. PATCH and end increase it; events and heartbeats do not.
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
    end_reason: Annotated[str | None, Field(description="superseded or resumed if another session ended this one, else null.")] = None
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
        """True while the session is open for work."""
        return self.status in OPEN_SESSION_STATUSES


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenReport:
    """
    The model tokens that an agent reports to have used.

    Attributes:
        cached_input: The part of *input* that the provider took from its cache.
        model: The model; None: the agent did not name it.
        cost_nanos: The cost in billionths of *currency*, as the agent reports it; None: it reports none.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    model: str | None = None
    cost_nanos: int | None = None
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """
    An event of a session. It is never changed.

    Attributes:
        seq: The number of the event in the session, from 1, without gaps.
        state: The state saved by a checkpoint, from which the work can continue. None for other types.
    """

    session_id: str
    workspace_id: int
    seq: int
    type: SessionEventType
    message: str
    data: Mapping[str, object]
    state: Mapping[str, object] | None
    task_id: str | None
    tokens: TokenReport
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSessionEvent:
    """An event to append."""

    type: SessionEventType = SessionEventType.NOTE
    message: str = ""
    data: Mapping[str, object] = field(default_factory=dict[str, object])
    state: Mapping[str, object] | None = None
    task_id: str | None = None
    tokens: TokenReport = field(default_factory=TokenReport)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSession:
    """A request to start a session."""

    agent_type: Annotated[AgentType, Field(description="The kind of agent, such as claude-code. Default: its agent_id.")] | None = None
    agent_id: AgentId | None = None
    plan: PlanReference | None = None
    org: Annotated[Org, Field(description="Only for a session without a plan, which has its own.")] | None = None
    project: Annotated[Project, Field(description="Only for a session without a plan, which has its own.")] | None = None
    goal: Goal | None = None
    context: Object = field(default_factory=dict[str, object])
    takeover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResumeRequest:
    """A request to resume a session. None keeps the value of that session; an agent_id of None prefers the agent of the key."""

    agent_type: AgentType | None = None
    agent_id: AgentId | None = None
    goal: Goal | None = None
    context: Object | None = None
    takeover: Annotated[bool, Field(description="Resume an active session. It ends.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """
    A change of a session. Fields that are not set keep their value.

    Attributes:
        handoff: The hand-off of the session, new or replaced.
        acknowledge: Take the hand-off that was offered at the start.
    """

    status: SessionStatus | UNSET = UNSET
    goal: str | UNSET | None = UNSET
    context: Mapping[str, object] | UNSET = UNSET
    summary: str | UNSET | None = UNSET
    handoff: SessionNotes | UNSET = UNSET
    acknowledge: HandoffOutcome | UNSET = UNSET


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEndRequest:
    """
    A request to end a session.

    Attributes:
        promote: The session memories to move to the project: True for all, False for none, or their ids.
        keeps_memories: Keep the memories for a successor, whatever the status.
    """

    status: SessionStatus = SessionStatus.COMPLETED
    summary: str | None = None
    handoff: SessionNotes | None = None
    promote: bool | tuple[str, ...] = False
    keeps_memories: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """A filter of sessions; None matches all. *orgs* and *projects* are the allow-lists of the key."""

    status: SessionStatus | None = None
    agent_id: str | None = None
    plan_id: str | None = None
    org: str | None = None
    project: str | None = None
    orgs: frozenset[str] | None = None
    projects: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session with its plan's slug, its hand-off, and its counts of tool calls and completed tasks."""

    session: AgentSession
    plan_slug: str | None
    handoff: Handoff | None
    tool_calls: int
    tasks_completed: int

    @property
    def stats(self) -> dict[str, int]:
        """The statistics of the session."""
        return {
            "events": self.session.last_seq,
            "tool_calls": self.tool_calls,
            "tasks_completed": self.tasks_completed,
            "tokens_in": self.session.tokens_in,
            "tokens_out": self.session.tokens_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousSessionState:
    """The hand-off and the last checkpoint that a new session starts from, each with its age in seconds."""

    handoff: Handoff | None
    handoff_age_s: float
    checkpoint: SessionEvent | None
    checkpoint_agent_id: str | None
    checkpoint_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionUpdate:
    """The next part of a session stream: events in order, and the status if it changed."""

    events: Sequence[SessionEvent]
    status: SessionStatus | None = None
    is_ended: bool = False
