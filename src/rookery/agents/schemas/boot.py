"""What a session that starts is answered (D-62)."""

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
    """What to begin with."""

    plan: Annotated[PlanResponse | None, Field(description="Without its phases.")]
    phase: Annotated[PhaseResponse | None, Field(description="The one that work is in, without its tasks.")]
    tasks: Annotated[list[TaskResponse], Field(description="Those that may be claimed now, the next one first; at most ten.")]
    handoff: Annotated[OfferedResponse | None, Field(description="What the session before left; acknowledge it, or it is offered again.")]
    checkpoint: LastCheckpointResponse | None
    memories: Annotated[Mapping[str, object] | None, Field(description="As GET /v1/brain/agent/{id}/boot; null without brain:read.")]


class StartedResponse(ResponseModel):
    """A session that has started."""

    session: SessionResponse
    boot: AgentsBootResponse


def to_boot_response(caller: Caller, boot: SessionBoot) -> AgentsBootResponse:
    """Return what to begin with."""
    return AgentsBootResponse.model_construct(
        plan=None if boot.plan is None else to_plan_response(caller, boot.plan),
        phase=None if boot.phase is None else to_phase_response(boot.phase),
        tasks=[to_task_response(each) for each in boot.tasks],
        handoff=to_offered_handoff_response(boot.previous),
        checkpoint=to_session_checkpoint_response(boot.previous),
        memories=boot.memories,
    )
