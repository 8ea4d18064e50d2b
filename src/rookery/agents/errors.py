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
    """The slug is in use by another plan or plan template of the workspace."""

    code = "slug_taken"
    fields = "`slug`"

    def __init__(self, kind: str, slug: str) -> None:
        super().__init__(f"The workspace already has a {kind} with the slug {slug!r}; choose another slug.", slug=slug)


class PlanArchived(Conflict):
    """An archived plan is read-only; restore it first."""

    code = "plan_archived"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The plan {slug!r} is archived and read-only; restore it first.")
        self.tool_message = f"The plan {slug!r} is archived and read-only; restore it first with plan_restore."


class PlanNotActive(Conflict):
    """The plan is paused or completed, so no work can begin or be added."""

    code = "plan_not_active"
    fields = "`plan_status`"

    def __init__(self, slug: str, status: str) -> None:
        todo = "resume it" if status == "paused" else "reopen it"
        super().__init__(f"The plan {slug!r} is {status}: {todo} first (PATCH its status to active).", plan_status=status)
        self.tool_message = f"The plan {slug!r} is {status}: {todo} first (plan_status with status active)."


class PlanHasOpenPhases(Conflict):
    """A plan with open phases can be completed only with `force`."""

    code = "plan_has_open_phases"
    fields = "`phases`"

    def __init__(self, slug: str, phases: Sequence[Mapping[str, object]]) -> None:
        names = ", ".join(f"{phase['position']} {phase['name']!r}" for phase in phases[:5])
        more = f" and {len(phases) - 5} more" if len(phases) > 5 else ""
        super().__init__(f"The plan {slug!r} has open phases: {names}{more}. Complete or skip them, or use force.", phases=list(phases))


class PhaseHasOpenTasks(Conflict):
    """A phase with open tasks can be completed only with `force`."""

    code = "phase_has_open_tasks"
    fields = "`tasks`, `count`"

    def __init__(self, name: str, tasks: Sequence[Mapping[str, object]], count: int) -> None:
        super().__init__(
            f"The phase {name!r} has {format_count(count, 'open task')}. Complete or skip {'it' if count == 1 else 'them'}, or use force.",
            tasks=list(tasks),
            count=count,
        )


class PhaseClosed(Conflict):
    """The phase is completed, skipped or on hold, so no work can begin; or it is closed, so no task can be added."""

    code = "phase_closed"
    fields = "`phase_status`"

    def __init__(self, name: str, status: str) -> None:
        super().__init__(f"The phase {name!r} is {status}; change its status first.", phase_status=status)
        self.tool_message = f"The phase {name!r} is {status}; change its status first with phase_status."


class PhaseBlocked(Conflict):
    """The phase waits for other phases."""

    code = "phase_blocked"
    fields = "`blocked_by`: their ids"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(
            f"The phase {name!r} depends on {_count_phases(blocked_by)}; finish that work first, or use force.", blocked_by=list(blocked_by)
        )


class TaskBlocked(Conflict):
    """The task or its phase waits for others."""

    code = "task_blocked"
    fields = "`blocked_by`: their ids"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(
            f"The task {name!r} is blocked by {_count_items(blocked_by)}; finish that work first.", blocked_by=list(blocked_by)
        )


class TaskClaimed(Conflict):
    """Another worker holds the task."""

    code = "task_claimed"
    fields = "`holder`, `expires_at`"

    def __init__(self, name: str, holder: Mapping[str, object], expires_at: datetime) -> None:
        super().__init__(
            f"The task {name!r} is claimed until {format_iso(expires_at)}; take another one, or use force.",
            holder=dict(holder),
            expires_at=format_iso(expires_at),
        )


class LeaseLost(Conflict):
    """The lease of the `claim_token` has ended, or the token or session belongs to another claim."""

    code = "lease_lost"
    fields = "`task_status`; `token_task_id`: the task of the token"

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
    """The status cannot change in this way."""

    code = "wrong_transition"
    fields = "`was`, `wanted`, `allowed`"

    def __init__(self, kind: str, name: str, current: str, target: str, *, allowed: Sequence[str]) -> None:
        targets = ", ".join(allowed) or "none"
        super().__init__(
            f"The {kind} {name!r} is {current} and cannot become {target}; allowed: {targets}.",
            was=current,
            wanted=target,
            allowed=list(allowed),
        )


class TooManyItems(Conflict):
    """The plan has the maximum number of phases, tasks or checkpoints."""

    code = "too_many"
    fields = "`limit`"

    def __init__(self, kind: str, limit: int) -> None:
        super().__init__(f"The limit of {limit:,} {kind} is reached.", limit=limit)


class TemplateReadOnly(Conflict):
    """A built-in template cannot be changed; copy it under another slug."""

    code = "template_read_only"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The template {slug!r} ships with Rookery and is read-only; copy it to another slug and change the copy.")


def _count_phases(ids: Sequence[str]) -> str:
    return format_count(len(ids), "unfinished phase")


def _count_items(ids: Sequence[str]) -> str:
    return format_count(len(ids), "unfinished task or phase", "unfinished tasks or phases")
