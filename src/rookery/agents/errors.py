"""
Errors of plans, tasks and templates, in addition to those of the kernel.

    RookeryError
    ├── NotFound
    │   └── UnknownHook         404  resource_not_found
    └── Conflict
        ├── SlugTaken               409  slug_taken
        ├── PlanArchived            409  plan_archived
        ├── PlanNotActive           409  plan_not_active
        ├── PlanHasOpenPhases       409  plan_has_open_phases
        ├── PhaseHasOpenTasks       409  phase_has_open_tasks
        ├── PhaseClosed             409  phase_closed
        ├── PhaseBlocked            409  phase_blocked
        ├── TaskBlocked             409  task_blocked
        ├── TaskClaimed             409  task_claimed
        ├── LeaseLost               409  lease_lost
        ├── WrongTransition         409  wrong_transition
        ├── TemplateReadOnly        409  template_read_only
        └── TooManyItems            409  too_many
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rookery.kernel.clock import format_iso
from rookery.kernel.errors import Conflict, NotFound, RookeryError
from rookery.kernel.sentences import format_count


class UnknownHook(NotFound):
    """No coding agent has hooks under this name, or no hook has this event. The message lists the names."""

    def __init__(self, kind: str, name: str, names: Sequence[str]) -> None:
        RookeryError.__init__(self, f"There is no {kind} {name!r} of hooks; use {', '.join(names)}.", resource=f"{kind} of hooks")


class SlugTaken(Conflict):
    """The slug is in use in this workspace."""

    code = "slug_taken"

    def __init__(self, kind: str, slug: str) -> None:
        super().__init__(f"The workspace already has a {kind} with the slug {slug!r}; choose another slug.", slug=slug)


class PlanArchived(Conflict):
    """An archived plan is read-only until it is restored."""

    code = "plan_archived"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The plan {slug!r} is archived and read-only; restore it first.")
        self.tool_message = f"The plan {slug!r} is archived and read-only; restore it first with plan_restore."


class PlanNotActive(Conflict):
    """Work can start only in an active plan. Work in progress can be finished in a paused one."""

    code = "plan_not_active"

    def __init__(self, slug: str, status: str) -> None:
        todo = "resume it" if status == "paused" else "reopen it"
        super().__init__(f"The plan {slug!r} is {status}: {todo} first (PATCH its status to active).", plan_status=status)
        self.tool_message = f"The plan {slug!r} is {status}: {todo} first (plan_status with status active)."


class PlanHasOpenPhases(Conflict):
    """A plan can be completed when all phases are completed or skipped, or by force."""

    code = "plan_has_open_phases"

    def __init__(self, slug: str, phases: Sequence[Mapping[str, object]]) -> None:
        names = ", ".join(f"{phase['position']} {phase['name']!r}" for phase in phases[:5])
        more = f" and {len(phases) - 5} more" if len(phases) > 5 else ""
        super().__init__(f"The plan {slug!r} has open phases: {names}{more}. Complete or skip them, or use force.", phases=list(phases))


class PhaseHasOpenTasks(Conflict):
    """A phase can be completed when all tasks are completed or skipped, or by force."""

    code = "phase_has_open_tasks"

    def __init__(self, name: str, tasks: Sequence[Mapping[str, object]], count: int) -> None:
        super().__init__(
            f"The phase {name!r} has {format_count(count, 'open task')}. Complete or skip {'it' if count == 1 else 'them'}, or use force.",
            tasks=list(tasks),
            count=count,
        )


class PhaseClosed(Conflict):
    """Work cannot start in a phase that is completed, skipped or on hold. Tasks cannot be added to a completed or skipped phase."""

    code = "phase_closed"

    def __init__(self, name: str, status: str) -> None:
        super().__init__(f"The phase {name!r} is {status}; change its status first.", phase_status=status)
        self.tool_message = f"The phase {name!r} is {status}; change its status first with phase_status."


class PhaseBlocked(Conflict):
    """The phase depends on phases that are not done."""

    code = "phase_blocked"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(
            f"The phase {name!r} depends on {_count_phases(blocked_by)}; finish that work first, or use force.", blocked_by=list(blocked_by)
        )


class TaskBlocked(Conflict):
    """The task depends on tasks that are not done, or its phase on phases that are not done."""

    code = "task_blocked"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(
            f"The task {name!r} is blocked by {_count_items(blocked_by)}; finish that work first.", blocked_by=list(blocked_by)
        )


class TaskClaimed(Conflict):
    """The task has a lease. *expires_at* is its end, unless the holder renews it."""

    code = "task_claimed"

    def __init__(self, name: str, holder: Mapping[str, object], expires_at: datetime) -> None:
        super().__init__(
            f"The task {name!r} is claimed until {format_iso(expires_at)}; take another one, or use force.",
            holder=dict(holder),
            expires_at=format_iso(expires_at),
        )


class LeaseLost(Conflict):
    """The token or session does not match the current claim of the task: the claim has ended, or the proof belongs to another one."""

    code = "lease_lost"

    def __init__(self, name: str, status: str, message: str | None = None, detail: Mapping[str, object] | None = None) -> None:
        todo = "claim it again" if status == "pending" else "read it before you go on"
        ended = f"Your lease of the task {name!r} has ended. The task is {status}; {todo}."
        super().__init__(message or ended, task_status=status)
        self.detail |= detail or {}

    @classmethod
    def for_other_task(cls, name: str, status: str, token_task_id: str, token_task_name: str) -> LeaseLost:
        """Return the error for a token of another task's claim."""
        message = (
            f"This claim_token belongs to the claim of the task {token_task_name!r} ({token_task_id}), not to a claim of {name!r}; "
            "send the token that the claim of this task returned."
        )
        return cls(name, status, message, {"token_task_id": token_task_id})

    @classmethod
    def for_other_claim(cls, name: str, status: str, expires_at: datetime) -> LeaseLost:
        """Return the error for a token that does not match the current claim of the task."""
        message = (
            f"This claim_token does not match the current claim of the task {name!r}, which lasts until {format_iso(expires_at)}. "
            "Either your claim has ended or the token is wrong. Read the task before you go on."
        )
        return cls(name, status, message, {"expires_at": format_iso(expires_at)})

    @classmethod
    def for_other_session(cls, name: str, status: str, session_id: str) -> LeaseLost:
        """Return the error for a session in which the task is not claimed."""
        message = (
            f"The task {name!r} is {status} and not claimed in the session {session_id!r}; "
            "send the claim_token, or claim it in the session."
        )
        return cls(name, status, message, {"session_id": session_id})


class WrongTransition(Conflict):
    """The current status does not allow the new one."""

    code = "wrong_transition"

    def __init__(self, kind: str, name: str, current: str, target: str, *, allowed: Sequence[str]) -> None:
        targets = ", ".join(allowed) or "none"
        super().__init__(
            f"The {kind} {name!r} is {current} and cannot become {target}; allowed: {targets}.",
            was=current,
            wanted=target,
            allowed=list(allowed),
        )


class TooManyItems(Conflict):
    """The limit of items of this kind is reached."""

    code = "too_many"

    def __init__(self, kind: str, limit: int) -> None:
        super().__init__(f"The limit of {limit:,} {kind} is reached.", limit=limit)


class TemplateReadOnly(Conflict):
    """Templates shipped with Rookery are read-only. A copy can be changed."""

    code = "template_read_only"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The template {slug!r} ships with Rookery and is read-only; copy it to another slug and change the copy.")


def _count_phases(ids: Sequence[str]) -> str:
    return format_count(len(ids), "unfinished phase")


def _count_items(ids: Sequence[str]) -> str:
    return format_count(len(ids), "unfinished task or phase", "unfinished tasks or phases")
