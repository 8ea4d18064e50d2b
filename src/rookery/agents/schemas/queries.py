"""Query parameters of plans, phases and tasks: filters of lists and the parts to include."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rookery.agents.models.drafts import Force, PlanFilter, TaskFilter, TaskState
from rookery.agents.models.plans import Org, PlanStatus, Project
from rookery.agents.schemas.plans import PlanRef, SessionId
from rookery.kernel.schema import PageQuery, QueryModel, enum_schema

_Status = Annotated[PlanStatus, enum_schema(PlanStatus)]
_State = Annotated[TaskState, enum_schema(TaskState)]


def _default_include() -> list[Literal["phases", "tasks", "none"]]:
    return ["tasks"]


class PlansQuery(PageQuery):
    """Filters of the list of plans. Without `status`, archived plans are left out."""

    status: Annotated[_Status | None, Field(description="Only plans with this status.")] = None
    org: Org | None = None
    project: Project | None = None
    q: Annotated[str, Field(min_length=1, max_length=200, description="Text to find in the title, slug or description.")] | None = None

    def to_filter(self) -> PlanFilter:
        return PlanFilter(status=self.status, org=self.org, project=self.project, q=self.q)


class IncludeQuery(QueryModel):
    """The parts of a plan to include."""

    include: Annotated[
        list[Literal["phases", "tasks", "none"]],
        Field(max_length=3, description="tasks: phases with their tasks (default); phases: phases without tasks; none: neither."),
    ] = Field(default_factory=_default_include)


class PlanEventsQuery(PageQuery):
    """Filters of the list of plan events."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events with a greater seq.")] = 0


class TasksQuery(PageQuery):
    """Filters of the list of tasks. `state=ready` lists tasks that can be claimed now, in the order of claims."""

    state: Annotated[_State | None, Field(description="Only tasks in this state.")] = None
    plan: PlanRef | None = None
    session_id: SessionId | None = None

    def to_filter(self) -> TaskFilter:
        return TaskFilter(state=self.state, plan=self.plan, session_id=self.session_id)


class PhaseTasksQuery(PageQuery):
    """Filters of the list of tasks of a phase."""

    state: Annotated[_State | None, Field(description="Only tasks in this state.")] = None

    def to_filter(self, plan: str, phase: str) -> TaskFilter:
        return TaskFilter(state=self.state, plan=plan, phase=phase)


class ForceQuery(QueryModel):
    """Confirmation to delete claimed tasks."""

    force: Force = False


class GraphQuery(QueryModel):
    """The format of a graph."""

    format: Annotated[Literal["json", "mermaid"], Field(description="`mermaid` returns the text of a flowchart.")] = "json"
