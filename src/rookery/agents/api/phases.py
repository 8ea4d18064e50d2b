"""Operations on phases, their checkpoints and their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.agents import tool_declarations as tools
from rookery.agents.api.plans import READ_SCOPE, WORK_SCOPE, present_phase, present_task
from rookery.agents.errors import (
    PhaseBlocked,
    PhaseClosed,
    PhaseHasOpenTasks,
    PlanArchived,
    PlanNotActive,
    TaskClaimed,
    TooManyItems,
    WrongTransition,
)
from rookery.agents.models.drafts import PhasePatch
from rookery.agents.models.plans import Checkpoint
from rookery.agents.models.views import PhaseView, TaskView
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.plan_responses import (
    CheckpointResponse,
    PhaseResponse,
    PhasesResponse,
    TaskResponse,
    TasksResponse,
)
from rookery.agents.schemas.plans import CheckpointBody, NewPhaseBody, NewTaskBody, PhaseStatusBody
from rookery.agents.schemas.queries import ForceQuery, PhaseTasksQuery
from rookery.kernel.http import ItemPage, Operation
from rookery.kernel.pages import slice_anchored
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import PageQuery
from rookery.kernel.unset import value_or

_operation = partial(Operation, tags=("Plans",))
_phase = partial(_operation, present=present_phase, response_model=PhaseResponse, etag=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseApi:
    """The operations on phases. Each handler calls one service method."""

    phases: Phases
    tasks: Tasks

    def operations(self) -> list[Operation]:
        """Return the operations."""
        all_, one = "/plans/{plan}/phases", "/plans/{plan}/phases/{phase}"
        return [
            _operation(method="GET", path=all_, handler=self.get_phases, present=present_phase, required_scope=READ_SCOPE,
                       response_model=PhasesResponse, operation_id="list_phases", summary="List the phases of a plan, in their order"),
            _phase(method="POST", path=all_, handler=self.post_phase, committed=PhaseView, required_scope=WORK_SCOPE, status=201,
                   idempotent=True, operation_id="create_phase", summary="Add a phase with its tasks",
                   errors=(PlanArchived, PlanNotActive, TooManyItems)),
            _phase(method="GET", path=one, handler=self.get_phase, required_scope=READ_SCOPE, operation_id="get_phase",
                   summary="Show a phase with its tasks"),
            _phase(method="PATCH", path=one, handler=self.patch_phase, required_scope=WORK_SCOPE, operation_id="update_phase",
                   summary="Change or move a phase", errors=(PlanArchived,)),
            _operation(method="DELETE", path=one, handler=self.delete_phase, required_scope=WORK_SCOPE, status=204,
                       operation_id="delete_phase", summary="Delete a phase with its tasks", errors=(PlanArchived, TaskClaimed)),
            _phase(method="PATCH", path=f"{one}/status", handler=self.patch_status, required_scope=WORK_SCOPE,
                   operation_id="set_phase_status", summary="Start, complete, skip, hold or reopen a phase",
                   errors=(PlanArchived, PlanNotActive, PhaseBlocked, PhaseHasOpenTasks, TaskClaimed, WrongTransition),
                   tools=(tools.PHASE_STATUS,)),
            _operation(method="POST", path=f"{one}/checkpoints", handler=self.post_checkpoint, committed=Checkpoint,
                       required_scope=WORK_SCOPE, status=201, idempotent=True, response_model=CheckpointResponse,
                       operation_id="create_checkpoint", summary="Add a checkpoint to a phase", errors=(PlanArchived, TooManyItems),
                       tools=(tools.PHASE_CHECKPOINT,)),
            _operation(method="GET", path=f"{one}/tasks", handler=self.get_tasks, present=present_task, required_scope=READ_SCOPE,
                       response_model=TasksResponse, operation_id="list_phase_tasks", summary="List the tasks of a phase"),
            _operation(method="POST", path=f"{one}/tasks", handler=self.post_task, present=present_task, committed=TaskView,
                       required_scope=WORK_SCOPE, status=201, idempotent=True, etag=True, response_model=TaskResponse,
                       operation_id="create_task", summary="Add a task to a phase",
                       errors=(PlanArchived, PlanNotActive, PhaseClosed, TooManyItems), tools=(tools.TASK_ADD,)),
        ]  # fmt: skip

    async def get_phases(self, caller: Caller, plan: str, query: PageQuery) -> ItemPage[PhaseView]:
        """List the phases of a plan without their tasks, in their order."""
        views = await self.phases.list_phases(caller, plan, with_tasks=False)
        return ItemPage(*slice_anchored(views, query.slice, lambda view: view.phase.id))

    async def post_phase(self, caller: Caller, plan: str, body: NewPhaseBody, expected: ExpectedETags) -> PhaseView:
        """Add a phase to a plan, with its tasks."""
        return await self.phases.add(caller, plan, body.to_model(), expected=expected)

    async def get_phase(self, caller: Caller, plan: str, phase: str) -> PhaseView:
        """Return a phase with its tasks. The path contains its id or its position."""
        return await self.phases.get(caller, plan, phase)

    async def patch_phase(self, caller: Caller, plan: str, phase: str, body: PhasePatch, expected: ExpectedETags) -> PhaseView:
        """Change the name, description, position or dependencies of a phase. Fields that are left out keep their value."""
        return await self.phases.change(caller, plan, phase, body, expected=expected)

    async def delete_phase(self, caller: Caller, plan: str, phase: str, query: ForceQuery, expected: ExpectedETags) -> None:
        """Delete a phase with its tasks. If one of its tasks is claimed, `force` is needed."""
        await self.phases.remove(caller, plan, phase, force=query.force, expected=expected)

    async def patch_status(self, caller: Caller, plan: str, phase: str, body: PhaseStatusBody, expected: ExpectedETags) -> PhaseView:
        """Change the status of a phase. If the current status does not allow the change, the response is 409 with the allowed values."""
        force, reason = value_or(body.force, False), value_or(body.reason, None)
        return await self.phases.set_status(caller, plan, phase, body.status, force=force, reason=reason, expected=expected)

    async def post_checkpoint(self, caller: Caller, plan: str, phase: str, body: CheckpointBody, expected: ExpectedETags) -> Checkpoint:
        """Add a note to a phase. It is shown with the phase."""
        return await self.phases.add_checkpoint(caller, plan, phase, note=body.note, context=body.context or {}, expected=expected)

    async def get_tasks(self, caller: Caller, plan: str, phase: str, query: PhaseTasksQuery) -> ItemPage[TaskView]:
        """List the tasks of a phase, in their order."""
        return ItemPage(*await self.tasks.list_page(caller, query.to_filter(plan, phase), page=query.slice))

    async def post_task(self, caller: Caller, plan: str, phase: str, body: NewTaskBody, expected: ExpectedETags) -> TaskView:
        """Add a task to a phase."""
        return await self.tasks.add(caller, plan, phase, body.to_model(), expected=expected)
