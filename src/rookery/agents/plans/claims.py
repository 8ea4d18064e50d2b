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
from rookery.agents.models.plans import By, Claim, Plan, PlanStatus, Task, TaskStatus, Within
from rookery.agents.models.views import TaskView
from rookery.agents.plans.bell import Bell
from rookery.agents.plans.holding import activate, begin, must_not_wait, settled, the_task, writable, writable_task
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.plans.reading import task_view
from rookery.agents.plans.transitions import FORCED, VERBS, Verb
from rookery.agents.store import claims, phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import Ids, random_text
from rookery.kernel.preconditions import Expected, require_match

TTL_S = 900
"""How long a lease lasts unless its holder asks for another time (D-61)."""

_LOOK_S = 1.0
"""How often somebody who waits looks for what another process may have done; what this one does rings the bell."""

_AT_ONCE = 100
_MOST_ROUNDS = 1_000
_TOKEN = 24

Reason = Literal["plan_done", "all_claimed", "blocked", "plan_paused", "plan_draft"]
EnterSession = Callable[[Tx, Caller, str], str | None]
"""
Record that the session of an id is being worked in, and return the id of its plan, if it has one.

It raises if there is no such open session that the caller may work in.
"""

Listener = Callable[[Tx, Task, By, datetime], None]
"""Hears, in the same transaction, that a task was completed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How somebody wants to hold a task: in which session, for how many seconds."""

    session_id: str | None = None
    ttl_s: int = TTL_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """
    There is no task to be had, why, and in how many seconds to ask again.

    Attributes:
        plan: The slug of the plan that was looked in, or for `plan_draft` of the oldest draft; None: all active plans were.
    """

    reason: Reason
    retry_after_s: int
    plan: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A task whose lease ended, and the one that its holder has next, if they asked for one; *left*: why there is none."""

    task: TaskView
    next: TaskView | None = None
    left: Nothing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """
    What entitles to renew or end a lease: its token, the session that it was taken in, or *force*, which is recorded.

    Attributes:
        session_id: Counts only without a token and without force, for a caller who may work in that session while it is open.
    """

    token: str | None = None
    session_id: str | None = None
    force: bool = False

    def holds(self, claim: Claim | None) -> bool:
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

    def __init__(self, *, db: Database, journal: PlanJournal, bell: Bell, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._journal = journal
        self._bell = bell
        self._clock = clock
        self._ids = ids
        self.enter_session: EnterSession | None = None
        self.listeners: list[Listener] = []

    async def claim(self, caller: Caller, task_id: str, wish: Wish, *, expected: Expected = None) -> TaskView:
        """
        Take a task, and return it with its token.

        Raises:
            NotFound, PlanArchived: There is none, or it is read-only.
            TaskClaimed: Somebody else has it; WrongTransition: it is not to be done, or not any more.
            PlanNotActive, PhaseClosed, TaskBlocked: It cannot begin now.
            PreconditionFailed: *expected* names another version of it.
        """
        now, by = self._clock(), By.of(caller, wish.session_id)

        def write(tx: Tx) -> TaskView:
            self._enter(tx, caller, wish.session_id)
            plan, task = writable_task(tx, Within.of(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            if task.claim is not None:
                raise TaskClaimed(task.name, task.claim.holder(), task.claim.expires_at)
            if task.status not in VERBS[Verb.CLAIM]:
                raise WrongTransition("task", task.name, task.status, TaskStatus.IN_PROGRESS, allowed=_claimable(task))
            must_not_wait(tx, task)
            return task_view(tx, self._take(tx, plan, task, wish, by=by, now=now), now)

        return await self._db.write(write)

    async def claim_next(
        self, caller: Caller, plan_ref: str | None, wish: Wish, *, any_plan: bool = False, wait_s: float = 0
    ) -> TaskView | Nothing:
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
            ring = self._bell.listen(caller.workspace_id)
            try:
                found = await self._db.write(lambda tx: self._next(tx, caller, plan_ref, wish, any_plan=any_plan))
                left_s = deadline - asyncio.get_running_loop().time()
                is_final = isinstance(found, Nothing) and found.reason == "plan_done" and found.plan is not None
                if isinstance(found, TaskView) or is_final or left_s <= 0 or self._bell.is_closed:
                    return found
                # Some earlier, some later, so that many who wait do not look all at once.
                await asyncio.wait({ring}, timeout=min(left_s, _LOOK_S * random.uniform(0.75, 1.25)))  # noqa: S311 - guards nothing
            finally:
                ring.cancel()

    async def heartbeat(self, caller: Caller, task_id: str, proof: Proof, *, ttl_s: int = TTL_S, expected: Expected = None) -> TaskView:
        """
        Let a lease last *ttl_s* seconds from now.

        Raises:
            NotFound, PlanArchived: There is no such task, or it is read-only.
            LeaseLost: The lease has ended, or is not that of *proof*.
        """
        _require_proof(proof)
        now = self._clock()

        def write(tx: Tx) -> TaskView:
            self._enter_by(tx, caller, proof)
            plan, task = the_task(tx, Within.of(caller), task_id)
            if plan.status is PlanStatus.ARCHIVED:
                plan, task = writable_task(tx, Within.of(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            until = now + timedelta(seconds=ttl_s)
            held = task.claim if proof.holds(task.claim) else None
            if held is None or not claims.renew(tx, caller.workspace_id, task_id, held.token, now=now, until=until):
                raise _lease_lost(tx, task.at(now), proof)
            return task_view(tx, replace(task, claim=replace(held, expires_at=until)), now)

        return await self._db.write(write)

    async def release(self, caller: Caller, task_id: str, proof: Proof, *, reason: str | None = None, expected: Expected = None) -> Ended:
        """
        Give a task back, so that somebody else may take it.

        Raises:
            NotFound, PlanArchived: There is no such task, or it is read-only.
            LeaseLost: The token is of no lease any more. WrongTransition: By force, of a task that is not in progress.
        """
        data: dict[str, object] = {} if reason is None else {"reason": reason}
        return await self._end(caller, task_id, proof, Verb.RELEASE, data=data, expected=expected)

    async def complete(
        self,
        caller: Caller,
        task_id: str,
        proof: Proof,
        *,
        result: object = None,
        notes: str | None = None,
        then: Wish | None = None,
        expected: Expected = None,
    ) -> Ended:
        """
        Say that a task is done, with what came of it.

        Args:
            then: Take the best task of the same plan that is ready now, in the same transaction; in the session of the
                task's own claim, unless it names another one.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As `release`.
        """

        def done(task: Task, now: datetime) -> Task:
            kept = notes if notes is not None else task.notes
            return replace(task, result=result if result is not None else task.result, notes=kept, error=None, completed_at=now)

        return await self._end(caller, task_id, proof, Verb.COMPLETE, data={}, ended=done, then=then, expected=expected)

    async def fail(
        self, caller: Caller, task_id: str, proof: Proof, *, error: str, result: object = None, expected: Expected = None
    ) -> Ended:
        """
        Say that a task cannot be done; it stays failed until somebody sets it back to pending.

        Raises:
            NotFound, PlanArchived, LeaseLost, WrongTransition: As `release`.
        """

        def failed(task: Task, now: datetime) -> Task:
            kept = result if result is not None else task.result
            return replace(task, result=kept, error=error, attempts=task.attempts + 1, completed_at=now)

        return await self._end(caller, task_id, proof, Verb.FAIL, data={"error": error[:200]}, ended=failed, expected=expected)

    async def sweep(self) -> int:
        """Note all leases that have run out, so that who only looks sees it; return how many."""
        swept = 0
        for _ in range(_MOST_ROUNDS):
            found = await self._db.write(lambda tx: self._settle(tx, None, self._clock()))
            swept += found
            if found < _AT_ONCE:
                break
        return swept

    def free(self, tx: Tx, workspace_id: int, session_id: str, *, by: By, reason: str, now: datetime) -> list[Task]:
        """Give back, as a part of the transaction *tx*, every task that the session has a lease of, and return them (D-62)."""
        freed, within = list[Task](), Within(workspace_id=workspace_id)
        for task_id, plan_id in claims.of_session(tx, workspace_id, session_id):
            plan, task = plans.find(tx, within, plan_id, lock=True), tasks.find(tx, workspace_id, task_id, lock=True)
            if plan is None or task is None or task.claim is None or task.claim.session_id != session_id:
                continue
            freed.append(self._change(tx, replace(task, status=TaskStatus.PENDING, claim=None), now))
            self._journal.task(tx, freed[-1], "released", by=by, at=now, data={"reason": reason, "holder": task.claim.holder()})
        return freed

    def _enter(self, tx: Tx, caller: Caller, session_id: str | None) -> str | None:
        """Record that the session is being worked in, and return the id of its plan."""
        return None if session_id is None or self.enter_session is None else self.enter_session(tx, caller, session_id)

    def _enter_by(self, tx: Tx, caller: Caller, proof: Proof) -> None:
        """Enter the session of *proof* where it is what proves a claim."""
        if proof.token is None and not proof.force:
            self._enter(tx, caller, proof.session_id)

    def _next(self, tx: Tx, caller: Caller, plan_ref: str | None, wish: Wish, *, any_plan: bool) -> TaskView | Nothing:
        now, within, by = self._clock(), Within.of(caller), By.of(caller, wish.session_id)
        plan_of_session = self._enter(tx, caller, wish.session_id)
        if plan_ref is None and not any_plan:
            plan_ref = plan_of_session
        claims.alone(tx, caller.workspace_id)
        plan = None if plan_ref is None else writable(tx, within, plan_ref)
        if plan is not None and plan.status is PlanStatus.DRAFT:
            plan = activate(tx, plan, self._journal, by=by, now=now)
        self._settle(tx, caller.workspace_id, now)
        return self._best(tx, within, plan, wish, by=by, now=now)

    def _best(self, tx: Tx, within: Within, plan: Plan | None, wish: Wish, *, by: By, now: datetime) -> TaskView | Nothing:
        plan_id = None if plan is None else plan.id
        # More than once only where somebody claims by id at the same moment, on PostgreSQL.
        while (task := claims.best(tx, within, plan_id)) is not None:
            its_plan = plans.find(tx, within, task.plan_id, lock=True)
            now_there = tasks.find(tx, within.workspace_id, task.id, lock=True)
            is_still = its_plan is not None and its_plan.status is PlanStatus.ACTIVE
            if its_plan is not None and is_still and now_there is not None and now_there.status is TaskStatus.PENDING:
                return task_view(tx, self._take(tx, its_plan, now_there, wish, by=by, now=now), now)
        found = _nothing(claims.left(tx, within, plan_id), plan, now)
        draft = claims.oldest_draft(tx, within) if plan is None and found.reason == "plan_done" else None
        return found if draft is None else Nothing(reason="plan_draft", retry_after_s=30, plan=draft)

    def _take(self, tx: Tx, plan: Plan, task: Task, wish: Wish, *, by: By, now: datetime) -> Task:
        phase = phases.find(tx, plan.id, task.phase_id)
        if phase is not None:
            begin(tx, plan, phase, self._journal, by=by, now=now)
        claim = Claim(
            token=random_text(_TOKEN),
            key_id=by.key_id,
            agent_id=by.agent_id,
            session_id=wish.session_id,
            claimed_at=now,
            expires_at=now + timedelta(seconds=wish.ttl_s),
        )
        if not claims.take(tx, task.id, claim):
            raise TaskClaimed(task.name, {}, now)
        taken = replace(
            task,
            status=TaskStatus.IN_PROGRESS,
            claim=claim,
            started_at=task.started_at or now,
            updated_at=now,
            version=task.version + 1,
        )
        self._journal.task(
            tx, taken, "claimed", by=by, at=now, data={"expires_at": claim.expires_at.isoformat(), "attempts": task.attempts}
        )
        return taken

    async def _end(
        self,
        caller: Caller,
        task_id: str,
        proof: Proof,
        verb: Verb,
        *,
        data: Mapping[str, object],
        ended: Callable[[Task, datetime], Task] | None = None,
        then: Wish | None = None,
        expected: Expected = None,
    ) -> Ended:
        _require_proof(proof)
        now, within = self._clock(), Within.of(caller)

        def write(tx: Tx) -> Ended:
            next_wish = None if then is None else _in_same_session(tx, caller, task_id, proof, then)
            # Sessions are locked before plans, here and where they end.
            self._enter_by(tx, caller, proof)
            if next_wish is not None:
                self._enter(tx, caller, next_wish.session_id)
                claims.alone(tx, caller.workspace_id)
            plan, task = writable_task(tx, within, task_id, self._journal, now)
            require_match("task", task.version, expected)
            wanted, recorded = _wanted(tx, task, proof, verb)
            # Who does it by force does it in no session: that of the holder did not do it.
            by = By.of(caller, None if task.claim is None or recorded else task.claim.session_id)
            changed = self._change(tx, replace(task if ended is None else ended(task, now), status=wanted, claim=None), now)
            self._journal.task(tx, changed, _SAID[verb], by=by, at=now, data={**data, **recorded})
            if verb is Verb.COMPLETE:
                for listener in self.listeners:
                    listener(tx, changed, by, now)
            if next_wish is None:
                return Ended(task=task_view(tx, changed, now))
            self._settle(tx, caller.workspace_id, now)
            found = self._best(tx, within, plan, next_wish, by=By.of(caller, next_wish.session_id), now=now)
            view = task_view(tx, changed, now)
            return Ended(task=view, left=found) if isinstance(found, Nothing) else Ended(task=view, next=found)

        return await self._db.write(write)

    def _change(self, tx: Tx, task: Task, now: datetime) -> Task:
        changed = replace(task, updated_at=now, version=task.version + 1)
        tasks.change(tx, changed)
        return changed

    def _settle(self, tx: Tx, workspace_id: int | None, now: datetime) -> int:
        over = claims.over(tx, now, workspace_id=workspace_id, most=_AT_ONCE)
        for task_id, plan_id, workspace in over:
            plan = plans.find(tx, Within(workspace_id=workspace), plan_id, lock=True)
            task = tasks.find(tx, workspace, task_id, lock=True)
            if plan is not None and task is not None:
                settled(tx, task, self._journal, now)
        return len(over)


_SAID = {Verb.RELEASE: "released", Verb.COMPLETE: "completed", Verb.FAIL: "failed"}


def _require_proof(proof: Proof) -> None:
    if proof.token is None and proof.session_id is None and not proof.force:
        missing = "is required: it came with the claim; or send the session_id of the session that the task was claimed in, or use force"
        raise ValidationFailed({"claim_token": [missing]})


def _in_same_session(tx: Tx, caller: Caller, task_id: str, proof: Proof, then: Wish) -> Wish:
    """Return *then* in the session of the claim that *caller* ends by *proof*, unless it names a session."""
    if then.session_id is not None:
        return then
    task = tasks.find(tx, caller.workspace_id, task_id)
    claim = None if task is None else task.claim
    is_own = claim is not None and proof.holds(claim) and claim.key_id == caller.key_id
    return replace(then, session_id=claim.session_id) if claim is not None and is_own else then


def _lease_lost(tx: Tx, task: Task, proof: Proof) -> LeaseLost:
    """Return why *proof* is not that of the task's claim."""
    if proof.token is None and proof.session_id is not None:
        return LeaseLost.not_of_session(task.name, task.status, proof.session_id)
    other = None if proof.token is None else claims.of_token(tx, task.workspace_id, proof.token)
    if other is not None and other[0] != task.id:
        return LeaseLost.of_other_task(task.name, task.status, *other)
    if task.claim is not None and not proof.holds(task.claim):
        return LeaseLost.of_other_claim(task.name, task.status, task.claim.expires_at)
    return LeaseLost(task.name, task.status)


def _wanted(tx: Tx, task: Task, proof: Proof, verb: Verb) -> tuple[TaskStatus, Mapping[str, object]]:
    """Return the status that *verb* brings the task into, and what is recorded of force."""
    if proof.holds(task.claim):
        return VERBS[verb][task.status], {}
    if not proof.force:
        raise _lease_lost(tx, task, proof)
    wanted = FORCED[verb].get(task.status)
    if wanted is None:
        raise WrongTransition("task", task.name, task.status, _TO[verb], allowed=())
    return wanted, {"forced": True, "holder": None if task.claim is None else task.claim.holder()}


_TO = {Verb.RELEASE: TaskStatus.PENDING, Verb.COMPLETE: TaskStatus.COMPLETED, Verb.FAIL: TaskStatus.FAILED}


def _claimable(task: Task) -> Sequence[str]:
    """Return what a task that cannot be claimed can become, so that it can be."""
    return () if task.status is TaskStatus.IN_PROGRESS else (TaskStatus.PENDING,)


def _nothing(left: claims.Left, plan: Plan | None, now: datetime) -> Nothing:
    """Return why there is no task to be had; when somebody works, the first end of a lease is when to ask again, at the latest."""
    slug = None if plan is None else plan.slug
    if plan is None and left.is_paused and not left.open:
        return Nothing(reason="plan_paused", retry_after_s=30)
    if plan is not None and plan.status is PlanStatus.PAUSED:
        return Nothing(reason="plan_paused", retry_after_s=30, plan=slug)
    if not left.open:
        return Nothing(reason="plan_done", retry_after_s=60, plan=slug)
    if not left.claimed:
        return Nothing(reason="blocked", retry_after_s=30, plan=slug)
    ends_in_s = 30 if left.next_end is None else int((left.next_end - now).total_seconds()) + 1
    return Nothing(reason="all_claimed", retry_after_s=max(1, min(30, ends_in_s)), plan=slug)
