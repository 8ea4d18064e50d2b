"""Response models of a session start (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from rookery.access.models import Caller
from rookery.agents.schemas.handoffs import OfferedResponse, to_offered_handoff_response
from rookery.agents.schemas.plan_responses import (
    PhaseResponse,
    PlanResponse,
    TaskResponse,
    to_phase_response,
    to_plan_response,
    to_task_response,
)
from rookery.agents.schemas.session_events import LastCheckpointResponse, to_session_checkpoint_response
from rookery.agents.schemas.sessions import SessionResponse
from rookery.agents.sessions.boot import SessionBoot
from rookery.kernel.schema import ResponseModel


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
