"""Task leases: claiming a task, renewing the lease and ending it. A task has at most one lease at a time."""

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
from rookery.agents.plans.plan_events import PlanEventRecorder, ReadyTaskNotifier
from rookery.agents.plans.server_pulse import ServerPulse
from rookery.agents.plans.transitions import (
    FORCED_LEASE_TRANSITIONS,
    LEASE_TRANSITIONS,
    LeaseAction,
    activate_plan,
    expire_lease,
    get_task,
    lock_writable_plan,
    lock_writable_task,
    require_unblocked,
    start_phase,
)
from rookery.agents.plans.views import load_task_view
from rookery.agents.store import claims, phases, plans
from rookery.agents.store.tables import TASKS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory, random_text
from rookery.kernel.preconditions import ExpectedETags, require_match

DEFAULT_TTL_S = 900
"""Default duration of a lease in seconds."""

_POLL_INTERVAL_S = 1.0
"""Seconds between two polls of a waiting claim for changes by other processes. Changes of this process wake it at once."""

_BATCH_SIZE = 100
_MAX_BATCHES = 1_000
_TOKEN_LENGTH = 24

NoTaskReason = Literal["plan_done", "all_claimed", "blocked", "plan_paused", "plan_draft"]
SessionHook = Callable[[Tx, Caller, str], str | None]
"""
A function that records activity in a session, given its id, and returns the id of the session's plan, or None.

It raises an error if the session is not open or the caller may not work in it.
"""

CompletionListener = Callable[[Tx, Task, EventActor, datetime], None]
"""A function called in the transaction that completes a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRequest:
    """The session of a new lease, and its duration in seconds."""

    session_id: str | None = None
    ttl_s: int = DEFAULT_TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class NoTaskAvailable:
    """
    The reason why no task can be claimed, and the seconds to wait before the next attempt.

    Attributes:
        plan: The slug of the plan that was searched; for `plan_draft`, the slug of the oldest draft. None if all active plans were
            searched.
    """

    reason: NoTaskReason
    retry_after_s: int
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEndResult:
    """A task whose lease ended, and the next task if one was requested. *no_task* gives the reason if none could be claimed."""

    task: TaskView
    next_task: TaskView | None = None
    no_task: NoTaskAvailable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseCredential:
    """
    The proof that a caller may renew or end a lease: its token, the session of the claim, or *force*, which the event records.

    Attributes:
        session_id: Used only without a token and without force. The session must be open and the caller must have access to it.
    """

    token: str | None = None
    session_id: str | None = None
    force: bool = False

    def matches(self, claim: TaskClaim | None) -> bool:
        """Return True if the credential proves that the caller holds *claim*."""
        if claim is None:
            return False
        if self.token is not None:
            return claim.token == self.token
        return not self.force and self.session_id is not None and claim.session_id == self.session_id


class Claims:
    """
    Operations on task leases.

    Attributes:
        session_hook: A function that checks the session of a claim and records activity in it. None skips the check.
        completion_listeners: Functions called for each completed task.
    """

    def __init__(
        self,
        *,
        db: Database,
        recorder: PlanEventRecorder,
        notifier: ReadyTaskNotifier,
        pulse: ServerPulse,
        clock: Clock,
        ids: IdFactory,
    ) -> None:
        self._db = db
        self._pulse = pulse
        self._recorder = recorder
        self._notifier = notifier
        self._clock = clock
        self._ids = ids
        self.session_hook: SessionHook | None = None
        self.completion_listeners: list[CompletionListener] = []

    async def claim(self, caller: Caller, task_id: str, lease_request: LeaseRequest, *, expected: ExpectedETags = None) -> TaskView:
        """
        Claim a task and return it with its claim token.

        Raises:
            NotFound, PlanArchived: The task does not exist, or its plan is read-only.
            TaskClaimed: The task has a lease.
            WrongTransition: The task is not pending.
            PlanNotActive, PhaseClosed, TaskBlocked: Work on the task cannot start now.
            PreconditionFailed: *expected* does not match the version of the task.
        """
        await self._pulse.require_beat()
        now, by = self._clock(), EventActor.from_caller(caller, lease_request.session_id)

        def write(tx: Tx) -> TaskView:
            self._run_session_hook(tx, caller, lease_request.session_id)
            plan, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._recorder, now)
            require_match("task", task.version, expected)
            if task.claim is not None:
                raise TaskClaimed(task.name, task.claim.holder, task.claim.expires_at)
            if task.status not in LEASE_TRANSITIONS[LeaseAction.CLAIM]:
                raise WrongTransition("task", task.name, task.status, TaskStatus.IN_PROGRESS, allowed=_list_claimable_statuses(task))
            require_unblocked(tx, task)
            return load_task_view(tx, self._take(tx, plan, task, lease_request, actor=by, now=now), now)

        return await self._db.write(write)

    async def claim_next(
        self, caller: Caller, plan_ref: str | None, lease_request: LeaseRequest, *, any_plan: bool = False, wait_s: float = 0
    ) -> TaskView | NoTaskAvailable:
        """
        Claim the best ready task: the most urgent one, then one of the oldest plan, then the first in that plan.

        Without *plan_ref*, search the plan of the session. If the session has no plan, or with *any_plan*, search all active plans.
        A draft becomes active if *plan_ref* names it or it is the plan of the session.

        Args:
            wait_s: Seconds to wait for a task to become ready. The call does not wait if the one plan that it searches is done.

        Raises:
            NotFound, PlanArchived: The plan does not exist, or is read-only.
        """
        deadline = asyncio.get_running_loop().time() + wait_s
        while True:
            await self._pulse.require_beat()
            wakeup = self._notifier.subscribe(caller.workspace_id)
            try:
                outcome = await self._db.write(lambda tx: self._claim_next(tx, caller, plan_ref, lease_request, any_plan=any_plan))
                left_s = deadline - asyncio.get_running_loop().time()
                is_final = isinstance(outcome, NoTaskAvailable) and outcome.reason == "plan_done" and outcome.plan is not None
                if isinstance(outcome, TaskView) or is_final or left_s <= 0 or self._notifier.is_closed:
                    return outcome
                # Random jitter, so that many waiting requests do not poll at the same moment.
                await asyncio.wait({wakeup}, timeout=min(left_s, _POLL_INTERVAL_S * random.uniform(0.75, 1.25)))  # noqa: S311 - guards nothing
            finally:
                wakeup.cancel()

    async def heartbeat(
        self, caller: Caller, task_id: str, credential: LeaseCredential, *, ttl_s: int = DEFAULT_TTL_S, expected: ExpectedETags = None
    ) -> TaskView:
        """
        Extend a lease to *ttl_s* seconds from now.

        Raises:
            NotFound, PlanArchived: The task does not exist, or its plan is read-only.
            LeaseLost: The lease has ended, or *credential* does not match it.
        """
        _require_credential(credential)
        await self._pulse.require_beat()
        now = self._clock()

        def write(tx: Tx) -> TaskView:
            self._run_credential_hook(tx, caller, credential)
            plan, task = get_task(tx, PlanAccessFilter.from_caller(caller), task_id)
            if plan.status is PlanStatus.ARCHIVED:
                plan, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._recorder, now)
            require_match("task", task.version, expected)
            until = now + timedelta(seconds=ttl_s)
            claim = task.claim if credential.matches(task.claim) else None
            if claim is None or not claims.renew(tx, caller.workspace_id, task_id, claim.token, now=now, expires_at=until):
                raise _explain_lost_lease(tx, task.as_of(now), credential)
            return load_task_view(tx, replace(task, claim=replace(claim, expires_at=until)), now)

        return await self._db.write(write)

    async def release(
        self, caller: Caller, task_id: str, credential: LeaseCredential, *, reason: str | None = None, expected: ExpectedETags = None
    ) -> LeaseEndResult:
        """
        End a lease without a result. The task becomes pending and can be claimed again.

        Raises:
            NotFound, PlanArchived: The task does not exist, or its plan is read-only.
            LeaseLost: *credential* does not match the current lease.
            WrongTransition: *credential* uses force and the task is not in progress.
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
        Complete a task and store its result.

        Args:
            next_request: Also claim the best ready task of the same plan, in the same transaction. By default, the new lease belongs
                to the session of the completed task's claim.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As for `release`.
        """

        def complete_task(task: Task, now: datetime) -> Task:
            new_notes = notes if notes is not None else task.notes
            return replace(task, result=result if result is not None else task.result, notes=new_notes, error=None, completed_at=now)

        return await self._end_lease(
            caller, task_id, credential, LeaseAction.COMPLETE, data={}, update=complete_task, next_request=next_request, expected=expected
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
        Mark a task as failed. It stays failed until its status is set back to pending.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As for `release`.
        """

        def failed(task: Task, now: datetime) -> Task:
            new_result = result if result is not None else task.result
            return replace(task, result=new_result, error=error, attempts=task.attempts + 1, completed_at=now)

        return await self._end_lease(
            caller, task_id, credential, LeaseAction.FAIL, data={"error": error[:200]}, update=failed, expected=expected
        )

    async def expire_leases(self) -> int:
        """Expire overdue leases, so that read-only clients see them as expired. Return the number expired."""
        await self._pulse.require_beat()
        swept = 0
        for _ in range(_MAX_BATCHES):
            expired_count = await self._db.write(lambda tx: self._expire_batch(tx, None, self._clock()))
            swept += expired_count
            if expired_count < _BATCH_SIZE:
                break
        return swept

    def release_session_tasks(
        self, tx: Tx, workspace_id: int, session_id: str, *, actor: EventActor, reason: str, now: datetime
    ) -> list[Task]:
        """Release every task that the session has a lease on, within the transaction *tx*. Return the released tasks."""
        freed, access_filter = list[Task](), PlanAccessFilter(workspace_id=workspace_id)
        for task_id, plan_id in claims.list_by_session(tx, workspace_id, session_id):
            plan, task = plans.find(tx, access_filter, plan_id, lock=True), TASKS.find(tx, workspace_id, id=task_id, lock=True)
            if plan is None or task is None or task.claim is None or task.claim.session_id != session_id:
                continue
            freed.append(self._save(tx, replace(task, status=TaskStatus.PENDING, claim=None), now))
            self._recorder.record_task(tx, freed[-1], "released", actor=actor, at=now, data={"reason": reason, "holder": task.claim.holder})
        return freed

    def _run_session_hook(self, tx: Tx, caller: Caller, session_id: str | None) -> str | None:
        """Record activity in the session and return the id of its plan."""
        return None if session_id is None or self.session_hook is None else self.session_hook(tx, caller, session_id)

    def _run_credential_hook(self, tx: Tx, caller: Caller, credential: LeaseCredential) -> None:
        """Check the session of *credential* and record activity in it, if the session is the proof of the claim."""
        if credential.token is None and not credential.force:
            self._run_session_hook(tx, caller, credential.session_id)

    def _claim_next(
        self, tx: Tx, caller: Caller, plan_ref: str | None, lease_request: LeaseRequest, *, any_plan: bool
    ) -> TaskView | NoTaskAvailable:
        now, access_filter, by = (
            self._clock(),
            PlanAccessFilter.from_caller(caller),
            EventActor.from_caller(caller, lease_request.session_id),
        )
        plan_of_session = self._run_session_hook(tx, caller, lease_request.session_id)
        if plan_ref is None and not any_plan:
            plan_ref = plan_of_session
        claims.lock_workspace(tx, caller.workspace_id)
        plan = None if plan_ref is None else lock_writable_plan(tx, access_filter, plan_ref)
        if plan is not None and plan.status is PlanStatus.DRAFT:
            plan = activate_plan(tx, plan, self._recorder, actor=by, now=now)
        self._expire_batch(tx, caller.workspace_id, now)
        return self._claim_best(tx, access_filter, plan, lease_request, actor=by, now=now)

    def _claim_best(
        self, tx: Tx, access_filter: PlanAccessFilter, plan: Plan | None, lease_request: LeaseRequest, *, actor: EventActor, now: datetime
    ) -> TaskView | NoTaskAvailable:
        plan_id = None if plan is None else plan.id
        # Repeats only on PostgreSQL, when another request claims the found task by id at the same moment.
        while (task := claims.find_best(tx, access_filter, plan_id)) is not None:
            its_plan = plans.find(tx, access_filter, task.plan_id, lock=True)
            current_task = TASKS.find(tx, access_filter.workspace_id, id=task.id, lock=True)
            is_active = its_plan is not None and its_plan.status is PlanStatus.ACTIVE
            if its_plan is not None and is_active and current_task is not None and current_task.status is TaskStatus.PENDING:
                return load_task_view(tx, self._take(tx, its_plan, current_task, lease_request, actor=actor, now=now), now)
        no_task = _explain_no_task(claims.get_open_task_stats(tx, access_filter, plan_id), plan, now)
        draft = claims.find_oldest_draft(tx, access_filter) if plan is None and no_task.reason == "plan_done" else None
        return no_task if draft is None else NoTaskAvailable(reason="plan_draft", retry_after_s=30, plan=draft)

    def _take(self, tx: Tx, plan: Plan, task: Task, lease_request: LeaseRequest, *, actor: EventActor, now: datetime) -> Task:
        phase = phases.find(tx, plan, task.phase_id)
        if phase is not None:
            start_phase(tx, plan, phase, self._recorder, actor=actor, now=now)
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
        claimed_task = replace(
            task,
            status=TaskStatus.IN_PROGRESS,
            claim=claim,
            started_at=task.started_at or now,
            updated_at=now,
            version=task.version + 1,
        )
        self._recorder.record_task(
            tx, claimed_task, "claimed", actor=actor, at=now, data={"expires_at": claim.expires_at.isoformat(), "attempts": task.attempts}
        )
        return claimed_task

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
        await self._pulse.require_beat()
        now, access_filter = self._clock(), PlanAccessFilter.from_caller(caller)

        def write(tx: Tx) -> LeaseEndResult:
            request = None if next_request is None else _with_default_session(tx, caller, task_id, credential, next_request)
            # Lock order: sessions before plans, here and when a session ends.
            self._run_credential_hook(tx, caller, credential)
            if request is not None:
                self._run_session_hook(tx, caller, request.session_id)
                claims.lock_workspace(tx, caller.workspace_id)
            plan, task = lock_writable_task(tx, access_filter, task_id, self._recorder, now)
            require_match("task", task.version, expected)
            new_status, recorded = _resolve_target_status(tx, task, credential, action)
            # A forced change is recorded without a session: the session of the holder did not make it.
            by = EventActor.from_caller(caller, None if task.claim is None or recorded else task.claim.session_id)
            changed_task = self._save(tx, replace(task if update is None else update(task, now), status=new_status, claim=None), now)
            self._recorder.record_task(tx, changed_task, _EVENT_NAMES[action], actor=by, at=now, data={**data, **recorded})
            if action is LeaseAction.COMPLETE:
                for listener in self.completion_listeners:
                    listener(tx, changed_task, by, now)
            if request is None:
                return LeaseEndResult(task=load_task_view(tx, changed_task, now))
            self._expire_batch(tx, caller.workspace_id, now)
            claim_outcome = self._claim_best(
                tx, access_filter, plan, request, actor=EventActor.from_caller(caller, request.session_id), now=now
            )
            view = load_task_view(tx, changed_task, now)
            return (
                LeaseEndResult(task=view, no_task=claim_outcome)
                if isinstance(claim_outcome, NoTaskAvailable)
                else LeaseEndResult(task=view, next_task=claim_outcome)
            )

        return await self._db.write(write)

    def _save(self, tx: Tx, task: Task, now: datetime) -> Task:
        changed_task = replace(task, updated_at=now, version=task.version + 1)
        TASKS.update(tx, changed_task)
        return changed_task

    def _expire_batch(self, tx: Tx, workspace_id: int | None, now: datetime) -> int:
        expired_claims = claims.list_expired(tx, now, workspace_id=workspace_id, limit=_BATCH_SIZE)
        for task_id, plan_id, workspace in expired_claims:
            plan = plans.find(tx, PlanAccessFilter(workspace_id=workspace), plan_id, lock=True)
            task = TASKS.find(tx, workspace, id=task_id, lock=True)
            if plan is not None and task is not None:
                expire_lease(tx, task, self._recorder, now)
        return len(expired_claims)


_EVENT_NAMES = {LeaseAction.RELEASE: "released", LeaseAction.COMPLETE: "completed", LeaseAction.FAIL: "failed"}


def _require_credential(credential: LeaseCredential) -> None:
    if credential.token is None and credential.session_id is None and not credential.force:
        missing = "is required: send the token that the claim returned, or the session_id of the claim, or use force"
        raise ValidationFailed({"claim_token": [missing]})


def _with_default_session(tx: Tx, caller: Caller, task_id: str, credential: LeaseCredential, next_request: LeaseRequest) -> LeaseRequest:
    """Return *next_request* with the session of the claim that *caller* ends by *credential*, unless it names a session itself."""
    if next_request.session_id is not None:
        return next_request
    task = TASKS.find(tx, caller.workspace_id, id=task_id)
    claim = None if task is None else task.claim
    is_own = claim is not None and credential.matches(claim) and claim.key_id == caller.key_id
    return replace(next_request, session_id=claim.session_id) if claim is not None and is_own else next_request


def _explain_lost_lease(tx: Tx, task: Task, credential: LeaseCredential) -> LeaseLost:
    """Return the error that explains why *credential* does not match the claim of the task."""
    if credential.token is None and credential.session_id is not None:
        return LeaseLost.for_other_session(task.name, task.status, credential.session_id)
    other = None if credential.token is None else claims.find_by_token(tx, task.workspace_id, credential.token)
    if other is not None and other[0] != task.id:
        return LeaseLost.for_other_task(task.name, task.status, *other)
    if task.claim is not None and not credential.matches(task.claim):
        return LeaseLost.for_other_claim(task.name, task.status, task.claim.expires_at)
    return LeaseLost(task.name, task.status)


def _resolve_target_status(tx: Tx, task: Task, credential: LeaseCredential, action: LeaseAction) -> tuple[TaskStatus, Mapping[str, object]]:
    """Return the status of the task after *action*, and the event data about the use of force."""
    if credential.matches(task.claim):
        return LEASE_TRANSITIONS[action][task.status], {}
    if not credential.force:
        raise _explain_lost_lease(tx, task, credential)
    new_status = FORCED_LEASE_TRANSITIONS[action].get(task.status)
    if new_status is None:
        raise WrongTransition("task", task.name, task.status, _TARGET_STATUSES[action], allowed=())
    return new_status, {"forced": True, "holder": None if task.claim is None else task.claim.holder}


_TARGET_STATUSES = {
    LeaseAction.RELEASE: TaskStatus.PENDING,
    LeaseAction.COMPLETE: TaskStatus.COMPLETED,
    LeaseAction.FAIL: TaskStatus.FAILED,
}


def _list_claimable_statuses(task: Task) -> Sequence[str]:
    """Return the statuses that the task must pass through before it can be claimed."""
    return () if task.status is TaskStatus.IN_PROGRESS else (TaskStatus.PENDING,)


def _explain_no_task(stats: claims.OpenTaskStats, plan: Plan | None, now: datetime) -> NoTaskAvailable:
    """Return the reason why no task can be claimed. If tasks are claimed, retry when the first lease ends, after 30 s at the latest."""
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
