"""Phases of a plan: added, changed, moved, brought from status to status, noted of (D-60)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PhaseBlocked, PhaseHasOpenTasks, TaskClaimed, TooManyItems
from rookery.agents.models.drafts import PhaseChange, PhaseDraft
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    OPEN_PHASE_STATUSES,
    OPEN_TASK_STATUSES,
    Checkpoint,
    EventActor,
    JsonObject,
    Phase,
    PhaseStatus,
    Plan,
    PlanAccessFilter,
    PlanStatus,
    Task,
)
from rookery.agents.models.views import PhaseView
from rookery.agents.plans.diff import diff_fields
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.factory import build_phase, build_task, require_acyclic, resolve_refs
from rookery.agents.plans.locking import get_phase, get_plan, lock_writable_plan, require_open_plan, start_phase
from rookery.agents.plans.plans import complete_plan
from rookery.agents.plans.slugs import RefIndex
from rookery.agents.plans.transitions import PHASE_TRANSITIONS, require_transition
from rookery.agents.plans.view_builder import load_phase_view, load_plan_view
from rookery.agents.store import dependencies, phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory
from rookery.kernel.preconditions import ExpectedETags, require_match

MAX_CHECKPOINTS_PER_PHASE = 100
"""Of a phase; they are shown with it."""

_MAX_LISTED_TASKS = 100
_EVENT_NAMES = {
    PhaseStatus.PENDING: "reset",
    PhaseStatus.IN_PROGRESS: "started",
    PhaseStatus.COMPLETED: "completed",
    PhaseStatus.SKIPPED: "skipped",
    PhaseStatus.ON_HOLD: "held",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatusChange:
    """The status that a phase is to have; *reason*: why it is on hold; *force*: whatever is open in it or before it."""

    status: PhaseStatus
    reason: str | None = None
    force: bool = False


class Phases:
    """What may be done with a phase."""

    def __init__(self, *, db: Database, recorder: PlanEventRecorder, clock: Clock, ids: IdFactory) -> None:
        self._db = db
        self._journal = recorder
        self._clock = clock
        self._ids = ids

    async def list_phases(self, caller: Caller, plan_ref: str, *, with_tasks: bool) -> list[PhaseView]:
        """
        Return the phases of a plan in their order.

        Raises:
            NotFound: There is no such plan.
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
            NotFound: There is none.
        """
        now = self._clock()
        return await self._db.read(
            lambda tx: load_phase_view(
                tx, get_phase(tx, get_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref), ref), now, with_tasks=True
            )
        )

    async def add(self, caller: Caller, plan_ref: str, draft: PhaseDraft, *, expected: ExpectedETags = None) -> PhaseView:
        """
        Add a phase with its tasks to a plan: at its position, else at the end.

        Raises:
            NotFound, PlanArchived, PlanNotActive: There is no such plan, or it is archived or completed.
            TooMany: It has as many phases, or tasks, as it may.
            PreconditionFailed: *expected* names another version of the plan.
            ValidationFailed: A dependency names nothing, or would wait for itself; or there is no such position.
        """
        now = self._clock()

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            require_match("plan", plan.version, expected)
            require_open_plan(plan)
            there = phases.list_by_plan(tx, plan.id)
            if len(there) >= MAX_PHASES_PER_PLAN:
                raise TooManyItems("phases in this plan", MAX_PHASES_PER_PLAN)
            if tasks.count(tx, plan.id) + len(draft.tasks) > MAX_TASKS_PER_PLAN:
                raise TooManyItems("tasks in this plan", MAX_TASKS_PER_PLAN)
            position = _resolve_position(draft.position, len(there) + 1)
            phase = build_phase(plan, draft, position, ids=self._ids, now=now)
            listed = [build_task(phase, each, number, ids=self._ids, now=now) for number, each in enumerate(draft.tasks, 1)]
            depends = self._resolve_dependencies(tx, plan, there, phase=phase, draft=draft, new_tasks=listed)
            phases.shift(tx, plan.id, position, len(there), offset=1)
            phases.add(tx, [phase])
            tasks.add(tx, listed)
            dependencies.add(tx, plan.workspace_id, plan.id, [(item, other) for item, others in depends.items() for other in others])
            data: dict[str, object] = {"name": phase.name, "position": position, "tasks": len(listed)}
            self._journal.record_phase(tx, phase, "created", actor=EventActor.from_caller(caller), at=now, data=data)
            return load_phase_view(tx, phase, now, with_tasks=True)

        return await self._db.write(write)

    async def change(self, caller: Caller, plan_ref: str, ref: str, change: PhaseChange, *, expected: ExpectedETags = None) -> PhaseView:
        """
        Change what *change* gives; what changes nothing writes nothing.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: It is not there, read-only, or another than the caller knows.
            ValidationFailed: As `add`.
        """
        now = self._clock()

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            changed = replace(
                phase,
                name=change.name if "name" in change.fields_set else phase.name,
                description=change.description if "description" in change.fields_set else phase.description,
                acceptance_criteria=change.acceptance_criteria if "acceptance_criteria" in change.fields_set else phase.acceptance_criteria,
                metadata=change.metadata if "metadata" in change.fields_set else phase.metadata,
            )
            if "position" in change.fields_set:
                changed = _move(tx, changed, change.position)
            fields = dict(diff_fields(phase, changed, "name", "description", "position", "acceptance_criteria", "metadata"))
            if "depends_on" in change.fields_set and self._replace_dependencies(tx, plan, changed, change.depends_on):
                fields["depends_on"] = True
            if fields:
                changed = replace(changed, updated_at=now, version=phase.version + 1)
                phases.change(tx, changed)
                self._journal.record_phase(tx, changed, "updated", actor=EventActor.from_caller(caller), at=now, data={"changed": fields})
            return load_phase_view(tx, changed, now, with_tasks=True)

        return await self._db.write(write)

    async def set_status(
        self, caller: Caller, plan_ref: str, ref: str, change: PhaseStatusChange, *, expected: ExpectedETags = None
    ) -> PhaseView:
        """
        Bring a phase into a status; if it is there already, only a reason to hold it is stored.

        With the last open one the plan is completed.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            WrongTransition: There is no way.
            PlanNotActive: The plan is paused or completed, and work would begin.
            PhaseBlocked: It waits for others. PhaseHasOpenTasks: It cannot be completed yet.
        """
        now, by, wanted = self._clock(), EventActor.from_caller(caller), change.status

        def write(tx: Tx) -> PhaseView:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if phase.status is wanted:
                if wanted is PhaseStatus.ON_HOLD and change.reason not in {None, phase.hold_reason}:
                    changes = diff_fields(phase, replace(phase, hold_reason=change.reason), "hold_reason")
                    phase = replace(phase, hold_reason=change.reason, updated_at=now, version=phase.version + 1)
                    phases.change(tx, phase)
                    self._journal.record_phase(tx, phase, "updated", actor=by, at=now, data={"changed": changes})
                return load_phase_view(tx, phase, now, with_tasks=True)
            require_transition("phase", phase.name, phase.status, wanted, PHASE_TRANSITIONS[phase.status])
            data: dict[str, object] = {} if change.reason is None else {"reason": change.reason}
            if wanted in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED}:
                data |= _require_startable(tx, phase, change)
                # What was begun may be finished in a paused plan.
                if wanted is PhaseStatus.IN_PROGRESS or phase.status is not PhaseStatus.IN_PROGRESS:
                    start_phase(tx, plan, replace(phase, status=PhaseStatus.IN_PROGRESS), self._journal, actor=by, now=now)
            is_closed = wanted in {PhaseStatus.COMPLETED, PhaseStatus.SKIPPED}
            changed = replace(
                phase,
                status=wanted,
                hold_reason=change.reason if wanted is PhaseStatus.ON_HOLD else None,
                started_at=phase.started_at or (now if wanted in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED} else None),
                completed_at=now if is_closed else None,
                updated_at=now,
                version=phase.version + 1,
            )
            phases.change(tx, changed)
            name = "reopened" if phase.status is PhaseStatus.COMPLETED else _EVENT_NAMES[wanted]
            self._journal.record_phase(tx, changed, name, actor=by, at=now, data=data)
            if is_closed:
                self._complete_plan_if_done(tx, plan, actor=by, now=now)
            return load_phase_view(tx, changed, now, with_tasks=True)

        return await self._db.write(write)

    async def add_checkpoint(
        self, caller: Caller, plan_ref: str, ref: str, *, note: str, context: JsonObject, expected: ExpectedETags = None
    ) -> Checkpoint:
        """
        Note something of a phase on the way.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            TooMany: It has as many checkpoints as it may.
        """
        now = self._clock()

        def write(tx: Tx) -> Checkpoint:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if phases.count_checkpoints(tx, phase) >= MAX_CHECKPOINTS_PER_PHASE:
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
            phases.add_checkpoint(tx, checkpoint)
            self._journal.record_phase(tx, phase, "checkpoint", actor=EventActor.from_caller(caller), at=now, data={"note": note[:200]})
            return checkpoint

        return await self._db.write(write)

    async def remove(self, caller: Caller, plan_ref: str, ref: str, *, force: bool = False, expected: ExpectedETags = None) -> None:
        """
        Delete a phase with its tasks; those behind it move up, and nothing depends on it any more.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            TaskClaimed: Somebody works in it; *force* deletes it all the same.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            plan = lock_writable_plan(tx, PlanAccessFilter.from_caller(caller), plan_ref)
            phase = get_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            listed = [task.as_of(now) for task in tasks.list_by_phase(tx, phase.id)]
            claimed = next((task for task in listed if task.claim is not None), None)
            if claimed is not None and claimed.claim is not None and not force:
                raise TaskClaimed(claimed.name, claimed.claim.holder(), claimed.claim.expires_at)
            dependencies.remove_items(tx, [phase.id, *(task.id for task in listed)])
            gone = phases.remove(tx, phase)
            phases.shift(tx, plan.id, phase.position + 1, MAX_PHASES_PER_PLAN + 1, offset=-1)
            data: dict[str, object] = {"name": phase.name, "tasks": gone, "forced": claimed is not None}
            self._journal.record_phase(tx, phase, "deleted", actor=EventActor.from_caller(caller), at=now, data=data)

        await self._db.write(write)

    def _complete_plan_if_done(self, tx: Tx, plan: Plan, *, actor: EventActor, now: datetime) -> None:
        # Read anew: work that began in this very transaction may have made a draft active.
        plan = plans.find_by_ids(tx, [plan.id])[plan.id]
        if plan.status not in {PlanStatus.ACTIVE, PlanStatus.PAUSED}:
            return
        if not any(phase.status in OPEN_PHASE_STATUSES for phase in phases.list_by_plan(tx, plan.id)):
            complete_plan(tx, plan, self._journal, actor=actor, now=now, data={"with": "the last phase"})

    def _resolve_dependencies(
        self, tx: Tx, plan: Plan, existing_phases: list[Phase], *, phase: Phase, draft: PhaseDraft, new_tasks: list[Task]
    ) -> dict[str, list[str]]:
        among, here, everywhere = RefIndex(), RefIndex(), RefIndex()
        for each in existing_phases:
            among.add(each.id, each.position, [each.name])
        for of, task in zip(draft.tasks, new_tasks, strict=True):
            here.add(task.id, task.position, [of.key, of.name])
        depends = dict[str, list[str]]()
        if draft.depends_on:
            depends[phase.id] = resolve_refs(draft.depends_on, among, field="depends_on")
        if any(of.depends_on for of in draft.tasks):
            known = tasks.list_positions(tx, plan.id)
            for id, _, name, _ in known:
                everywhere.add(id, -1, [name])
            for number, (of, task) in enumerate(zip(draft.tasks, new_tasks, strict=True)):
                if of.depends_on:
                    depends[task.id] = resolve_refs(of.depends_on, here, everywhere, field=f"tasks.{number}.depends_on")
        if depends:
            require_still_acyclic(tx, plan, depends, phase=phase, new_tasks=new_tasks)
        return depends

    def _replace_dependencies(self, tx: Tx, plan: Plan, phase: Phase, refs: tuple[str | int, ...]) -> bool:
        among = RefIndex()
        for each in phases.list_by_plan(tx, plan.id):
            among.add(each.id, each.position, [each.name])
        wanted = resolve_refs(refs, among, field="depends_on")
        if set(wanted) == set(dependencies.list_by_items(tx, [phase.id]).get(phase.id, [])):
            return False
        require_still_acyclic(tx, plan, {phase.id: wanted})
        dependencies.replace(tx, plan.workspace_id, plan.id, phase.id, wanted)
        return True


def require_still_acyclic(
    tx: Tx, plan: Plan, changed: dict[str, list[str]], *, phase: Phase | None = None, new_tasks: list[Task] | None = None
) -> None:
    """
    Do nothing if the plan could still be done in some order, with *changed* instead of what these items depended on.

    Args:
        phase: One that is new, with *new_tasks*, its tasks; or tasks that are new in one that is there.

    Raises:
        ValidationFailed: It could not.
    """
    shown = {each.id: each.name for each in phases.list_by_plan(tx, plan.id)}
    of_phase = dict[str, str]()
    for id, phase_id, name, _ in tasks.list_positions(tx, plan.id):
        shown[id], of_phase[id] = name, phase_id
    if phase is not None:
        shown[phase.id] = phase.name
    for task in new_tasks or ():
        shown[task.id], of_phase[task.id] = task.name, task.phase_id
    require_acyclic(shown, of_phase, {**dependencies.list_by_plan(tx, plan.id), **changed}, field="depends_on")


def _require_startable(tx: Tx, phase: Phase, change: PhaseStatusChange) -> dict[str, object]:
    """Return what is to be recorded of force, if it was needed."""
    depends = dependencies.list_by_items(tx, [phase.id]).get(phase.id, [])
    waiting = sorted(dependencies.filter_unfinished_phases(tx, depends))
    if waiting and not change.force:
        raise PhaseBlocked(phase.name, waiting)
    forced: dict[str, object] = {"forced": True, "blocked_by": waiting} if waiting else {}
    if change.status is PhaseStatus.COMPLETED:
        still = [task for task in tasks.list_by_phase(tx, phase.id) if task.status in OPEN_TASK_STATUSES]
        told: list[dict[str, object]] = [
            {"id": task.id, "name": task.name, "status": task.status.value} for task in still[:_MAX_LISTED_TASKS]
        ]
        if still and not change.force:
            raise PhaseHasOpenTasks(phase.name, told, len(still))
        if still:
            forced |= {"forced": True, "open_tasks": [each["id"] for each in told]}
    return forced


def _move(tx: Tx, phase: Phase, new_position: int) -> Phase:
    position = _resolve_position(new_position, phases.count(tx, phase.plan_id))
    if position < phase.position:
        phases.shift(tx, phase.plan_id, position, phase.position - 1, offset=1)
    elif position > phase.position:
        phases.shift(tx, phase.plan_id, phase.position + 1, position, offset=-1)
    return replace(phase, position=position)


def _resolve_position(requested: int | None, last: int) -> int:
    if requested is None:
        return last
    if requested > last:
        raise ValidationFailed({"position": [f"must be at most {last}"]})
    return requested
