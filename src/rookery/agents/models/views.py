"""Views of plans, phases and tasks: the stored models with derived fields."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.agents.models.plans import Checkpoint, Phase, Plan, Progress, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    """
    A phase with its derived fields.

    Attributes:
        depends_on: Ids of phases of the plan.
        blocked_by: Ids of those in *depends_on* that are not done. A phase is done if it is completed or skipped, or if it has
            tasks and all of them are.
        is_ready: True if work on the phase can start or continue.
        tasks: None if the tasks were not requested.
        is_completable: True if the phase is open and all of its tasks are closed.
    """

    phase: Phase
    depends_on: tuple[str, ...]
    blocked_by: tuple[str, ...]
    is_ready: bool
    is_completable: bool
    progress: Progress
    checkpoints: tuple[Checkpoint, ...] = ()
    tasks: tuple[TaskView, ...] | None = None

    @property
    def is_blocked(self) -> bool:
        """True while something in *blocked_by* is not done."""
        return bool(self.blocked_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """
    A task with its derived fields.

    Attributes:
        blocked_by: Ids of unfinished tasks that the task depends on, and of unfinished phases that its phase depends on.
        is_ready: True if the task can be claimed now, apart from the status of its plan.
    """

    task: Task
    depends_on: tuple[str, ...]
    blocked_by: tuple[str, ...]
    is_ready: bool

    @property
    def is_blocked(self) -> bool:
        """True while something in *blocked_by* is not done."""
        return bool(self.blocked_by)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan with its derived fields. *phases* is None if they were not requested."""

    plan: Plan
    progress: Progress
    current_phase: Phase | None
    is_completable: bool
    phases: tuple[PhaseView, ...] | None = None
