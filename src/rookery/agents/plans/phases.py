"""Phases of a plan: create, read, update, move and delete them, change their status, add checkpoints."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PhaseBlocked, PhaseHasOpenTasks, TaskClaimed, TooManyItems
from rookery.agents.models.drafts import PhaseDraft, PhasePatch
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    OPEN_PHASE_STATUSES,
    OPEN_TASK_STATUSES,
    Checkpoint,
    EventActor,
    JsonObject,
    Phase,
    PhaseSettings,
    PhaseStatus,
    Plan,
    PlanAccessFilter,
    PlanStatus,
    Task,
)
from rookery.agents.models.views import PhaseView
from rookery.agents.plans.plan_builder import RefIndex, build_phase, build_task, require_acyclic, resolve_refs
from rookery.agents.plans.plan_events import PlanEventRecorder, diff_fields
from rookery.agents.plans.plans import complete_plan
from rookery.agents.plans.transitions import (
    PHASE_TRANSITIONS,
    get_phase,
    get_plan,
    lock_writable_plan,
    require_open_plan,
    require_transition,
    start_phase,
)
from rookery.agents.plans.views import load_phase_view, load_plan_view
from rookery.agents.store import dependencies, phases, tasks
from rookery.agents.store.tables import CHECKPOINTS, PHASES, PLANS, TASKS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.unset import UNSET

MAX_CHECKPOINTS_PER_PHASE = 100
"""Checkpoints of one phase. A phase is always returned with all of them."""

_MAX_LISTED_TASKS = 100
_EVENT_NAMES = {
    PhaseStatus.PENDING: "reset",
    PhaseStatus.IN_PROGRESS: "started",
    PhaseStatus.COMPLETED: "completed",
    PhaseStatus.SKIPPED: "skipped",
    PhaseStatus.ON_HOLD: "held",
}

_DIFF_FIELDS = (*(field.name for field in fields(PhaseSettings)), "position")


class Phases:
    """Operations on phases."""

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._recorder = recorder
        self._clock = clock
        self._ids = ids

    async def list_phases(self, caller: Caller, plan_ref: str, *, with_tasks: bool) -> list[PhaseView]:
        """
        Return the phases of a plan, ordered by position.

        Raises:
            NotFound: The plan does not exist.
        """
        now = self._clock()

        def read(tx: Tx) -> list[PhaseView]:
            view = load_plan_view(
                tx, get_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref), now, with_phases=True, with_tasks=with_tasks
            )
            return list(view.phases or ())

        return await self._db.read(read)

    async def get(self, caller: Caller, plan_ref: str, ref: str) -> PhaseView:
        """
        Return a phase with its tasks.

        Raises:
            NotFound: The plan or the phase does not exist.
        """
        now = self._clock()
        return await self._db.read(
            lambda tx: load_phase_view(
                tx, get_phase(tx, get_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref), ref), now, with_tasks=True
            )
        )

    async def add(self, caller: Caller, plan_ref: str, draft: PhaseDraft, *, expected: ExpectedETags = None) -> PhaseView:
        """
        Add a phase with its tasks to a plan, at its position or at the end.

        Raises:
            NotFound, PlanArchived, PlanNotActive: The plan does not exist, is archived, or is completed.
            TooManyItems: The plan would have too many phases or tasks.
            PreconditionFailed: *expected* does not match the version of the plan.
            ValidationFailed: A dependency is unknown, ambiguous or part of a cycle, or the position is too high.
        """
        now = self._clock()

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            require_match("plan", plan.version, expected)
            require_open_plan(plan)
            existing = phases.list_by_plan(tx, plan)
            if len(existing) >= MAX_PHASES_PER_PLAN:
                raise TooManyItems("phases in this plan", MAX_PHASES_PER_PLAN)
            if tasks.count_of_plan(tx, plan.id) + len(draft.tasks) > MAX_TASKS_PER_PLAN:
                raise TooManyItems("tasks in this plan", MAX_TASKS_PER_PLAN)
            position = _resolve_position(draft.position, len(existing) + 1)
            phase = build_phase(plan, draft, position, ids=self._ids, now=now)
            built_tasks = [
                build_task(phase, task_draft, number, ids=self._ids, now=now) for number, task_draft in enumerate(draft.tasks, 1)
            ]
            depends = self._resolve_dependencies(tx, plan, existing, phase=phase, draft=draft, new_tasks=built_tasks)
            phases.shift(tx, plan.id, position, len(existing), offset=1)
            PHASES.insert(tx, phase)
            TASKS.insert(tx, *built_tasks)
            dependencies.add(tx, plan.workspace_id, plan.id, [(item, other) for item, others in depends.items() for other in others])
            data: dict[str, object] = {"name": phase.name, "position": position, "tasks": len(built_tasks)}
            self._recorder.record_phase(tx, phase, "created", actor=EventActor.from_caller(caller), at=now, data=data)
            return load_phase_view(tx, phase, now, with_tasks=True)

        return await self._db.write(write)

    async def change(self, caller: Caller, plan_ref: str, ref: str, change: PhasePatch, *, expected: ExpectedETags = None) -> PhaseView:
        """
        Update the fields of a phase that *change* sets. Values that are already stored write nothing.

        Raises:
            NotFound: The plan or the phase does not exist.
            PlanArchived: The plan is read-only.
            PreconditionFailed: *expected* does not match the version of the phase.
            ValidationFailed: As for `add`.
        """
        now = self._clock()

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            changes = change.get_set_fields()
            depends_on = changes.pop("depends_on", None)
            changed_phase = replace(phase, **{**changes, "position": phase.position})
            if change.position is not UNSET:
                changed_phase = _move(tx, changed_phase, change.position)
            fields = dict(diff_fields(phase, changed_phase, *_DIFF_FIELDS))
            if depends_on is not None and self._replace_dependencies(tx, plan, changed_phase, depends_on):
                fields["depends_on"] = True
            if fields:
                changed_phase = replace(changed_phase, updated_at=now, version=phase.version + 1)
                PHASES.update(tx, changed_phase)
                self._recorder.record_phase(
                    tx, changed_phase, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": fields}
                )
            return load_phase_view(tx, changed_phase, now, with_tasks=True)

        return await self._db.write(write)

    async def set_status(
        self,
        caller: Caller,
        plan_ref: str,
        ref: str,
        new_status: PhaseStatus,
        *,
        force: bool = False,
        reason: str | None = None,
        expected: ExpectedETags = None,
    ) -> PhaseView:
        """
        Change the status of a phase. If it already has the status, only a new reason for on_hold is stored.

        Completing or skipping the last open phase completes the plan.

        Args:
            force: Ignore open tasks and unfinished dependencies. The event records it.
            reason: The reason, stored for on_hold.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As for `change`.
            WrongTransition: The current status does not allow the new one.
            PlanNotActive: The plan is paused or completed, and work would start.
            PhaseBlocked: A phase that this one depends on is not done.
            PhaseHasOpenTasks: The phase has open tasks and cannot be completed.
        """
        now, by = self._clock(), EventActor.from_caller(caller)

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if phase.status is new_status:
                if new_status is PhaseStatus.ON_HOLD and reason not in {None, phase.hold_reason}:
                    changes = diff_fields(phase, replace(phase, hold_reason=reason), "hold_reason")
                    phase = replace(phase, hold_reason=reason, updated_at=now, version=phase.version + 1)
                    PHASES.update(tx, phase)
                    self._recorder.record_phase(tx, phase, "updated", actor=by, at=now, data={"changed": changes})
                return load_phase_view(tx, phase, now, with_tasks=True)
            require_transition("phase", phase.name, phase.status, new_status, PHASE_TRANSITIONS[phase.status])
            data: dict[str, object] = {} if reason is None else {"reason": reason}
            if new_status in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED}:
                data |= _require_startable(tx, phase, new_status, force=force)
                # A phase in progress can be completed in a paused plan.
                if new_status is PhaseStatus.IN_PROGRESS or phase.status is not PhaseStatus.IN_PROGRESS:
                    start_phase(tx, plan, replace(phase, status=PhaseStatus.IN_PROGRESS), self._recorder, actor=by, now=now)
            is_closed = new_status in {PhaseStatus.COMPLETED, PhaseStatus.SKIPPED}
            changed_phase = replace(
                phase,
                status=new_status,
                hold_reason=reason if new_status is PhaseStatus.ON_HOLD else None,
                started_at=phase.started_at or (now if new_status in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED} else None),
                completed_at=now if is_closed else None,
                updated_at=now,
                version=phase.version + 1,
            )
            PHASES.update(tx, changed_phase)
            name = "reopened" if phase.status is PhaseStatus.COMPLETED else _EVENT_NAMES[new_status]
            self._recorder.record_phase(tx, changed_phase, name, actor=by, at=now, data=data)
            if is_closed:
                self._complete_plan_if_done(tx, plan, actor=by, now=now)
            return load_phase_view(tx, changed_phase, now, with_tasks=True)

        return await self._db.write(write)

    async def add_checkpoint(
        self, caller: Caller, plan_ref: str, ref: str, *, note: str, context: JsonObject, expected: ExpectedETags = None
    ) -> Checkpoint:
        """
        Add a checkpoint to a phase.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As for `change`.
            TooManyItems: The phase has `MAX_CHECKPOINTS_PER_PHASE` checkpoints.
        """
        now = self._clock()

        def write(tx: Tx) -> Checkpoint:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if CHECKPOINTS.count(tx, phase.workspace_id, plan_id=phase.plan_id, phase_id=phase.id) >= MAX_CHECKPOINTS_PER_PHASE:
                raise TooManyItems("checkpoints of this phase", MAX_CHECKPOINTS_PER_PHASE)
            checkpoint = Checkpoint(
                id=self._ids(),
                workspace_id=plan.workspace_id,
                plan_id=plan.id,
                phase_id=phase.id,
                note=note,
                context=context,
                key_id=caller.key_id,
                agent_id=caller.agent_id,
                created_at=now,
            )
            CHECKPOINTS.insert(tx, checkpoint)
            self._recorder.record_phase(tx, phase, "checkpoint", actor=EventActor.from_caller(caller), at=now, data={"note": note[:200]})
            return checkpoint

        return await self._db.write(write)

    async def remove(self, caller: Caller, plan_ref: str, ref: str, *, force: bool = False, expected: ExpectedETags = None) -> None:
        """
        Delete a phase with its tasks and all dependencies on them. Later phases move up by one position.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As for `change`.
            TaskClaimed: A task of the phase is claimed and *force* is not set.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            phase_tasks = [task.as_of(now) for task in tasks.list_by_phase(tx, phase)]
            claimed_task = next((task for task in phase_tasks if task.claim is not None), None)
            if claimed_task is not None and claimed_task.claim is not None and not force:
                raise TaskClaimed(claimed_task.name, claimed_task.claim.holder, claimed_task.claim.expires_at)
            dependencies.remove_items(tx, [phase.id, *(task.id for task in phase_tasks)])
            deleted_count = phases.remove(tx, phase)
            phases.shift(tx, plan.id, phase.position + 1, MAX_PHASES_PER_PLAN + 1, offset=-1)
            data: dict[str, object] = {"name": phase.name, "tasks": deleted_count, "forced": claimed_task is not None}
            self._recorder.record_phase(tx, phase, "deleted", actor=EventActor.from_caller(caller), at=now, data=data)

        await self._db.write(write)

    def _complete_plan_if_done(self, tx: Tx, plan: Plan, *, actor: EventActor, now: datetime) -> None:
        # Read again: a phase that started in this transaction may have activated the draft.
        plan = PLANS.get(tx, plan.workspace_id, id=plan.id)
        if plan.status not in {PlanStatus.ACTIVE, PlanStatus.PAUSED}:
            return
        if not any(phase.status in OPEN_PHASE_STATUSES for phase in phases.list_by_plan(tx, plan)):
            complete_plan(tx, plan, self._recorder, actor=actor, now=now, data={"with": "the last phase"})

    def _resolve_dependencies(
        self, tx: Tx, plan: Plan, existing_phases: list[Phase], *, phase: Phase, draft: PhaseDraft, new_tasks: list[Task]
    ) -> dict[str, list[str]]:
        phase_index, task_index, plan_task_index = RefIndex(), RefIndex(), RefIndex()
        for existing in existing_phases:
            phase_index.add(existing.id, existing.position, [existing.name])
        for task_draft, task in zip(draft.tasks, new_tasks, strict=True):
            task_index.add(task.id, task.position, [task_draft.key, task_draft.name])
        depends = dict[str, list[str]]()
        if draft.depends_on:
            depends[phase.id] = resolve_refs(draft.depends_on, phase_index, field="depends_on")
        if any(task_draft.depends_on for task_draft in draft.tasks):
            positions = tasks.list_positions(tx, plan.id)
            for id, _, name, _ in positions:
                plan_task_index.add(id, -1, [name])
            for number, (task_draft, task) in enumerate(zip(draft.tasks, new_tasks, strict=True)):
                if task_draft.depends_on:
                    field = f"tasks.{number}.depends_on"
                    depends[task.id] = resolve_refs(task_draft.depends_on, task_index, plan_task_index, field=field)
        if depends:
            require_still_acyclic(tx, plan, depends, phase=phase, new_tasks=new_tasks)
        return depends

    def _replace_dependencies(self, tx: Tx, plan: Plan, phase: Phase, refs: tuple[str | int, ...]) -> bool:
        phase_index = RefIndex()
        for existing in phases.list_by_plan(tx, plan):
            phase_index.add(existing.id, existing.position, [existing.name])
        depends_on_ids = resolve_refs(refs, phase_index, field="depends_on")
        if set(depends_on_ids) == set(dependencies.list_by_items(tx, [phase.id]).get(phase.id, [])):
            return False
        require_still_acyclic(tx, plan, {phase.id: depends_on_ids})
        dependencies.replace(tx, plan.workspace_id, plan.id, phase.id, depends_on_ids)
        return True


def require_still_acyclic(
    tx: Tx, plan: Plan, changed_dependencies: dict[str, list[str]], *, phase: Phase | None = None, new_tasks: list[Task] | None = None
) -> None:
    """
    Check that the dependencies of the plan, updated by *changed_dependencies*, have no cycle.

    Args:
        changed_dependencies: The new dependencies of each changed phase or task.
        phase: A phase that is not stored yet.
        new_tasks: Tasks that are not stored yet, of *phase* or of a stored phase.

    Raises:
        ValidationFailed: There is a cycle.
    """
    names = {phase.id: phase.name for phase in phases.list_by_plan(tx, plan)}
    phase_ids = dict[str, str]()
    for id, phase_id, name, _ in tasks.list_positions(tx, plan.id):
        names[id], phase_ids[id] = name, phase_id
    if phase is not None:
        names[phase.id] = phase.name
    for task in new_tasks or ():
        names[task.id], phase_ids[task.id] = task.name, task.phase_id
    require_acyclic(names, phase_ids, {**dependencies.list_by_plan(tx, plan.id), **changed_dependencies}, field="depends_on")


def _require_startable(tx: Tx, phase: Phase, new_status: PhaseStatus, *, force: bool) -> dict[str, object]:
    """
    Check that the phase can start or be completed. Return the event data about the use of force, empty if it was not needed.

    Raises:
        PhaseBlocked, PhaseHasOpenTasks: The change needs force.
    """
    depends = dependencies.list_by_items(tx, [phase.id]).get(phase.id, [])
    blocking_ids = sorted(dependencies.filter_unfinished_phases(tx, depends))
    if blocking_ids and not force:
        raise PhaseBlocked(phase.name, blocking_ids)
    event_data: dict[str, object] = {"forced": True, "blocked_by": blocking_ids} if blocking_ids else {}
    if new_status is PhaseStatus.COMPLETED:
        open_tasks = [task for task in tasks.list_by_phase(tx, phase) if task.status in OPEN_TASK_STATUSES]
        task_fields: list[dict[str, object]] = [
            {"id": task.id, "name": task.name, "status": task.status.value} for task in open_tasks[:_MAX_LISTED_TASKS]
        ]
        if open_tasks and not force:
            raise PhaseHasOpenTasks(phase.name, task_fields, len(open_tasks))
        if open_tasks:
            event_data |= {"forced": True, "open_tasks": [item["id"] for item in task_fields]}
    return event_data


def _move(tx: Tx, phase: Phase, new_position: int) -> Phase:
    position = _resolve_position(new_position, PHASES.count(tx, phase.workspace_id, plan_id=phase.plan_id))
    if position < phase.position:
        phases.shift(tx, phase.plan_id, position, phase.position - 1, offset=1)
    elif position > phase.position:
        phases.shift(tx, phase.plan_id, phase.position + 1, position, offset=-1)
    return replace(phase, position=position)


def _resolve_position(requested: int | None, last: int) -> int:
    if requested is None:
        return last
    if requested > last:
        raise ValidationFailed({"position": [f"must be at most {last}, not {requested}"]})
    return requested
