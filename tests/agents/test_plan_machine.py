"""Whatever is done with a plan, in whatever order, the server and a model of it agree (issue 6)."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskChange, TaskDraft
from rookery.agents.models.plans import MAX_TASK_ATTEMPTS, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.models.views import TaskView
from rookery.agents.plans.claims import Claims, LeaseCredential, LeaseRequest
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.notifier import ReadyTaskNotifier
from rookery.agents.plans.phases import Phases, PhaseStatusChange
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.tasks import Tasks
from rookery.agents.plans.transitions import PHASE_TRANSITIONS, PLAN_TRANSITIONS, TASK_TRANSITIONS
from rookery.kernel.db import Database, open_database
from rookery.kernel.errors import Conflict
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from tests.conftest import FakeClock
from tests.memory.makers import make_caller

T = TypeVar("T")

TTL_S = 60
SHAPE = {"p0": ["t0", "t1"], "p1": ["t2", "t3"], "p2": ["t4"]}
NEEDS = {"p1": ["p0"], "t1": ["t0"], "t4": ["t2"]}
TASKS = [task for tasks in SHAPE.values() for task in tasks]
OPEN = {"pending", "in_progress", "failed", "on_hold"}


@dataclass
class Model:
    """The expected plan: statuses by name, leases by task with their end, lost leases and failures by task."""

    plan: str = "active"
    phases: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SHAPE, "pending"))
    tasks: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TASKS, "pending"))
    leases: dict[str, int] = field(default_factory=dict[str, int])
    attempts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TASKS, 0))
    now: int = 0

    def settle(self) -> None:
        """Let go of leases whose time is over."""
        for task, end in list(self.leases.items()):
            if end <= self.now:
                del self.leases[task]
                self.attempts[task] += 1
                self.tasks[task] = "failed" if self.attempts[task] > MAX_TASK_ATTEMPTS else "pending"

    def is_done(self, phase: str) -> bool:
        """Return whether *phase* blocks no other phase."""
        return self.phases[phase] in {"completed", "skipped"} or not any(self.tasks[task] in OPEN for task in SHAPE[phase])

    def waits(self, task: str) -> bool:
        """Tell whether something must be done before *task*."""
        phase = phase_of(task)
        held = [other for other in NEEDS.get(task, ()) if self.tasks[other] in OPEN and self.phases[phase_of(other)] not in CLOSED]
        return bool(held) or any(not self.is_done(other) for other in NEEDS.get(phase, ()))

    def may_begin(self, task: str) -> bool:
        """Tell whether work on *task* may begin."""
        return self.plan == "active" and self.phases[phase_of(task)] in {"pending", "in_progress"} and not self.waits(task)

    def begin(self, task: str) -> None:
        """Let work on *task* begin."""
        self.phases[phase_of(task)] = "in_progress"
        self.tasks[task] = "in_progress"


CLOSED = {"completed", "skipped"}


def phase_of(task: str) -> str:
    """Return the phase that *task* is in."""
    return next(phase for phase, tasks in SHAPE.items() if task in tasks)


class PlanMachine(RuleBasedStateMachine):
    """Rules are requests; each says what the model expects of it."""

    db: Database
    loop: asyncio.AbstractEventLoop
    examples = count(1)

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.model = FakeClock(), Model()
        number = next(self.examples)
        self.caller = make_caller(workspace_id=number, public_workspace_id=number)
        bus = EventBus()
        journal = PlanEventRecorder(bus)
        self.plans = Plans(recorder=journal, db=self.db, clock=self.clock, ids=uuid7)
        self.phases = Phases(recorder=journal, db=self.db, clock=self.clock, ids=uuid7)
        self.work = Tasks(recorder=journal, db=self.db, clock=self.clock, ids=uuid7)
        self.claims = Claims(recorder=journal, db=self.db, notifier=ReadyTaskNotifier(bus), clock=self.clock, ids=uuid7)
        self.tokens: dict[str, str] = {}

    def run(self, work: Coroutine[object, object, T]) -> T | None:
        """Return what *work* returns; None: it was refused as a conflict."""
        try:
            return self.loop.run_until_complete(work)
        except Conflict:
            return None

    @initialize()
    def make(self) -> None:
        """Make the plan."""
        phases = tuple(
            PhaseDraft(
                name=name,
                depends_on=tuple(NEEDS.get(name, ())),
                tasks=tuple(TaskDraft(name=each, depends_on=tuple(NEEDS.get(each, ()))) for each in tasks),
            )
            for name, tasks in SHAPE.items()
        )
        view = self.run(self.plans.create(self.caller, PlanDraft(title="machine", status=PlanStatus.ACTIVE, phases=phases)))
        assert view is not None
        self.ids = {each.task.name: each.task.id for phase in view.phases or () for each in phase.tasks or ()}

    @rule(task=st.sampled_from(TASKS))
    def claim(self, task: str) -> None:
        """Claim a task by its id."""
        view = self.run(self.claims.claim(self.caller, self.ids[task], LeaseRequest(ttl_s=TTL_S)))
        self.model.settle()
        may = self.model.tasks[task] == "pending" and self.model.may_begin(task)
        assert (view is not None) == may
        if view is not None:
            self._took(view)

    @rule()
    def claim_next(self) -> None:
        """Claim the best task there is."""
        view = self.run(self.claims.claim_next(self.caller, "machine", LeaseRequest(ttl_s=TTL_S)))
        self.model.settle()
        ready = [task for task in TASKS if self.model.tasks[task] == "pending" and self.model.may_begin(task)]
        if isinstance(view, TaskView):
            assert view.task.name == ready[0]
            self._took(view)
        else:
            assert not ready

    @rule(task=st.sampled_from(TASKS), verb=st.sampled_from(["heartbeat", "release", "complete", "fail"]))
    def hold(self, task: str, verb: str) -> None:
        """Do what a holder does, with the last token there was for the task."""
        proof, id = LeaseCredential(token=self.tokens.get(task, "none")), self.ids[task]
        match verb:
            case "heartbeat":
                done = self.run(self.claims.heartbeat(self.caller, id, proof, ttl_s=TTL_S))
            case "release":
                done = self.run(self.claims.release(self.caller, id, proof))
            case "complete":
                done = self.run(self.claims.complete(self.caller, id, proof))
            case _:
                done = self.run(self.claims.fail(self.caller, id, proof, error="x"))
        self.model.settle()
        assert (done is not None) == (task in self.model.leases)
        if done is None:
            return
        if verb == "heartbeat":
            self.model.leases[task] = self.model.now + TTL_S
            return
        del self.model.leases[task]
        self.model.tasks[task] = {"release": "pending", "complete": "completed", "fail": "failed"}[verb]
        self.model.attempts[task] += verb == "fail"

    @rule(task=st.sampled_from(TASKS), wanted=st.sampled_from(TaskStatus))
    def set_task(self, task: str, wanted: TaskStatus) -> None:
        """Set a task's status without a lease."""
        done = self.run(self.work.change(self.caller, self.ids[task], TaskChange(fields_set=frozenset({"status"}), status=wanted)))
        self.model.settle()
        was = TaskStatus(self.model.tasks[task])
        if was is wanted:
            assert done is not None
            return
        begins = was is TaskStatus.PENDING and wanted in {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED}
        may = wanted in TASK_TRANSITIONS[was] and task not in self.model.leases and (not begins or self.model.may_begin(task))
        assert (done is not None) == may
        if may:
            if begins:
                self.model.begin(task)
            self.model.tasks[task] = wanted.value
            self.model.attempts[task] += wanted is TaskStatus.FAILED

    @rule(number=st.integers(0, 2), wanted=st.sampled_from(PhaseStatus))
    def set_phase(self, number: int, wanted: PhaseStatus) -> None:
        """Set a phase's status."""
        phase = f"p{number}"
        done = self.run(self.phases.set_status(self.caller, "machine", str(number + 1), PhaseStatusChange(status=wanted)))
        was = PhaseStatus(self.model.phases[phase])
        if was is wanted:
            assert done is not None
            return
        may = wanted in PHASE_TRANSITIONS[was]
        if wanted in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED}:
            may = may and all(self.model.is_done(other) for other in NEEDS.get(phase, ()))
            may = may and (self.model.plan == "active" or (was is PhaseStatus.IN_PROGRESS and wanted is PhaseStatus.COMPLETED))
        if wanted is PhaseStatus.COMPLETED:
            may = may and not any(self.model.tasks[task] in OPEN for task in SHAPE[phase])
        assert (done is not None) == may
        if may:
            self.model.phases[phase] = wanted.value
            if wanted.value in CLOSED and CLOSED.issuperset(self.model.phases.values()) and self.model.plan in {"active", "paused"}:
                self.model.plan = "completed"

    @rule(wanted=st.sampled_from([PlanStatus.ACTIVE, PlanStatus.PAUSED, PlanStatus.COMPLETED]))
    def set_plan(self, wanted: PlanStatus) -> None:
        """Set the plan's status."""
        done = self.run(self.plans.set_status(self.caller, "machine", wanted))
        may = wanted.value == self.model.plan or wanted in PLAN_TRANSITIONS[PlanStatus(self.model.plan)]
        if wanted is PlanStatus.COMPLETED and self.model.plan != "completed":
            may = may and CLOSED.issuperset(self.model.phases.values())
        assert (done is not None) == may
        if may:
            self.model.plan = wanted.value

    @rule(seconds=st.sampled_from([1, 30, 60]))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.clock.advance(seconds=seconds)
        self.model.now += seconds

    @rule()
    def sweep(self) -> None:
        """Note leases that ran out."""
        self.run(self.claims.expire_leases())
        self.model.settle()

    @invariant()
    def agrees(self) -> None:
        """The responses equal the model; ready tasks are exactly the claimable ones."""
        if not hasattr(self, "ids"):
            return
        view = self.run(self.plans.get(self.caller, "machine"))
        assert view is not None
        model = copy.deepcopy(self.model)
        model.settle()
        phases = {each.phase.name: each for each in view.phases or ()}
        tasks = {each.task.name: each for phase in phases.values() for each in phase.tasks or ()}
        assert view.plan.status == model.plan
        assert {name: each.phase.status.value for name, each in phases.items()} == model.phases
        assert {name: (each.task.status.value, each.task.attempts) for name, each in tasks.items()} == {
            name: (model.tasks[name], model.attempts[name]) for name in TASKS
        }
        assert {name for name, each in tasks.items() if each.task.claim is not None} == set(model.leases)
        assert {name for name, each in tasks.items() if each.task.status.value in OPEN and each.blocked_by} == {
            name for name in TASKS if model.tasks[name] in OPEN and model.waits(name)
        }
        assert view.plan.event_seq == len(self.loop.run_until_complete(self._events(view.plan.id)))

    async def _events(self, plan_id: str) -> list[int]:
        events, _ = await self.plans.list_events(self.caller, plan_id, after=0, limit=10_000, offset=0)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return [event.seq for event in events]

    def _took(self, view: TaskView) -> None:
        assert view.task.claim is not None
        task = view.task.name
        self.model.begin(task)
        self.model.leases[task] = self.model.now + TTL_S
        self.tokens[task] = view.task.claim.token


def test_the_server_and_the_model_agree(data_dir: Path) -> None:
    """D-60, D-61, issue: statuses, leases, attempts and what is blocked, after any sequence of requests and of time passing."""
    loop = asyncio.new_event_loop()
    PlanMachine.loop, PlanMachine.db = loop, open_database("embedded:", data_dir=data_dir)
    try:
        run_state_machine_as_test(
            PlanMachine,
            settings=settings(
                max_examples=25,
                stateful_step_count=25,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
    finally:
        loop.run_until_complete(PlanMachine.db.close())
        loop.close()
