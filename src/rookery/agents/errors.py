"""
What agent work can meet, beyond the kernel's errors (D-60, D-61, D-64).

    RookeryError
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
        └── TooMany                 409  too_many
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rookery.kernel.clock import format_iso
from rookery.kernel.errors import Conflict


class SlugTaken(Conflict):
    """The workspace has something of the kind under that name."""

    code = "slug_taken"

    def __init__(self, kind: str, slug: str) -> None:
        super().__init__(f"This workspace has a {kind} {slug!r} already; choose another slug.", slug=slug)


class PlanArchived(Conflict):
    """An archived plan is read-only until it is restored."""

    code = "plan_archived"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The plan {slug!r} is archived, so nothing in it can be changed; restore it first.")


class PlanNotActive(Conflict):
    """Work begins in active plans only; what was begun may be finished in a paused one."""

    code = "plan_not_active"

    def __init__(self, slug: str, status: str) -> None:
        todo = "resume it" if status == "paused" else "reopen it"
        super().__init__(f"The plan {slug!r} is {status}: {todo} first (PATCH its status to active).", plan_status=status)


class PlanHasOpenPhases(Conflict):
    """A plan is completed when each of its phases is completed or skipped, or by force."""

    code = "plan_has_open_phases"

    def __init__(self, slug: str, phases: Sequence[Mapping[str, object]]) -> None:
        names = ", ".join(f"{each['position']} {each['name']!r}" for each in phases[:5])
        more = f" and {len(phases) - 5} more" if len(phases) > 5 else ""
        super().__init__(f"The plan {slug!r} has open phases: {names}{more}. Complete or skip them, or use force.", phases=list(phases))


class PhaseHasOpenTasks(Conflict):
    """A phase is completed when each of its tasks is completed or skipped, or by force."""

    code = "phase_has_open_tasks"

    def __init__(self, name: str, tasks: Sequence[Mapping[str, object]], count: int) -> None:
        super().__init__(f"The phase {name!r} has {count} open tasks. Complete or skip them, or use force.", tasks=list(tasks), count=count)


class PhaseClosed(Conflict):
    """No work begins in a phase that is completed, skipped or on hold, and none is added to a completed or skipped one."""

    code = "phase_closed"

    def __init__(self, name: str, status: str) -> None:
        super().__init__(f"The phase {name!r} is {status}; change its status first.", phase_status=status)


class PhaseBlocked(Conflict):
    """The phase depends on others that are not done."""

    code = "phase_blocked"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(f"The phase {name!r} waits for {_count_others(blocked_by)} to be done.", blocked_by=list(blocked_by))


class TaskBlocked(Conflict):
    """The task, or its phase, depends on others that are not done."""

    code = "task_blocked"

    def __init__(self, name: str, blocked_by: Sequence[str]) -> None:
        super().__init__(f"The task {name!r} waits for {_count_others(blocked_by)} to be done.", blocked_by=list(blocked_by))


class TaskClaimed(Conflict):
    """Somebody works on the task; *expires_at* is when the lease ends unless it is renewed."""

    code = "task_claimed"

    def __init__(self, name: str, holder: Mapping[str, object], expires_at: datetime) -> None:
        super().__init__(
            f"The task {name!r} is claimed until {format_iso(expires_at)}; take another one, or use force.",
            holder=dict(holder),
            expires_at=format_iso(expires_at),
        )


class LeaseLost(Conflict):
    """What the caller sent is not the proof of the task's present claim: that claim ended, or the proof is of another one."""

    code = "lease_lost"

    def __init__(self, name: str, status: str, message: str | None = None, detail: Mapping[str, object] | None = None) -> None:
        todo = "claim it again" if status == "pending" else "read it before you go on"
        ended = f"Your lease of the task {name!r} has ended; the task is {status}: {todo}."
        super().__init__(message or ended, task_status=status)
        self.detail |= detail or {}

    @classmethod
    def for_other_task(cls, name: str, status: str, token_task_id: str, token_task_name: str) -> LeaseLost:
        """Return the refusal of a token that belongs to the claim of another task."""
        message = (
            f"This claim_token belongs to the claim of the task {token_task_name!r} ({token_task_id}), not to a claim of {name!r}; "
            "send the token that claiming this task gave."
        )
        return cls(name, status, message, {"token_task_id": token_task_id})

    @classmethod
    def for_other_claim(cls, name: str, status: str, expires_at: datetime) -> LeaseLost:
        """Return the refusal of a token that is not that of the task's present claim."""
        message = (
            f"This claim_token does not belong to the present claim of the task {name!r}, which lasts until {format_iso(expires_at)}. "
            "Either your claim has ended or the token is wrong. Read the task before you go on."
        )
        return cls(name, status, message, {"expires_at": format_iso(expires_at)})

    @classmethod
    def for_other_session(cls, name: str, status: str, session_id: str) -> LeaseLost:
        """Return the refusal of a session in which the task is not claimed."""
        message = (
            f"The task {name!r} is {status} and not claimed in the session {session_id!r}; "
            "send the claim_token, or claim it in the session."
        )
        return cls(name, status, message, {"session_id": session_id})


class WrongTransition(Conflict):
    """There is no way from the one status to the other."""

    code = "wrong_transition"

    def __init__(self, kind: str, name: str, current: str, target: str, *, allowed: Sequence[str]) -> None:
        ways = ", ".join(allowed) or "nothing"
        super().__init__(
            f"The {kind} {name!r} is {current} and cannot become {target}; it can become: {ways}.",
            was=current,
            wanted=target,
            allowed=list(allowed),
        )


class TooManyItems(Conflict):
    """The plan has as many of them as it may."""

    code = "too_many"

    def __init__(self, kind: str, limit: int) -> None:
        super().__init__(f"There are {limit:,} {kind} already, as many as there may be.", limit=limit)


class TemplateReadOnly(Conflict):
    """A template that comes with Rookery is as it is; a copy of it can be changed."""

    code = "template_read_only"

    def __init__(self, slug: str) -> None:
        super().__init__(f"The template {slug!r} comes with Rookery and cannot be changed; add a copy of it under a slug of your own.")


def _count_others(ids: Sequence[str]) -> str:
    return "1 other" if len(ids) == 1 else f"{len(ids)} others"
