"""Tasks of a plan: create, read, update, move and delete them. The module `claims` handles leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PhaseClosed, TaskClaimed, TooManyItems
from rookery.agents.models.drafts import TaskDraft, TaskFilter, TaskPatch
from rookery.agents.models.plans import MAX_TASKS_PER_PLAN, EventActor, PhaseStatus, Plan, PlanAccessFilter, Task, TaskSettings, TaskStatus
from rookery.agents.models.views import TaskView
from rookery.agents.plans.phases import require_still_acyclic
from rookery.agents.plans.plan_builder import RefIndex, build_task, resolve_refs
from rookery.agents.plans.plan_events import PlanEventRecorder, diff_fields
from rookery.agents.plans.transitions import (
    TASK_TRANSITIONS,
    get_phase,
    get_plan,
    get_task,
    lock_writable_plan,
    lock_writable_task,
    require_open_plan,
    require_transition,
    require_unblocked,
    start_phase,
)
from rookery.agents.plans.views import load_task_view, load_task_views
from rookery.agents.store import dependencies, phases, tasks
from rookery.agents.store.tables import TASKS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.unset import UNSET, value_or

_EVENT_NAMES = {
    TaskStatus.PENDING: "reset",
    TaskStatus.IN_PROGRESS: "started",
    TaskStatus.COMPLETED: "completed",
    TaskStatus.SKIPPED: "skipped",
    TaskStatus.FAILED: "failed",
    TaskStatus.ON_HOLD: "held",
}
_PLAIN_FIELDS = (*(field.name for field in fields(TaskSettings)), "result")
"""Fields whose new value is stored without any further effect."""

_DIFF_FIELDS = (*_PLAIN_FIELDS, "position", "hold_reason", "error")


class Tasks:
    """Operations of a planner on tasks."""

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._recorder = recorder
        self._clock = clock
        self._ids = ids

    async def list_page(self, caller: Caller, query: TaskFilter, *, page: PageSlice) -> ListPage[TaskView]:
        """
        Return a page of the tasks that match *query*, and the total count.

        Raises:
            NotFound: The plan or the phase does not exist.
        """
        now, access_filter = self._clock(), PlanAccessFilter.from_caller(caller)

        def read(tx: Tx) -> ListPage[TaskView]:
            plan = None if query.plan is None else get_plan(tx, access_filter, query.plan)
            phase = None if plan is None or query.phase is None else get_phase(tx, plan, query.phase)
            task_page = tasks.list_page(
                tx,
                access_filter,
                query.state,
                plan_id=None if plan is None else plan.id,
                phase_id=None if phase is None else phase.id,
                session_id=query.session_id,
                at=now,
                page=page,
            )
            return task_page.with_items(load_task_views(tx, task_page.items, now))

        return await self._db.read(read)

    async def get(self, caller: Caller, task_id: str) -> TaskView:
        """
        Return a task.

        Raises:
            NotFound: The task does not exist.
        """
        now = self._clock()
        return await self._db.read(lambda tx: load_task_view(tx, get_task(tx, PlanAccessFilter.from_caller(caller), task_id)[1], now))

    async def add(self, caller: Caller, plan_ref: str, phase_ref: str, draft: TaskDraft, *, expected: ExpectedETags = None) -> TaskView:
        """
        Add a task to a phase, at its position or at the end.

        Raises:
            NotFound, PlanArchived, PlanNotActive: The plan or phase does not exist, or the plan is archived or completed.
            PhaseClosed: The phase is completed or skipped.
            PreconditionFailed: *expected* does not match the version of the phase.
            TooManyItems: The plan has `MAX_TASKS_PER_PLAN` tasks.
            ValidationFailed: A dependency is unknown, ambiguous or part of a cycle, or the position is too high.
        """
        now = self._clock()

        def write(tx: Tx) -> TaskView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            require_open_plan(plan)
            phase = get_phase(tx, plan, phase_ref)
            require_match("phase", phase.version, expected)
            if phase.status in {PhaseStatus.COMPLETED, PhaseStatus.SKIPPED}:
                raise PhaseClosed(phase.name, phase.status)
            if tasks.count_of_plan(tx, plan.id) >= MAX_TASKS_PER_PLAN:
                raise TooManyItems("tasks in this plan", MAX_TASKS_PER_PLAN)
            last = tasks.get_last_position(tx, phase.id)
            position = _resolve_position(draft.position, last + 1)
            task = build_task(phase, draft, position, ids=self._ids, now=now)
            depends = list[str]()
            if draft.depends_on:
                depends = resolve_refs(draft.depends_on, *_build_ref_indexes(tx, plan, phase.id), field="depends_on")
                require_still_acyclic(tx, plan, {task.id: depends}, new_tasks=[task])
            tasks.shift(tx, phase.id, position, last, offset=1)
            TASKS.insert(tx, task)
            dependencies.add(tx, plan.workspace_id, plan.id, [(task.id, other) for other in depends])
            data: dict[str, object] = {"name": task.name, "position": position}
            self._recorder.record_task(tx, task, "created", actor=EventActor.from_caller(caller), at=now, data=data)
            return load_task_view(tx, task, now)

        return await self._db.write(write)

    async def change(self, caller: Caller, task_id: str, change: TaskPatch, *, expected: ExpectedETags = None) -> TaskView:
        """
        Update the fields of a task that *change* sets. Values that are already stored write nothing.

        A task set to in_progress here gets no lease.

        Raises:
            NotFound: The task does not exist.
            PlanArchived: The plan is read-only.
            PreconditionFailed: *expected* does not match the version of the task.
            ValidationFailed: As for `add`.
            WrongTransition, PlanNotActive, PhaseClosed, TaskBlocked: The task cannot get the status now.
            TaskClaimed: The status of a claimed task can only be changed with its token or by force.
        """
        now, by, reason = self._clock(), EventActor.from_caller(caller), value_or(change.reason, None)

        def write(tx: Tx) -> TaskView:
            plan, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._recorder, now)
            require_match("task", task.version, expected)
            changed_task = _apply_reason(_apply_change(task, change), change)
            if change.position is not UNSET:
                changed_task = _move(tx, changed_task, change.position)
            changes = dict(diff_fields(task, changed_task, *_DIFF_FIELDS))
            depends_on = change.get("depends_on")
            if depends_on is not UNSET and self._replace_dependencies(tx, plan, changed_task, depends_on):
                changes["depends_on"] = True
            if change.status is not UNSET and change.status is not task.status:
                changed_task, forced_data = self._change_status(tx, plan, changed_task, change.status, change, actor=by, now=now)
                changed_task = replace(changed_task, version=task.version + 1, updated_at=now)
                TASKS.update(tx, changed_task)
                data = {**forced_data, **({"reason": reason} if reason else {}), **({"changed": changes} if changes else {})}
                name = "reopened" if task.status is TaskStatus.COMPLETED else _EVENT_NAMES[change.status]
                self._recorder.record_task(tx, changed_task, name, actor=by, at=now, data=data)
            elif changes:
                changed_task = replace(changed_task, version=task.version + 1, updated_at=now)
                TASKS.update(tx, changed_task)
                self._recorder.record_task(tx, changed_task, "updated", actor=by, at=now, data={"changed": changes})
            return load_task_view(tx, changed_task, now)

        return await self._db.write(write)

    async def remove(self, caller: Caller, task_id: str, *, force: bool = False, expected: ExpectedETags = None) -> None:
        """
        Delete a task and all dependencies on it. Later tasks of the phase move up by one position.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As for `change`.
            TaskClaimed: The task is claimed and *force* is not set.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            _, task = lock_writable_task(tx, PlanAccessFilter.from_caller(caller), task_id, self._recorder, now)
            require_match("task", task.version, expected)
            if task.claim is not None and not force:
                raise TaskClaimed(task.name, task.claim.holder, task.claim.expires_at)
            dependencies.remove_items(tx, [task.id])
            TASKS.delete(tx, task.workspace_id, id=task.id)
            tasks.shift(tx, task.phase_id, task.position + 1, MAX_TASKS_PER_PLAN + 1, offset=-1)
            data: dict[str, object] = {"name": task.name, "forced": task.claim is not None}
            self._recorder.record_task(tx, task, "deleted", actor=EventActor.from_caller(caller), at=now, data=data)

        await self._db.write(write)

    def _change_status(
        self, tx: Tx, plan: Plan, task: Task, new_status: TaskStatus, change: TaskPatch, *, actor: EventActor, now: datetime
    ) -> tuple[Task, Mapping[str, object]]:
        """Return *task* with the new status, and the event data about the use of force."""
        forced_data = dict[str, object]()
        is_forced, reason = value_or(change.force, False), value_or(change.reason, None)
        require_transition("task", task.name, task.status, new_status, TASK_TRANSITIONS[task.status])
        if task.claim is not None and change.claim_token != task.claim.token:
            if not is_forced:
                raise TaskClaimed(task.name, task.claim.holder, task.claim.expires_at)
            forced_data = {"forced": True, "holder": task.claim.holder}
        if task.status is TaskStatus.PENDING and new_status in {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED}:
            if is_forced:
                forced_data["forced"] = True
            else:
                require_unblocked(tx, task)
            phase = phases.find(tx, plan, task.phase_id)
            if phase is not None:
                start_phase(tx, plan, phase, self._recorder, actor=actor, now=now)
        is_closed = new_status in {TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.FAILED}
        changed_task = replace(
            task,
            status=new_status,
            claim=None,
            hold_reason=reason if new_status is TaskStatus.ON_HOLD else None,
            error=reason if new_status is TaskStatus.FAILED else None,
            attempts=task.attempts + 1 if new_status is TaskStatus.FAILED else task.attempts,
            started_at=task.started_at or (now if new_status is TaskStatus.IN_PROGRESS else None),
            completed_at=now if is_closed else None,
        )
        return changed_task, forced_data

    def _replace_dependencies(self, tx: Tx, plan: Plan, task: Task, refs: tuple[str | int, ...]) -> bool:
        depends_on_ids = resolve_refs(refs, *_build_ref_indexes(tx, plan, task.phase_id), field="depends_on")
        if set(depends_on_ids) == set(dependencies.list_by_items(tx, [task.id]).get(task.id, [])):
            return False
        require_still_acyclic(tx, plan, {task.id: depends_on_ids})
        dependencies.replace(tx, plan.workspace_id, plan.id, task.id, depends_on_ids)
        return True


def _apply_change(task: Task, change: TaskPatch) -> Task:
    values = change.get_set_fields()
    return replace(task, **{name: values[name] for name in _PLAIN_FIELDS if name in values})


def _apply_reason(task: Task, change: TaskPatch) -> Task:
    """Return *task* with the reason of *change*, if the task already has the status on_hold or failed that the reason explains."""
    reason = value_or(change.reason, None)
    if reason is None or change.status not in {UNSET, task.status}:
        return task
    match task.status:
        case TaskStatus.ON_HOLD:
            return replace(task, hold_reason=reason)
        case TaskStatus.FAILED:
            return replace(task, error=reason)
        case _:
            return task


def _build_ref_indexes(tx: Tx, plan: Plan, phase_id: str) -> Sequence[RefIndex]:
    """Return the indexes that resolve the dependencies of a task: first the tasks of its phase, then those of the whole plan."""
    phase_index, plan_index = RefIndex(), RefIndex()
    for id, task_phase_id, name, position in tasks.list_positions(tx, plan.id):
        if task_phase_id == phase_id:
            phase_index.add(id, position, [name])
        plan_index.add(id, -1, [name])
    return phase_index, plan_index


def _move(tx: Tx, task: Task, new_position: int) -> Task:
    position = _resolve_position(new_position, tasks.get_last_position(tx, task.phase_id))
    if position < task.position:
        tasks.shift(tx, task.phase_id, position, task.position - 1, offset=1)
    elif position > task.position:
        tasks.shift(tx, task.phase_id, task.position + 1, position, offset=-1)
    return replace(task, position=position)


def _resolve_position(requested: int | None, last: int) -> int:
    if requested is None:
        return last
    if requested > last:
        raise ValidationFailed({"position": [f"must be at most {last}, not {requested}"]})
    return requested
