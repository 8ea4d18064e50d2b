"""Request and response models of sessions and their start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasGenerator, AliasPath, ConfigDict, Field

from rookery.access.models import Caller
from rookery.agents.models.plans import Org, Project
from rookery.agents.models.sessions import (
    HandoffOutcome,
    NewSession,
    SessionChange,
    SessionEndRequest,
    SessionFilter,
    SessionResumeRequest,
    SessionStatus,
    SessionView,
)
from rookery.agents.schemas.plan_responses import (
    PhaseResponse,
    PlanResponse,
    TaskResponse,
    to_phase_response,
    to_plan_response,
    to_task_response,
)
from rookery.agents.schemas.session_events import (
    HandoffNotesInput,
    HandoffResponse,
    LastCheckpointResponse,
    Object,
    OfferedResponse,
    read_fields,
    to_offered_handoff_response,
    to_session_checkpoint_response,
)
from rookery.agents.sessions.boot import SessionBoot
from rookery.kernel.schema import PageQuery, PatchModel, RequestModel, ResponseModel, Timestamp
from rookery.kernel.unset import UNSET

SessionStatusName = Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"]


def require_printable(text: str) -> str:
    """Return *text*. Raise ValueError if it is blank, or has a line break or another character that cannot be printed."""
    if not text.isprintable() or not text.strip():
        msg = "must be printable and not blank"
        raise ValueError(msg)
    return text


PrintableName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(require_printable)]
AgentType = Annotated[PrintableName, Field(description="The kind of agent, such as claude-code or reviewer.", examples=["claude-code"])]
AgentId = Annotated[PrintableName, Field(description="The agent. Default: the agent of the key, else the agent_type.")]
PlanReference = Annotated[str, Field(min_length=1, max_length=255, description="The id or slug of the plan.")]
Goal = Annotated[str, Field(max_length=10_000, description="The goal of the session.")]
Summary = Annotated[str, Field(max_length=50_000, description="The outcome of the session.")]


class StartBody(RequestModel):
    """A session to start."""

    agent_type: Annotated[AgentType, Field(description="The kind of agent, such as claude-code. Default: its agent_id.")] | None = None
    agent_id: AgentId | None = None
    plan: PlanReference | None = None
    org: Annotated[Org, Field(description="Only for a session without a plan, which has its own.")] | None = None
    project: Annotated[Project, Field(description="Only for a session without a plan, which has its own.")] | None = None
    goal: Goal | None = None
    context: Object | None = None
    takeover: Annotated[bool, Field(description="End the open session of the agent on the plan, and continue from it.")] = False

    def to_request(self) -> NewSession:
        return NewSession(**read_fields(self))


class ResumeBody(RequestModel):
    """The differences between a resumed session and its predecessor. Omitted fields are copied."""

    agent_type: AgentType | None = None
    agent_id: AgentId | None = None
    goal: Goal | None = None
    context: Object | None = None
    takeover: Annotated[bool, Field(description="Resume an active session. It ends.")] = False

    def to_request(self) -> SessionResumeRequest:
        return SessionResumeRequest(**read_fields(self))


class SessionPatch(PatchModel):
    """A change of an open session. Omitted fields stay unchanged; null clears a field."""

    action_fields = frozenset({"acknowledge_handoff"})

    status: Annotated[Literal["active", "paused"] | UNSET, Field(description="Pause the session, or continue it.")] = UNSET
    goal: Goal | UNSET | None = UNSET
    context: Object | UNSET | None = UNSET
    summary: Summary | UNSET | None = UNSET
    handoff: Annotated[
        HandoffNotesInput | UNSET, Field(description="The hand-off of this session, new or replaced. A string is its summary.")
    ] = UNSET
    acknowledge_handoff: Annotated[
        Literal["loaded", "ignored_stale"] | UNSET,
        Field(description="Take the hand-off that was offered at the start. It is then no longer offered."),
    ] = UNSET

    def to_change(self) -> SessionChange:
        return SessionChange(
            status=UNSET if self.status is UNSET else SessionStatus(self.status),
            goal=self.goal,
            context=UNSET if self.context is UNSET else self.context or {},
            summary=self.summary,
            handoff=UNSET if self.handoff is UNSET else self.handoff.to_notes(),
            acknowledge=UNSET if self.acknowledge_handoff is UNSET else HandoffOutcome(self.acknowledge_handoff),
        )


class EndBody(RequestModel):
    """The end of a session."""

    status: (
        Annotated[
            Literal["completed", "failed", "handed_off"],
            Field(description="Default: handed_off if there is a handoff, else completed."),
        ]
        | None
    ) = None
    summary: Summary | None = None
    handoff: Annotated[HandoffNotesInput, Field(description="The information for the next session. A string is its summary.")] | None = None
    promote: Annotated[
        bool | Annotated[list[str], Field(max_length=500)],
        Field(description="The session memories to move to the project: true for all, false for none, or their ids."),
    ] = False

    def to_request(self) -> SessionEndRequest:
        default = SessionStatus.COMPLETED if self.handoff is None else SessionStatus.HANDED_OFF
        return SessionEndRequest(
            status=default if self.status is None else SessionStatus(self.status),
            summary=self.summary,
            handoff=None if self.handoff is None else self.handoff.to_notes(),
            promote=self.promote if isinstance(self.promote, bool) else tuple(self.promote),
        )


class SessionsQuery(PageQuery):
    """Filters of the list of sessions."""

    status: Annotated[SessionStatusName | None, Field(description="Only sessions with this status.")] = None
    agent_id: Annotated[str | None, Field(min_length=1, max_length=100, description="Only sessions of this agent.")] = None
    plan: PlanReference | None = None
    org: Org | None = None
    project: Project | None = None

    def to_filter(self) -> SessionFilter:
        """Return the filter without the plan, which must be looked up."""
        return SessionFilter(
            status=None if self.status is None else SessionStatus(self.status),
            agent_id=self.agent_id,
            org=self.org,
            project=self.project,
        )


class StatsResponse(ResponseModel):
    """Statistics of a session."""

    events: int
    tool_calls: int
    tasks_completed: int
    tokens_in: int
    tokens_out: int


class SessionResponse(ResponseModel):
    """A session."""

    model_config = ConfigDict(alias_generator=AliasGenerator(validation_alias=lambda name: AliasPath("session", name)))

    id: str
    workspace_id: int
    agent_id: str
    agent_type: str
    plan: Annotated[str | None, Field(validation_alias="plan_slug", description="The slug of the plan. Its id is plan_id.")]
    plan_id: str | None
    org: str | None
    project: str | None
    status: SessionStatusName
    goal: str | None
    context: Mapping[str, object]
    started_at: Timestamp
    last_activity_at: Timestamp
    ended_at: Timestamp | None
    end_reason: Annotated[str | None, Field(description="superseded or resumed if another session ended this one, else null.")]
    summary: str | None
    handoff: Annotated[HandoffResponse | None, Field(validation_alias="handoff")]
    resumed_from: str | None
    resumed_by: str | None
    stats: Annotated[StatsResponse, Field(validation_alias="stats")]


class HeartbeatResponse(ResponseModel):
    """The status of an open session."""

    id: str
    status: SessionStatusName
    last_activity_at: Timestamp


def to_session_response(caller: Caller, view: SessionView) -> SessionResponse:
    response = SessionResponse.model_validate(view, from_attributes=True)
    return response.model_copy(update={"workspace_id": caller.public_workspace_id})


class AgentsBootResponse(ResponseModel):
    """The context that a new session starts with."""

    plan: Annotated[PlanResponse | None, Field(description="The plan without its phases, or null.")]
    phase: Annotated[PhaseResponse | None, Field(description="The current phase without its tasks, or null.")]
    tasks: Annotated[list[TaskResponse], Field(description="Tasks that can be claimed now, best first; at most ten.")]
    handoff: Annotated[
        OfferedResponse | None, Field(description="The hand-off of the previous session. It is offered again until a session takes it.")
    ]
    checkpoint: LastCheckpointResponse | None
    memories: Annotated[Mapping[str, object] | None, Field(description="As in GET /v1/brain/agent/{id}/boot; null without brain:read.")]


class StartedResponse(ResponseModel):
    """A started session and its context."""

    session: SessionResponse
    boot: AgentsBootResponse


def to_boot_response(caller: Caller, boot: SessionBoot) -> AgentsBootResponse:
    """Return the context of a new session."""
    return AgentsBootResponse.model_construct(
        plan=None if boot.plan is None else to_plan_response(caller, boot.plan),
        phase=None if boot.phase is None else to_phase_response(boot.phase),
        tasks=[to_task_response(view) for view in boot.tasks],
        handoff=to_offered_handoff_response(boot.previous),
        checkpoint=to_session_checkpoint_response(boot.previous),
        memories=boot.memories,
    )
