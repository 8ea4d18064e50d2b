"""Request and response models of sessions and their start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from rookery.access.models import Caller
from rookery.agents.models.plans import Org, Project
from rookery.agents.models.sessions import (
    MAX_SUMMARY_LENGTH,
    AgentSession,
    Goal,
    HandoffOutcome,
    NewSession,
    Object,
    PlanReference,
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
    OfferedResponse,
    to_offered_handoff_response,
    to_session_checkpoint_response,
)
from rookery.agents.sessions.boot import SessionBoot
from rookery.kernel.projections import Body, Projection
from rookery.kernel.schema import PageQuery, PatchModel, RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.kernel.unset import UNSET

SessionStatusName = Annotated[SessionStatus, enum_schema(SessionStatus)]
Summary = Annotated[str, Field(max_length=MAX_SUMMARY_LENGTH, description="The outcome of the session.")]


class StartBody(Body[NewSession]):
    """A session to start."""

    resets_by_null = True

    takeover: Annotated[bool, Field(description="End the open session of the agent on the plan, and continue from it.")] = False


class ResumeBody(Body[SessionResumeRequest]):
    """The differences between a resumed session and its predecessor. Omitted fields are copied."""


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
            handoff=UNSET if self.handoff is UNSET else self.handoff.to_model(),
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
            handoff=None if self.handoff is None else self.handoff.to_model(),
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
            status=self.status,
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


class SessionResponse(Projection[AgentSession]):
    """A session."""

    part = "session"
    hidden = frozenset({"key_id", "offered_id", "memories_due", "last_seq", "size", "tokens_in", "tokens_out", "version"})

    plan: Annotated[str | None, Field(validation_alias="plan_slug", description="The slug of the plan. Its id is plan_id.")]
    status: SessionStatusName
    handoff: HandoffResponse | None
    stats: StatsResponse


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
