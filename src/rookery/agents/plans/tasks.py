"""Tasks of a plan: added, listed, changed, moved, deleted (D-60, D-65). Who works on them is `claims`' business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PhaseClosed, TaskClaimed, TooMany
from rookery.agents.models.drafts import TaskChange, TaskDraft, TaskQuery
from rookery.agents.models.plans import MAX_TASKS, By, PhaseStatus, Plan, Task, TaskStatus, Within
from rookery.agents.models.views import TaskView
from rookery.agents.plans.differing import differing
from rookery.agents.plans.holding import (
    begin,
    must_be_open,
    must_not_wait,
    the_phase,
    the_plan,
    the_task,
    writable,
    writable_task,
)
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.plans.making import resolved, task_of
from rookery.agents.plans.naming import Names
from rookery.agents.plans.phases import must_still_end
from rookery.agents.plans.reading import task_view, task_views
from rookery.agents.plans.transitions import TASK, must_become
from rookery.agents.store import needs, phases, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import Ids
from rookery.kernel.preconditions import Expected, require_match

_NAMES = {
    TaskStatus.PENDING: "reset",
    TaskStatus.IN_PROGRESS: "started",
    TaskStatus.COMPLETED: "completed",
    TaskStatus.SKIPPED: "skipped",
    TaskStatus.FAILED: "failed",
    TaskStatus.ON_HOLD: "held",
}
_FIELDS = ("name", "description", "notes", "priority", "position", "acceptance_criteria", "metadata", "result", "hold_reason", "error")


class Tasks:
    """What may be done with a task by who plans."""

    def __init__(self, *, db: Database, journal: PlanJournal, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._journal = journal
        self._clock = clock
        self._ids = ids

    async def page(self, caller: Caller, query: TaskQuery, *, limit: int, offset: int) -> tuple[list[TaskView], int]:
        """
        Return a stretch of the tasks asked for, and how many there are in all.

        Raises:
            NotFound: There is no such plan, or no such phase in it.
        """
        now, within = self._clock(), Within.of(caller)

        def read(tx: Tx) -> tuple[list[TaskView], int]:
            plan = None if query.plan is None else the_plan(tx, within, query.plan)
            phase = None if plan is None or query.phase is None else the_phase(tx, plan, query.phase)
            found, total = tasks.page(
                tx,
                within,
                query.state,
                plan_id=None if plan is None else plan.id,
                phase_id=None if phase is None else phase.id,
                session_id=query.session_id,
                at=now,
                limit=limit,
                offset=offset,
            )
            return task_views(tx, found, now), total

        return await self._db.read(read)

    async def get(self, caller: Caller, task_id: str) -> TaskView:
        """
        Return a task.

        Raises:
            NotFound: There is none.
        """
        now = self._clock()
        return await self._db.read(lambda tx: task_view(tx, the_task(tx, Within.of(caller), task_id)[1], now))

    async def add(self, caller: Caller, plan_ref: str, phase_ref: str, draft: TaskDraft, *, expected: Expected = None) -> TaskView:
        """
        Add a task to a phase: at its position, else at the end.

        Raises:
            NotFound, PlanArchived, PlanNotActive: There is no such plan or phase, or the plan is archived or completed.
            PhaseClosed: The phase is completed or skipped.
            PreconditionFailed: *expected* names another version of the phase.
            TooMany: The plan has as many tasks as it may.
            ValidationFailed: A dependency names nothing, or would wait for itself; or there is no such position.
        """
        now = self._clock()

        def write(tx: Tx) -> TaskView:
            plan = writable(tx, Within.of(caller), plan_ref)
            must_be_open(plan)
            phase = the_phase(tx, plan, phase_ref)
            require_match("phase", phase.version, expected)
            if phase.status in {PhaseStatus.COMPLETED, PhaseStatus.SKIPPED}:
                raise PhaseClosed(phase.name, phase.status)
            if tasks.count(tx, plan.id) >= MAX_TASKS:
                raise TooMany("tasks in this plan", MAX_TASKS)
            last = tasks.last(tx, phase.id)
            position = _place(draft.position, last + 1)
            task = task_of(phase, draft, position, ids=self._ids, now=now)
            depends = list[str]()
            if draft.depends_on:
                depends = resolved(draft.depends_on, *_names(tx, plan, phase.id), field="depends_on")
                must_still_end(tx, plan, {task.id: depends}, listed=[task])
            tasks.shift(tx, phase.id, position, last, by=1)
            tasks.add(tx, [task])
            needs.add(tx, plan.workspace_id, plan.id, [(task.id, other) for other in depends])
            data: dict[str, object] = {"name": task.name, "position": position}
            self._journal.task(tx, task, "created", by=By.of(caller), at=now, data=data)
            return task_view(tx, task, now)

        return await self._db.write(write)

    async def change(self, caller: Caller, task_id: str, change: TaskChange, *, expected: Expected = None) -> TaskView:
        """
        Change what *change* gives; what changes nothing writes nothing. A status that is set here arms no lease (D-61).

        Raises:
            NotFound, PlanArchived, PreconditionFailed: It is not there, read-only, or another than the caller knows.
            ValidationFailed: As `add`.
            WrongTransition, PlanNotActive, PhaseClosed, TaskBlocked: The status cannot be that one now.
            TaskClaimed: Its status is the holder's of its lease to change.
        """
        now, by = self._clock(), By.of(caller)

        def write(tx: Tx) -> TaskView:
            plan, task = writable_task(tx, Within.of(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            changed = _with_reason(_changed(task, change), change)
            if "position" in change.given:
                changed = _moved(tx, changed, change.position)
            fields = dict(differing(task, changed, *_FIELDS))
            if "depends_on" in change.given and self._redirect(tx, plan, changed, change.depends_on):
                fields["depends_on"] = True
            if "status" in change.given and change.status is not task.status:
                changed, forced = self._turned(tx, plan, changed, change, by=by, now=now)
                changed = replace(changed, version=task.version + 1, updated_at=now)
                tasks.change(tx, changed)
                data = {**forced, **({"reason": change.reason} if change.reason else {}), **({"changed": fields} if fields else {})}
                name = "reopened" if task.status is TaskStatus.COMPLETED else _NAMES[change.status]
                self._journal.task(tx, changed, name, by=by, at=now, data=data)
            elif fields:
                changed = replace(changed, version=task.version + 1, updated_at=now)
                tasks.change(tx, changed)
                self._journal.task(tx, changed, "updated", by=by, at=now, data={"changed": fields})
            return task_view(tx, changed, now)

        return await self._db.write(write)

    async def remove(self, caller: Caller, task_id: str, *, force: bool = False, expected: Expected = None) -> None:
        """
        Delete a task; those behind it move up, and nothing depends on it any more.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            TaskClaimed: Somebody works on it; *force* deletes it all the same.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            _, task = writable_task(tx, Within.of(caller), task_id, self._journal, now)
            require_match("task", task.version, expected)
            if task.claim is not None and not force:
                raise TaskClaimed(task.name, task.claim.holder(), task.claim.expires_at)
            needs.forget(tx, [task.id])
            tasks.remove(tx, task)
            tasks.shift(tx, task.phase_id, task.position + 1, MAX_TASKS + 1, by=-1)
            data: dict[str, object] = {"name": task.name, "forced": task.claim is not None}
            self._journal.task(tx, task, "deleted", by=By.of(caller), at=now, data=data)

        await self._db.write(write)

    def _turned(self, tx: Tx, plan: Plan, task: Task, change: TaskChange, *, by: By, now: datetime) -> tuple[Task, Mapping[str, object]]:
        """Return *task* in the status asked for, and what is to be recorded of force."""
        wanted, forced = change.status, dict[str, object]()
        must_become("task", task.name, task.status, wanted, TASK[task.status])
        if task.claim is not None and change.claim_token != task.claim.token:
            if not change.force:
                raise TaskClaimed(task.name, task.claim.holder(), task.claim.expires_at)
            forced = {"forced": True, "holder": task.claim.holder()}
        if task.status is TaskStatus.PENDING and wanted in {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED}:
            if change.force:
                forced["forced"] = True
            else:
                must_not_wait(tx, task)
            phase = phases.find(tx, plan.id, task.phase_id)
            if phase is not None:
                begin(tx, plan, phase, self._journal, by=by, now=now)
        is_closed = wanted in {TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.FAILED}
        turned = replace(
            task,
            status=wanted,
            claim=None,
            hold_reason=change.reason if wanted is TaskStatus.ON_HOLD else None,
            error=change.reason if wanted is TaskStatus.FAILED else None,
            attempts=task.attempts + 1 if wanted is TaskStatus.FAILED else task.attempts,
            started_at=task.started_at or (now if wanted is TaskStatus.IN_PROGRESS else None),
            completed_at=now if is_closed else None,
        )
        return turned, forced

    def _redirect(self, tx: Tx, plan: Plan, task: Task, refs: tuple[str | int, ...]) -> bool:
        wanted = resolved(refs, *_names(tx, plan, task.phase_id), field="depends_on")
        if set(wanted) == set(needs.of_items(tx, [task.id]).get(task.id, [])):
            return False
        must_still_end(tx, plan, {task.id: wanted})
        needs.replace(tx, plan.workspace_id, plan.id, task.id, wanted)
        return True


def _changed(task: Task, change: TaskChange) -> Task:
    given = change.given
    return replace(
        task,
        name=change.name if "name" in given else task.name,
        description=change.description if "description" in given else task.description,
        notes=change.notes if "notes" in given else task.notes,
        priority=change.priority if "priority" in given else task.priority,
        acceptance_criteria=change.acceptance_criteria if "acceptance_criteria" in given else task.acceptance_criteria,
        metadata=change.metadata if "metadata" in given else task.metadata,
        result=change.result if "result" in given else task.result,
    )


def _with_reason(task: Task, change: TaskChange) -> Task:
    """Return *task* with the reason of *change*, if it is in the status already that the reason is of."""
    if change.reason is None or ("status" in change.given and change.status is not task.status):
        return task
    match task.status:
        case TaskStatus.ON_HOLD:
            return replace(task, hold_reason=change.reason)
        case TaskStatus.FAILED:
            return replace(task, error=change.reason)
        case _:
            return task


def _names(tx: Tx, plan: Plan, phase_id: str) -> Sequence[Names]:
    """Return where the dependencies of a task of the phase are looked for: in its phase, then in the whole plan."""
    here, everywhere = Names(), Names()
    for id, of, name, position in tasks.places(tx, plan.id):
        if of == phase_id:
            here.add(id, position, [name])
        everywhere.add(id, -1, [name])
    return here, everywhere


def _moved(tx: Tx, task: Task, wanted: int) -> Task:
    position = _place(wanted, tasks.last(tx, task.phase_id))
    if position < task.position:
        tasks.shift(tx, task.phase_id, position, task.position - 1, by=1)
    elif position > task.position:
        tasks.shift(tx, task.phase_id, task.position + 1, position, by=-1)
    return replace(task, position=position)


def _place(wanted: int | None, last: int) -> int:
    if wanted is None:
        return last
    if wanted > last:
        raise ValidationFailed({"position": [f"must be at most {last}"]})
    return wanted
