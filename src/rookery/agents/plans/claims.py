"""Leases of tasks (D-61): one at a time works on a task, for as long as they say that they live."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from rookery.access.models import Caller
from rookery.agents.errors import LeaseLost, TaskClaimed, WrongTransition
from rookery.agents.models.plans import EventActor, Plan, PlanAccessFilter, PlanStatus, Task, TaskClaim, TaskStatus
from rookery.agents.models.views import TaskView
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.locking import (
    activate_plan,
    expire_lease,
    get_task,
    lock_writable_plan,
    lock_writable_task,
    require_unblocked,
    start_phase,
)
from rookery.agents.plans.notifier import ReadyTaskNotifier
from rookery.agents.plans.transitions import FORCED_LEASE_TRANSITIONS, LEASE_TRANSITIONS, LeaseAction
from rookery.agents.plans.view_builder import load_task_view
from rookery.agents.store import claims, phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory, random_text
from rookery.kernel.preconditions import ExpectedETags, require_match

DEFAULT_TTL_S = 900
"""How long a lease lasts unless its holder asks for another time (D-61)."""

_POLL_INTERVAL_S = 1.0
"""How often somebody who waits looks for what another process may have done; what this one does rings the bell."""

_BATCH_SIZE = 100
_MAX_BATCHES = 1_000
_TOKEN_LENGTH = 24

NoTaskReason = Literal["plan_done", "all_claimed", "blocked", "plan_paused", "plan_draft"]
SessionHook = Callable[[Tx, Caller, str], str | None]
"""
Record that the session of an id is being worked in, and return the id of its plan, if it has one.

It raises if there is no such open session that the caller may work in.
"""

CompletionListener = Callable[[Tx, Task, EventActor, datetime], None]
"""Hears, in the same transaction, that a task was completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """How somebody wants to hold a task: in which session, for how many seconds."""

    session_id: str | None = None
    ttl_s: int = DEFAULT_TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTaskAvailable:
    """
    There is no task to be had, why, and in how many seconds to ask again.

    Attributes:
        plan: The slug of the plan that was looked in, or for `plan_draft` of the oldest draft; None: all active plans were.
    """

    reason: NoTaskReason
    retry_after_s: int
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEndResult:
    """A task whose lease ended, and the one that its holder has next, if they asked for one; *no_task*: why there is none."""

    task: TaskView
    next_task: TaskView | None = None
    no_task: NoTaskAvailable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCredential:
    """
    What entitles to renew or end a lease: its token, the session that it was taken in, or *force*, which is recorded.

    Attributes:
        session_id: Counts only without a token and without force, for a caller who may work in that session while it is open.
    """

    token: str | None = None
    session_id: str | None = None
    force: bool = False

    def matches(self, claim: TaskClaim | None) -> bool:
        """Whether it proves that its bearer holds *claim*."""
        if claim is None:
            return False
        if self.token is not None:
            return claim.token == self.token
        return not self.force and self.session_id is not None and claim.session_id == self.session_id


class Claims:
    """
    Who works on what.

    Attributes:
        enter_session: What the session must pass that somebody claims in; None: sessions are not looked at.
        listeners: Who hears of completed tasks.
    """

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, notifier: ReadyTaskNotifier, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._journal = recorder
        self._notifier = notifier
        self._clock = clock
        self._ids = ids
        self.session_hook: SessionHook | None = None
        self.completion_listeners: list[CompletionListener] = []

    async def claim(self, caller: Caller, task_id: str, lease_request: LeaseRequest, *, expected: ExpectedETags = None) -> TaskView:
        """
        Take a task, and return it with its token.

        Raises:
            NotFound, PlanArchived: There is none, or it is read-only.
            TaskClaimed: Somebody else has it; WrongTransition: it is not to be done, or not any more.
            PlanNotActive, PhaseClosed, TaskBlocked: It cannot begin now.
            PreconditionFailed: *expected* names another version of it.
        """
        now, by = self._clock(), EventActor.from_caller(caller, lease_request.session_id)

        def write(tx: Tx) -> TaskView:
            self._run_session_hook(tx, caller, lease_request.session_id)
            plan, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            if task.claim is not None:
                raise TaskClaimed(task.name, task.claim.holder(), task.claim.expires_at)
            if task.status not in LEASE_TRANSITIONS[LeaseAction.CLAIM]:
                raise WrongTransition("task", task.name, task.status, TaskStatus.IN_PROGRESS, allowed=_list_claimable_statuses(task))
            require_unblocked(tx, task)
            return load_task_view(tx, self._take(tx, plan, task, lease_request, actor=by, now=now), now)

        return await self._db.write(write)

    async def claim_next(
        self, caller: Caller, plan_ref: str | None, lease_request: LeaseRequest, *, any_plan: bool = False, wait_s: float = 0
    ) -> TaskView | NoTaskAvailable:
        """
        Take the best task that is ready: the most urgent, then of the oldest plan, then the first in it.

        Without *plan_ref* it is a task of the session's plan; without that, or with *any_plan*, of any active plan.
        A draft becomes active if it is the plan that is named, or the session's.

        Args:
            wait_s: Wait so long for one to become ready; not for a plan that is done.

        Raises:
            NotFound, PlanArchived: There is no such plan, or it is read-only.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            ring = self._notifier.subscribe(caller.workspace_id)
            try:
                found = await self._db.write(lambda tx: self._claim_next(tx, caller, plan_ref, lease_request, any_plan=any_plan))
                left_s = deadline - asyncio.get_running_loop().time()
                is_final = isinstance(found, NoTaskAvailable) and found.reason == "plan_done" and found.plan is not None
                if isinstance(found, TaskView) or is_final or left_s <= 0 or self._notifier.is_closed:
                    return found
                # Some earlier, some later, so that many who wait do not look all at once.
                await asyncio.wait({ring}, timeout=min(left_s, _POLL_INTERVAL_S * random.uniform(0.75, 1.25)))  # noqa: S311 - guards nothing
            finally:
                ring.cancel()

    async def heartbeat(
        self, caller: Caller, task_id: str, credential: LeaseCredential, *, ttl_s: int = DEFAULT_TTL_S, expected: ExpectedETags = None
    ) -> TaskView:
        """
        Let a lease last *ttl_s* seconds from now.

        Raises:
            NotFound, PlanArchived: There is no such task, or it is read-only.
            LeaseLost: The lease has ended, or is not that of *credential*.
        """
        _require_credential(credential)
        now = self._clock()

        def write(tx: Tx) -> TaskView:
            self._run_credential_hook(tx, caller, credential)
            plan, task = get_task(tx, PlanAccessFilter.from_caller(caller), task_id)
            if plan.status is PlanStatus.ARCHIVED:
                plan, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            until = now + timedelta(seconds=ttl_s)
            held = task.claim if credential.matches(task.claim) else None
            if held is None or not claims.renew(tx, caller.workspace_id, task_id, held.token, now=now, expires_at=until):
                raise _explain_lost_lease(tx, task.as_of(now), credential)
            return load_task_view(tx, replace(task, claim=replace(held, expires_at=until)), now)

        return await self._db.write(write)

    async def release(
        self, caller: Caller, task_id: str, credential: LeaseCredential, *, reason: str | None = None, expected: ExpectedETags = None
    ) -> LeaseEndResult:
        """
        Give a task back, so that somebody else may take it.

        Raises:
            NotFound, PlanArchived: There is no such task, or it is read-only.
            LeaseLost: The token is of no lease any more. WrongTransition: By force, of a task that is not in progress.
        """
        data: dict[str, object] = {} if reason is None else {"reason": reason}
        return await self._end_lease(caller, task_id, credential, LeaseAction.RELEASE, data=data, expected=expected)

    async def complete(
        self,
        caller: Caller,
        task_id: str,
        credential: LeaseCredential,
        *,
        result: object = None,
        notes: str | None = None,
        next_request: LeaseRequest | None = None,
        expected: ExpectedETags = None,
    ) -> LeaseEndResult:
        """
        Say that a task is done, with what came of it.

        Args:
            next_request: Take the best task of the same plan that is ready now, in the same transaction; in the session of the
                task's own claim, unless it names another one.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As `release`.
        """

        def done(task: Task, now: datetime) -> Task:
            kept = notes if notes is not None else task.notes
            return replace(task, result=result if result is not None else task.result, notes=kept, error=None, completed_at=now)

        return await self._end_lease(
            caller, task_id, credential, LeaseAction.COMPLETE, data={}, update=done, next_request=next_request, expected=expected
        )

    async def fail(
        self,
        caller: Caller,
        task_id: str,
        credential: LeaseCredential,
        *,
        error: str,
        result: object = None,
        expected: ExpectedETags = None,
    ) -> LeaseEndResult:
        """
        Say that a task cannot be done; it stays failed until somebody sets it back to pending.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As `release`.
        """

        def failed(task: Task, now: datetime) -> Task:
            kept = result if result is not None else task.result
            return replace(task, result=kept, error=error, attempts=task.attempts + 1, completed_at=now)

        return await self._end_lease(
            caller, task_id, credential, LeaseAction.FAIL, data={"error": error[:200]}, update=failed, expected=expected
        )

    async def expire_leases(self) -> int:
        """Note all leases that have run out, so that who only looks sees it; return how many."""
        swept = 0
        for _ in range(_MAX_BATCHES):
            found = await self._db.write(lambda tx: self._expire_batch(tx, None, self._clock()))
            swept += found
            if found < _BATCH_SIZE:
                break
        return swept

    def release_session_tasks(
        self, tx: Tx, workspace_id: int, session_id: str, *, actor: EventActor, reason: str, now: datetime
    ) -> list[Task]:
        """Give back, as a part of the transaction *tx*, every task that the session has a lease of, and return them (D-62)."""
        freed, within = list[Task](), PlanAccessFilter(workspace_id=workspace_id)
        for task_id, plan_id in claims.list_by_session(tx, workspace_id, session_id):
            plan, task = plans.find(tx, within, plan_id, lock=True), tasks.find(tx, workspace_id, task_id, lock=True)
            if plan is None or task is None or task.claim is None or task.claim.session_id != session_id:
                continue
            freed.append(self._save(tx, replace(task, status=TaskStatus.PENDING, claim=None), now))
            self._journal.record_task(
                tx, freed[-1], "released", actor=actor, at=now, data={"reason": reason, "holder": task.claim.holder()}
            )
        return freed

    def _run_session_hook(self, tx: Tx, caller: Caller, session_id: str | None) -> str | None:
        """Record that the session is being worked in, and return the id of its plan."""
        return None if session_id is None or self.session_hook is None else self.session_hook(tx, caller, session_id)

    def _run_credential_hook(self, tx: Tx, caller: Caller, credential: LeaseCredential) -> None:
        """Enter the session of *credential* where it is what proves a claim."""
        if credential.token is None and not credential.force:
            self._run_session_hook(tx, caller, credential.session_id)

    def _claim_next(
        self, tx: Tx, caller: Caller, plan_ref: str | None, lease_request: LeaseRequest, *, any_plan: bool
    ) -> TaskView | NoTaskAvailable:
        now, within, by = self._clock(), PlanAccessFilter.from_caller(caller), EventActor.from_caller(caller, lease_request.session_id)
        plan_of_session = self._run_session_hook(tx, caller, lease_request.session_id)
        if plan_ref is None and not any_plan:
            plan_ref = plan_of_session
        claims.lock_workspace(tx, caller.workspace_id)
        plan = None if plan_ref is None else lock_writable_plan(tx, within, plan_ref)
        if plan is not None and plan.status is PlanStatus.DRAFT:
            plan = activate_plan(tx, plan, self._journal, actor=by, now=now)
        self._expire_batch(tx, caller.workspace_id, now)
        return self._claim_best(tx, within, plan, lease_request, actor=by, now=now)

    def _claim_best(
        self, tx: Tx, access_filter: PlanAccessFilter, plan: Plan | None, lease_request: LeaseRequest, *, actor: EventActor, now: datetime
    ) -> TaskView | NoTaskAvailable:
        plan_id = None if plan is None else plan.id
        # More than once only where somebody claims by id at the same moment, on PostgreSQL.
        while (task := claims.find_best(tx, access_filter, plan_id)) is not None:
            its_plan = plans.find(tx, access_filter, task.plan_id, lock=True)
            now_there = tasks.find(tx, access_filter.workspace_id, task.id, lock=True)
            is_still = its_plan is not None and its_plan.status is PlanStatus.ACTIVE
            if its_plan is not None and is_still and now_there is not None and now_there.status is TaskStatus.PENDING:
                return load_task_view(tx, self._take(tx, its_plan, now_there, lease_request, actor=actor, now=now), now)
        found = _explain_no_task(claims.get_open_task_stats(tx, access_filter, plan_id), plan, now)
        draft = claims.find_oldest_draft(tx, access_filter) if plan is None and found.reason == "plan_done" else None
        return found if draft is None else NoTaskAvailable(reason="plan_draft", retry_after_s=30, plan=draft)

    def _take(self, tx: Tx, plan: Plan, task: Task, lease_request: LeaseRequest, *, actor: EventActor, now: datetime) -> Task:
        phase = phases.find(tx, plan.id, task.phase_id)
        if phase is not None:
            start_phase(tx, plan, phase, self._journal, actor=actor, now=now)
        claim = TaskClaim(
            token=random_text(_TOKEN_LENGTH),
            key_id=actor.key_id,
            agent_id=actor.agent_id,
            session_id=lease_request.session_id,
            claimed_at=now,
            expires_at=now + timedelta(seconds=lease_request.ttl_s),
        )
        if not claims.claim(tx, task.id, claim):
            raise TaskClaimed(task.name, {}, now)
        taken = replace(
            task,
            status=TaskStatus.IN_PROGRESS,
            claim=claim,
            started_at=task.started_at or now,
            updated_at=now,
            version=task.version + 1,
        )
        self._journal.record_task(
            tx, taken, "claimed", actor=actor, at=now, data={"expires_at": claim.expires_at.isoformat(), "attempts": task.attempts}
        )
        return taken

    async def _end_lease(
        self,
        caller: Caller,
        task_id: str,
        credential: LeaseCredential,
        action: LeaseAction,
        *,
        data: Mapping[str, object],
        update: Callable[[Task, datetime], Task] | None = None,
        next_request: LeaseRequest | None = None,
        expected: ExpectedETags = None,
    ) -> LeaseEndResult:
        _require_credential(credential)
        now, within = self._clock(), PlanAccessFilter.from_caller(caller)

        def write(tx: Tx) -> LeaseEndResult:
            next_wish = None if next_request is None else _with_default_session(tx, caller, task_id, credential, next_request)
            # Sessions are locked before plans, here and where they end.
            self._run_credential_hook(tx, caller, credential)
            if next_wish is not None:
                self._run_session_hook(tx, caller, next_wish.session_id)
                claims.lock_workspace(tx, caller.workspace_id)
            plan, task = lock_writable_task(tx, within, task_id, self._journal, now)
            require_match("task", task.version, expected)
            wanted, recorded = _resolve_target_status(tx, task, credential, action)
            # Who does it by force does it in no session: that of the holder did not do it.
            by = EventActor.from_caller(caller, None if task.claim is None or recorded else task.claim.session_id)
            changed = self._save(tx, replace(task if update is None else update(task, now), status=wanted, claim=None), now)
            self._journal.record_task(tx, changed, _EVENT_NAMES[action], actor=by, at=now, data={**data, **recorded})
            if action is LeaseAction.COMPLETE:
                for listener in self.completion_listeners:
                    listener(tx, changed, by, now)
            if next_wish is None:
                return LeaseEndResult(task=load_task_view(tx, changed, now))
            self._expire_batch(tx, caller.workspace_id, now)
            found = self._claim_best(tx, within, plan, next_wish, actor=EventActor.from_caller(caller, next_wish.session_id), now=now)
            view = load_task_view(tx, changed, now)
            return (
                LeaseEndResult(task=view, no_task=found)
                if isinstance(found, NoTaskAvailable)
                else LeaseEndResult(task=view, next_task=found)
            )

        return await self._db.write(write)

    def _save(self, tx: Tx, task: Task, now: datetime) -> Task:
        changed = replace(task, updated_at=now, version=task.version + 1)
        tasks.change(tx, changed)
        return changed

    def _expire_batch(self, tx: Tx, workspace_id: int | None, now: datetime) -> int:
        over = claims.list_expired(tx, now, workspace_id=workspace_id, limit=_BATCH_SIZE)
        for task_id, plan_id, workspace in over:
            plan = plans.find(tx, PlanAccessFilter(workspace_id=workspace), plan_id, lock=True)
            task = tasks.find(tx, workspace, task_id, lock=True)
            if plan is not None and task is not None:
                expire_lease(tx, task, self._journal, now)
        return len(over)


_EVENT_NAMES = {LeaseAction.RELEASE: "released", LeaseAction.COMPLETE: "completed", LeaseAction.FAIL: "failed"}


def _require_credential(credential: LeaseCredential) -> None:
    if credential.token is None and credential.session_id is None and not credential.force:
        missing = "is required: it came with the claim; or send the session_id of the session that the task was claimed in, or use force"
        raise ValidationFailed({"claim_token": [missing]})


def _with_default_session(tx: Tx, caller: Caller, task_id: str, credential: LeaseCredential, next_request: LeaseRequest) -> LeaseRequest:
    """Return *next_request* in the session of the claim that *caller* ends by *credential*, unless it names a session."""
    if next_request.session_id is not None:
        return next_request
    task = tasks.find(tx, caller.workspace_id, task_id)
    claim = None if task is None else task.claim
    is_own = claim is not None and credential.matches(claim) and claim.key_id == caller.key_id
    return replace(next_request, session_id=claim.session_id) if claim is not None and is_own else next_request


def _explain_lost_lease(tx: Tx, task: Task, credential: LeaseCredential) -> LeaseLost:
    """Return why *credential* is not that of the task's claim."""
    if credential.token is None and credential.session_id is not None:
        return LeaseLost.for_other_session(task.name, task.status, credential.session_id)
    other = None if credential.token is None else claims.find_by_token(tx, task.workspace_id, credential.token)
    if other is not None and other[0] != task.id:
        return LeaseLost.for_other_task(task.name, task.status, *other)
    if task.claim is not None and not credential.matches(task.claim):
        return LeaseLost.for_other_claim(task.name, task.status, task.claim.expires_at)
    return LeaseLost(task.name, task.status)


def _resolve_target_status(tx: Tx, task: Task, credential: LeaseCredential, action: LeaseAction) -> tuple[TaskStatus, Mapping[str, object]]:
    """Return the status that *action* brings the task into, and what is recorded of force."""
    if credential.matches(task.claim):
        return LEASE_TRANSITIONS[action][task.status], {}
    if not credential.force:
        raise _explain_lost_lease(tx, task, credential)
    wanted = FORCED_LEASE_TRANSITIONS[action].get(task.status)
    if wanted is None:
        raise WrongTransition("task", task.name, task.status, _TARGET_STATUSES[action], allowed=())
    return wanted, {"forced": True, "holder": None if task.claim is None else task.claim.holder()}


_TARGET_STATUSES = {
    LeaseAction.RELEASE: TaskStatus.PENDING,
    LeaseAction.COMPLETE: TaskStatus.COMPLETED,
    LeaseAction.FAIL: TaskStatus.FAILED,
}


def _list_claimable_statuses(task: Task) -> Sequence[str]:
    """Return what a task that cannot be claimed can become, so that it can be."""
    return () if task.status is TaskStatus.IN_PROGRESS else (TaskStatus.PENDING,)


def _explain_no_task(stats: claims.OpenTaskStats, plan: Plan | None, now: datetime) -> NoTaskAvailable:
    """Return why there is no task to be had; when somebody works, the first end of a lease is when to ask again, at the latest."""
    slug = None if plan is None else plan.slug
    if plan is None and stats.has_paused_plan and not stats.open_count:
        return NoTaskAvailable(reason="plan_paused", retry_after_s=30)
    if plan is not None and plan.status is PlanStatus.PAUSED:
        return NoTaskAvailable(reason="plan_paused", retry_after_s=30, plan=slug)
    if not stats.open_count:
        return NoTaskAvailable(reason="plan_done", retry_after_s=60, plan=slug)
    if not stats.claimed_count:
        return NoTaskAvailable(reason="blocked", retry_after_s=30, plan=slug)
    ends_in_s = 30 if stats.next_lease_end is None else int((stats.next_lease_end - now).total_seconds()) + 1
    return NoTaskAvailable(reason="all_claimed", retry_after_s=max(1, min(30, ends_in_s)), plan=slug)
