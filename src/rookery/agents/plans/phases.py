"""Phases of a plan: added, changed, moved, brought from status to status, noted of (D-60)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PhaseBlocked, PhaseHasOpenTasks, TaskClaimed, TooMany
from rookery.agents.models.drafts import PhaseChange, PhaseDraft
from rookery.agents.models.plans import (
    MAX_PHASES,
    MAX_TASKS,
    OPEN_PHASE,
    OPEN_TASK,
    By,
    Checkpoint,
    Object,
    Phase,
    PhaseStatus,
    Plan,
    PlanStatus,
    Task,
    Within,
)
from rookery.agents.models.views import PhaseView
from rookery.agents.plans.differing import differing
from rookery.agents.plans.holding import begin, must_be_open, the_phase, the_plan, writable
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.plans.making import must_not_circle, phase_of, resolved, task_of
from rookery.agents.plans.naming import Names
from rookery.agents.plans.plans import complete
from rookery.agents.plans.reading import phase_view, plan_view
from rookery.agents.plans.transitions import PHASE, must_become
from rookery.agents.store import needs, phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import Ids
from rookery.kernel.preconditions import Expected, require_match

MAX_CHECKPOINTS = 100
"""Of a phase; they are shown with it."""

_TOLD = 100
_NAMES = {
    PhaseStatus.PENDING: "reset",
    PhaseStatus.IN_PROGRESS: "started",
    PhaseStatus.COMPLETED: "completed",
    PhaseStatus.SKIPPED: "skipped",
    PhaseStatus.ON_HOLD: "held",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMove:
    """The status that a phase is to have; *reason*: why it is on hold; *force*: whatever is open in it or before it."""

    wanted: PhaseStatus
    reason: str | None = None
    force: bool = False


class Phases:
    """What may be done with a phase."""

    def __init__(self, *, db: Database, journal: PlanJournal, clock: Clock, ids: Ids) -> None:
        self._db = db
        self._journal = journal
        self._clock = clock
        self._ids = ids

    async def all(self, caller: Caller, plan_ref: str, *, with_tasks: bool) -> list[PhaseView]:
        """
        Return the phases of a plan in their order.

        Raises:
            NotFound: There is no such plan.
        """
        now = self._clock()

        def read(tx: Tx) -> list[PhaseView]:
            view = plan_view(tx, the_plan(tx, Within.of(caller), plan_ref), now, with_phases=True, with_tasks=with_tasks)
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
            lambda tx: phase_view(tx, the_phase(tx, the_plan(tx, Within.of(caller), plan_ref), ref), now, with_tasks=True)
        )

    async def add(self, caller: Caller, plan_ref: str, draft: PhaseDraft, *, expected: Expected = None) -> PhaseView:
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
            plan = writable(tx, Within.of(caller), plan_ref)
            require_match("plan", plan.version, expected)
            must_be_open(plan)
            there = phases.of_plan(tx, plan.id)
            if len(there) >= MAX_PHASES:
                raise TooMany("phases in this plan", MAX_PHASES)
            if tasks.count(tx, plan.id) + len(draft.tasks) > MAX_TASKS:
                raise TooMany("tasks in this plan", MAX_TASKS)
            position = _place(draft.position, len(there) + 1)
            phase = phase_of(plan, draft, position, ids=self._ids, now=now)
            listed = [task_of(phase, each, number, ids=self._ids, now=now) for number, each in enumerate(draft.tasks, 1)]
            depends = self._depends(tx, plan, there, phase=phase, draft=draft, listed=listed)
            phases.shift(tx, plan.id, position, len(there), by=1)
            phases.add(tx, [phase])
            tasks.add(tx, listed)
            needs.add(tx, plan.workspace_id, plan.id, [(item, other) for item, others in depends.items() for other in others])
            data: dict[str, object] = {"name": phase.name, "position": position, "tasks": len(listed)}
            self._journal.phase(tx, phase, "created", by=By.of(caller), at=now, data=data)
            return phase_view(tx, phase, now, with_tasks=True)

        return await self._db.write(write)

    async def change(self, caller: Caller, plan_ref: str, ref: str, change: PhaseChange, *, expected: Expected = None) -> PhaseView:
        """
        Change what *change* gives; what changes nothing writes nothing.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: It is not there, read-only, or another than the caller knows.
            ValidationFailed: As `add`.
        """
        now = self._clock()

        def write(tx: Tx) -> PhaseView:
            plan = writable(tx, Within.of(caller), plan_ref)
            phase = the_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            changed = replace(
                phase,
                name=change.name if "name" in change.given else phase.name,
                description=change.description if "description" in change.given else phase.description,
                acceptance_criteria=change.acceptance_criteria if "acceptance_criteria" in change.given else phase.acceptance_criteria,
                metadata=change.metadata if "metadata" in change.given else phase.metadata,
            )
            if "position" in change.given:
                changed = _moved(tx, changed, change.position)
            fields = dict(differing(phase, changed, "name", "description", "position", "acceptance_criteria", "metadata"))
            if "depends_on" in change.given and self._redirect(tx, plan, changed, change.depends_on):
                fields["depends_on"] = True
            if fields:
                changed = replace(changed, updated_at=now, version=phase.version + 1)
                phases.change(tx, changed)
                self._journal.phase(tx, changed, "updated", by=By.of(caller), at=now, data={"changed": fields})
            return phase_view(tx, changed, now, with_tasks=True)

        return await self._db.write(write)

    async def set_status(self, caller: Caller, plan_ref: str, ref: str, move: PhaseMove, *, expected: Expected = None) -> PhaseView:
        """
        Bring a phase into a status; if it is there already, only a reason to hold it is stored.

        With the last open one the plan is completed.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            WrongTransition: There is no way.
            PlanNotActive: The plan is paused or completed, and work would begin.
            PhaseBlocked: It waits for others. PhaseHasOpenTasks: It cannot be completed yet.
        """
        now, by, wanted = self._clock(), By.of(caller), move.wanted

        def write(tx: Tx) -> PhaseView:
            plan = writable(tx, Within.of(caller), plan_ref)
            phase = the_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if phase.status is wanted:
                if wanted is PhaseStatus.ON_HOLD and move.reason not in {None, phase.hold_reason}:
                    changes = differing(phase, replace(phase, hold_reason=move.reason), "hold_reason")
                    phase = replace(phase, hold_reason=move.reason, updated_at=now, version=phase.version + 1)
                    phases.change(tx, phase)
                    self._journal.phase(tx, phase, "updated", by=by, at=now, data={"changed": changes})
                return phase_view(tx, phase, now, with_tasks=True)
            must_become("phase", phase.name, phase.status, wanted, PHASE[phase.status])
            data: dict[str, object] = {} if move.reason is None else {"reason": move.reason}
            if wanted in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED}:
                data |= _may_go_on(tx, phase, move)
                # What was begun may be finished in a paused plan.
                if wanted is PhaseStatus.IN_PROGRESS or phase.status is not PhaseStatus.IN_PROGRESS:
                    begin(tx, plan, replace(phase, status=PhaseStatus.IN_PROGRESS), self._journal, by=by, now=now)
            is_closed = wanted in {PhaseStatus.COMPLETED, PhaseStatus.SKIPPED}
            changed = replace(
                phase,
                status=wanted,
                hold_reason=move.reason if wanted is PhaseStatus.ON_HOLD else None,
                started_at=phase.started_at or (now if wanted in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED} else None),
                completed_at=now if is_closed else None,
                updated_at=now,
                version=phase.version + 1,
            )
            phases.change(tx, changed)
            name = "reopened" if phase.status is PhaseStatus.COMPLETED else _NAMES[wanted]
            self._journal.phase(tx, changed, name, by=by, at=now, data=data)
            if is_closed:
                self._close_with_last(tx, plan, by=by, now=now)
            return phase_view(tx, changed, now, with_tasks=True)

        return await self._db.write(write)

    async def add_checkpoint(
        self, caller: Caller, plan_ref: str, ref: str, *, note: str, context: Object, expected: Expected = None
    ) -> Checkpoint:
        """
        Note something of a phase on the way.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            TooMany: It has as many checkpoints as it may.
        """
        now = self._clock()

        def write(tx: Tx) -> Checkpoint:
            plan = writable(tx, Within.of(caller), plan_ref)
            phase = the_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            if phases.checkpoint_count(tx, phase) >= MAX_CHECKPOINTS:
                raise TooMany("checkpoints of this phase", MAX_CHECKPOINTS)
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
            self._journal.phase(tx, phase, "checkpoint", by=By.of(caller), at=now, data={"note": note[:200]})
            return checkpoint

        return await self._db.write(write)

    async def remove(self, caller: Caller, plan_ref: str, ref: str, *, force: bool = False, expected: Expected = None) -> None:
        """
        Delete a phase with its tasks; those behind it move up, and nothing depends on it any more.

        Raises:
            NotFound, PlanArchived, PreconditionFailed: As `change`.
            TaskClaimed: Somebody works in it; *force* deletes it all the same.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            plan = writable(tx, Within.of(caller), plan_ref)
            phase = the_phase(tx, plan, ref)
            require_match("phase", phase.version, expected)
            listed = [task.at(now) for task in tasks.of_phase(tx, phase.id)]
            claimed = next((task for task in listed if task.claim is not None), None)
            if claimed is not None and claimed.claim is not None and not force:
                raise TaskClaimed(claimed.name, claimed.claim.holder(), claimed.claim.expires_at)
            needs.forget(tx, [phase.id, *(task.id for task in listed)])
            gone = phases.remove(tx, phase)
            phases.shift(tx, plan.id, phase.position + 1, MAX_PHASES + 1, by=-1)
            data: dict[str, object] = {"name": phase.name, "tasks": gone, "forced": claimed is not None}
            self._journal.phase(tx, phase, "deleted", by=By.of(caller), at=now, data=data)

        await self._db.write(write)

    def _close_with_last(self, tx: Tx, plan: Plan, *, by: By, now: datetime) -> None:
        # Read anew: work that began in this very transaction may have made a draft active.
        plan = plans.by_ids(tx, [plan.id])[plan.id]
        if plan.status not in {PlanStatus.ACTIVE, PlanStatus.PAUSED}:
            return
        if not any(phase.status in OPEN_PHASE for phase in phases.of_plan(tx, plan.id)):
            complete(tx, plan, self._journal, by=by, now=now, data={"with": "the last phase"})

    def _depends(
        self, tx: Tx, plan: Plan, there: list[Phase], *, phase: Phase, draft: PhaseDraft, listed: list[Task]
    ) -> dict[str, list[str]]:
        among, here, everywhere = Names(), Names(), Names()
        for each in there:
            among.add(each.id, each.position, [each.name])
        for of, task in zip(draft.tasks, listed, strict=True):
            here.add(task.id, task.position, [of.key, of.name])
        depends = dict[str, list[str]]()
        if draft.depends_on:
            depends[phase.id] = resolved(draft.depends_on, among, field="depends_on")
        if any(of.depends_on for of in draft.tasks):
            known = tasks.places(tx, plan.id)
            for id, _, name, _ in known:
                everywhere.add(id, -1, [name])
            for number, (of, task) in enumerate(zip(draft.tasks, listed, strict=True)):
                if of.depends_on:
                    depends[task.id] = resolved(of.depends_on, here, everywhere, field=f"tasks.{number}.depends_on")
        if depends:
            must_still_end(tx, plan, depends, phase=phase, listed=listed)
        return depends

    def _redirect(self, tx: Tx, plan: Plan, phase: Phase, refs: tuple[str | int, ...]) -> bool:
        among = Names()
        for each in phases.of_plan(tx, plan.id):
            among.add(each.id, each.position, [each.name])
        wanted = resolved(refs, among, field="depends_on")
        if set(wanted) == set(needs.of_items(tx, [phase.id]).get(phase.id, [])):
            return False
        must_still_end(tx, plan, {phase.id: wanted})
        needs.replace(tx, plan.workspace_id, plan.id, phase.id, wanted)
        return True


def must_still_end(
    tx: Tx, plan: Plan, changed: dict[str, list[str]], *, phase: Phase | None = None, listed: list[Task] | None = None
) -> None:
    """
    Do nothing if the plan could still be done in some order, with *changed* instead of what these items depended on.

    Args:
        phase: One that is new, with *listed*, its tasks; or tasks that are new in one that is there.

    Raises:
        ValidationFailed: It could not.
    """
    shown = {each.id: each.name for each in phases.of_plan(tx, plan.id)}
    of_phase = dict[str, str]()
    for id, phase_id, name, _ in tasks.places(tx, plan.id):
        shown[id], of_phase[id] = name, phase_id
    if phase is not None:
        shown[phase.id] = phase.name
    for task in listed or ():
        shown[task.id], of_phase[task.id] = task.name, task.phase_id
    must_not_circle(shown, of_phase, {**needs.of_plan(tx, plan.id), **changed}, field="depends_on")


def _may_go_on(tx: Tx, phase: Phase, move: PhaseMove) -> dict[str, object]:
    """Return what is to be recorded of force, if it was needed."""
    depends = needs.of_items(tx, [phase.id]).get(phase.id, [])
    waiting = sorted(needs.undone_phases(tx, depends))
    if waiting and not move.force:
        raise PhaseBlocked(phase.name, waiting)
    forced: dict[str, object] = {"forced": True, "blocked_by": waiting} if waiting else {}
    if move.wanted is PhaseStatus.COMPLETED:
        still = [task for task in tasks.of_phase(tx, phase.id) if task.status in OPEN_TASK]
        told: list[dict[str, object]] = [{"id": task.id, "name": task.name, "status": task.status.value} for task in still[:_TOLD]]
        if still and not move.force:
            raise PhaseHasOpenTasks(phase.name, told, len(still))
        if still:
            forced |= {"forced": True, "open_tasks": [each["id"] for each in told]}
    return forced


def _moved(tx: Tx, phase: Phase, wanted: int) -> Phase:
    position = _place(wanted, phases.count(tx, phase.plan_id))
    if position < phase.position:
        phases.shift(tx, phase.plan_id, position, phase.position - 1, by=1)
    elif position > phase.position:
        phases.shift(tx, phase.plan_id, phase.position + 1, position, by=-1)
    return replace(phase, position=position)


def _place(wanted: int | None, last: int) -> int:
    if wanted is None:
        return last
    if wanted > last:
        raise ValidationFailed({"position": [f"must be at most {last}"]})
    return wanted
