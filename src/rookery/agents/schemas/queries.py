"""What callers ask of plans, phases and tasks: filters of lists, and what to show (D-65, spec 4.6)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rookery.agents.models.drafts import PlanFilter, TaskFilter, TaskState
from rookery.agents.models.plans import PlanStatus
from rookery.agents.schemas.plans import Force, Org, PlanRef, Project, SessionId
from rookery.kernel.http.pagination import PageQuery
from rookery.kernel.schema import QueryModel, resolve_alias


def _default_include() -> list[Literal["phases", "tasks", "none"]]:
    return ["tasks"]


class PlansQuery(PageQuery):
    """Which plans to list; without *status* all but archived ones."""

    status: Literal["draft", "active", "paused", "completed", "archived"] | None = None
    org: Org | None = None
    project: Project | None = None
    q: Annotated[str, Field(min_length=1, max_length=200, description="What title, slug or description has in it.")] | None = None

    def to_filter(self) -> PlanFilter:
        """Return the filters."""
        return PlanFilter(status=None if self.status is None else PlanStatus(self.status), org=self.org, project=self.project, q=self.q)


class IncludeQuery(QueryModel):
    """What to show of a plan beside itself."""

    include: Annotated[
        list[Literal["phases", "tasks", "none"]],
        Field(max_length=3, description="tasks: phases with their tasks, as without this field; phases: without them; none: neither."),
    ] = Field(default_factory=_default_include)


class PlanEventsQuery(PageQuery):
    """Which events of a plan."""

    after: Annotated[int, Field(ge=0, le=2**53, description="Only events past the one with this number.")] = 0


class TasksQuery(PageQuery):
    """Which tasks to list; *status* ready: those that may be claimed now, in the order in which they are given out."""

    status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | None = None
    state: Annotated[
        Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | None,
        Field(description="The earlier name of `status`.", json_schema_extra={"deprecated": True}),
    ] = None
    plan: PlanRef | None = None
    session_id: SessionId | None = None

    def to_filter(self) -> TaskFilter:
        """Return what is asked for."""
        return TaskFilter(state=_parse_state(self.status, self.state), plan=self.plan, session_id=self.session_id)


class PhaseTasksQuery(PageQuery):
    """Which tasks of a phase to list."""

    status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | None = None
    state: Annotated[
        Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | None,
        Field(description="The earlier name of `status`.", json_schema_extra={"deprecated": True}),
    ] = None

    def to_filter(self, plan: str, phase: str) -> TaskFilter:
        """Return what is asked for."""
        return TaskFilter(state=_parse_state(self.status, self.state), plan=plan, phase=phase)


def _parse_state(status: str | None, state: str | None) -> TaskState | None:
    """Return the state to filter by, given under either of its names."""
    chosen = resolve_alias("status", status, "state", state)
    return None if chosen is None else TaskState(chosen)


class ForceQuery(QueryModel):
    """Whether to delete what somebody works on."""

    force: Force = False


class GraphQuery(QueryModel):
    """In which form a graph is wanted."""

    format: Literal["json", "mermaid"] = "json"
