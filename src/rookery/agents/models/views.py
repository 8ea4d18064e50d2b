"""Plans, phases and tasks as they are shown: with what is derived of them."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.agents.models.plans import Checkpoint, Phase, Plan, Progress, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseView:
    """
    A phase with what is derived of it.

    Attributes:
        depends_on: Ids of phases of the plan.
        blocked_by: Those of them that are not done; a phase counts as done once it is completed or skipped, or has tasks
            and all of them are.
        is_ready: Work on it may begin or go on.
        tasks: None where they were not asked for.
        is_completable: It is open, and nothing in it is.
    """

    phase: Phase
    depends_on: tuple[str, ...]
    blocked_by: tuple[str, ...]
    is_ready: bool
    is_completable: bool
    progress: Progress
    checkpoints: tuple[Checkpoint, ...] = ()
    tasks: tuple[TaskView, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """
    A task with what is derived of it.

    Attributes:
        blocked_by: Tasks and phases that must be done before it: its own, and those of its phase.
        is_ready: It may be claimed now; a plan that is not active does not count here.
    """

    task: Task
    depends_on: tuple[str, ...]
    blocked_by: tuple[str, ...]
    is_ready: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A plan with what is derived of it; *phases* None where they were not asked for."""

    plan: Plan
    progress: Progress
    current_phase: Phase | None
    is_completable: bool
    phases: tuple[PhaseView, ...] | None = None
