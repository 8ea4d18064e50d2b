"""What a session that starts is answered (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from rookery.access.models import Caller
from rookery.agents.schemas.handoffs import OfferedAnswer, offered_answer
from rookery.agents.schemas.plan_answers import PhaseAnswer, PlanAnswer, TaskAnswer, phase_answer, plan_answer, task_answer
from rookery.agents.schemas.session_events import LastCheckpointAnswer, checkpoint_answer
from rookery.agents.schemas.sessions import SessionAnswer
from rookery.agents.sessions.booting import Boot
from rookery.kernel.wire import Answer


class BootAnswer(Answer):
    """What to begin with."""

    plan: Annotated[PlanAnswer | None, Field(description="Without its phases.")]
    phase: Annotated[PhaseAnswer | None, Field(description="The one that work is in, without its tasks.")]
    tasks: Annotated[list[TaskAnswer], Field(description="Those that may be claimed now, the next one first; at most ten.")]
    handoff: Annotated[OfferedAnswer | None, Field(description="What the session before left; acknowledge it, or it is offered again.")]
    checkpoint: LastCheckpointAnswer | None
    memories: Annotated[Mapping[str, object] | None, Field(description="As GET /v1/brain/agent/{id}/boot; null without brain:read.")]


class StartedAnswer(Answer):
    """A session that has started."""

    session: SessionAnswer
    boot: BootAnswer


def boot_answer(caller: Caller, boot: Boot) -> BootAnswer:
    """Return what to begin with."""
    return BootAnswer.model_construct(
        plan=None if boot.plan is None else plan_answer(caller, boot.plan),
        phase=None if boot.phase is None else phase_answer(boot.phase),
        tasks=[task_answer(each) for each in boot.tasks],
        handoff=offered_answer(boot.offered),
        checkpoint=checkpoint_answer(boot.offered),
        memories=boot.memories,
    )
