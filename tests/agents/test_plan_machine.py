"""Random requests on a plan: the server and a model of it always agree."""

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

from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft, TaskPatch
from rookery.agents.models.plans import MAX_TASK_ATTEMPTS, PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.models.views import TaskView
from rookery.agents.plans.claims import Claims, LeaseCredential, LeaseRequest
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plan_events import PlanEventRecorder, ReadyTaskNotifier
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.server_pulse import ServerPulse
from rookery.agents.plans.tasks import Tasks
from rookery.agents.plans.transitions import PHASE_TRANSITIONS, PLAN_TRANSITIONS, TASK_TRANSITIONS
from rookery.kernel.db import Database, open_database
from rookery.kernel.errors import Conflict
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.pages import PageSlice
from rookery.kernel.wakeups import Wakeups
from tests.conftest import FakeClock
from tests.memory.makers import make_caller

T = TypeVar("T")

TTL_S = 60
TASKS_BY_PHASE = {"p0": ["t0", "t1"], "p1": ["t2", "t3"], "p2": ["t4"]}
DEPENDENCIES = {"p1": ["p0"], "t1": ["t0"], "t4": ["t2"]}
TASKS = [task for tasks in TASKS_BY_PHASE.values() for task in tasks]
OPEN_STATUSES = {"pending", "in_progress", "failed", "on_hold"}


@dataclass
class Model:
    """The expected plan: statuses by name, leases by task with their end, lost leases and failures by task."""

    plan: str = "active"
    phases: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TASKS_BY_PHASE, "pending"))
    tasks: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TASKS, "pending"))
    leases: dict[str, int] = field(default_factory=dict[str, int])
    attempts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TASKS, 0))
    now: int = 0

    def expire_leases(self) -> None:
        """Remove leases that have expired."""
        for task, end in list(self.leases.items()):
            if end <= self.now:
                del self.leases[task]
                self.attempts[task] += 1
                self.tasks[task] = "failed" if self.attempts[task] > MAX_TASK_ATTEMPTS else "pending"

    def is_done(self, phase: str) -> bool:
        """Return whether *phase* blocks no other phase."""
        return self.phases[phase] in {"completed", "skipped"} or not any(
            self.tasks[task] in OPEN_STATUSES for task in TASKS_BY_PHASE[phase]
        )

    def is_blocked(self, task: str) -> bool:
        """Return whether *task* is blocked."""
        phase = phase_of(task)
        open_dependencies = [
            other
            for other in DEPENDENCIES.get(task, ())
            if self.tasks[other] in OPEN_STATUSES and self.phases[phase_of(other)] not in CLOSED_STATUSES
        ]
        return bool(open_dependencies) or any(not self.is_done(other) for other in DEPENDENCIES.get(phase, ()))

    def can_start(self, task: str) -> bool:
        """Return whether work on *task* can start."""
        return self.plan == "active" and self.phases[phase_of(task)] in {"pending", "in_progress"} and not self.is_blocked(task)

    def start(self, task: str) -> None:
        """Start work on *task*."""
        self.phases[phase_of(task)] = "in_progress"
        self.tasks[task] = "in_progress"


CLOSED_STATUSES = {"completed", "skipped"}


def phase_of(task: str) -> str:
    """Return the phase of *task*."""
    return next(phase for phase, tasks in TASKS_BY_PHASE.items() if task in tasks)


class PlanMachine(RuleBasedStateMachine):
    """Each rule is a request and compares its result with the model."""

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
        self.claims = Claims(
            pulse=ServerPulse(db=self.db),
            recorder=journal,
            db=self.db,
            notifier=ReadyTaskNotifier(bus, Wakeups()),
            clock=self.clock,
            ids=uuid7,
        )
        self.tokens: dict[str, str] = {}

    def run(self, work: Coroutine[object, object, T]) -> T | None:
        """Return the result of *work*, or None if it is rejected as a conflict."""
        try:
            return self.loop.run_until_complete(work)
        except Conflict:
            return None

    @initialize()
    def create_plan(self) -> None:
        """Create the plan."""
        phases = tuple(
            PhaseDraft(
                name=name,
                depends_on=tuple(DEPENDENCIES.get(name, ())),
                tasks=tuple(TaskDraft(name=task, depends_on=tuple(DEPENDENCIES.get(task, ()))) for task in tasks),
            )
            for name, tasks in TASKS_BY_PHASE.items()
        )
        view = self.run(self.plans.create(self.caller, PlanDraft(title="machine", status=PlanStatus.ACTIVE, phases=phases)))
        assert view is not None
        self.ids = {task_view.task.name: task_view.task.id for phase in view.phases or () for task_view in phase.tasks or ()}

    @rule(task=st.sampled_from(TASKS))
    def claim(self, task: str) -> None:
        """Claim a task by its id."""
        view = self.run(self.claims.claim(self.caller, self.ids[task], LeaseRequest(ttl_s=TTL_S)))
        self.model.expire_leases()
        is_allowed = self.model.tasks[task] == "pending" and self.model.can_start(task)
        assert (view is not None) == is_allowed
        if view is not None:
            self._record_claim(view)

    @rule()
    def claim_next(self) -> None:
        """Claim the best ready task."""
        view = self.run(self.claims.claim_next(self.caller, "machine", LeaseRequest(ttl_s=TTL_S)))
        self.model.expire_leases()
        ready = [task for task in TASKS if self.model.tasks[task] == "pending" and self.model.can_start(task)]
        if isinstance(view, TaskView):
            assert view.task.name == ready[0]
            self._record_claim(view)
        else:
            assert not ready

    @rule(task=st.sampled_from(TASKS), verb=st.sampled_from(["heartbeat", "release", "complete", "fail"]))
    def use_lease(self, task: str, verb: str) -> None:
        """Use the last token of the task, as its holder does."""
        credential, task_id = LeaseCredential(token=self.tokens.get(task, "none")), self.ids[task]
        match verb:
            case "heartbeat":
                result = self.run(self.claims.heartbeat(self.caller, task_id, credential, ttl_s=TTL_S))
            case "release":
                result = self.run(self.claims.release(self.caller, task_id, credential))
            case "complete":
                result = self.run(self.claims.complete(self.caller, task_id, credential))
            case _:
                result = self.run(self.claims.fail(self.caller, task_id, credential, error="x"))
        self.model.expire_leases()
        assert (result is not None) == (task in self.model.leases)
        if result is None:
            return
        if verb == "heartbeat":
            self.model.leases[task] = self.model.now + TTL_S
            return
        del self.model.leases[task]
        self.model.tasks[task] = {"release": "pending", "complete": "completed", "fail": "failed"}[verb]
        self.model.attempts[task] += verb == "fail"

    @rule(task=st.sampled_from(TASKS), requested=st.sampled_from(TaskStatus))
    def set_task(self, task: str, requested: TaskStatus) -> None:
        """Set a task's status without a lease."""
        result = self.run(self.work.change(self.caller, self.ids[task], TaskPatch(status=requested)))
        self.model.expire_leases()
        old = TaskStatus(self.model.tasks[task])
        if old is requested:
            assert result is not None
            return
        is_start = old is TaskStatus.PENDING and requested in {TaskStatus.IN_PROGRESS, TaskStatus.COMPLETED}
        is_allowed = requested in TASK_TRANSITIONS[old] and task not in self.model.leases and (not is_start or self.model.can_start(task))
        assert (result is not None) == is_allowed
        if is_allowed:
            if is_start:
                self.model.start(task)
            self.model.tasks[task] = requested.value
            self.model.attempts[task] += requested is TaskStatus.FAILED

    @rule(number=st.integers(0, 2), requested=st.sampled_from(PhaseStatus))
    def set_phase(self, number: int, requested: PhaseStatus) -> None:
        """Set a phase's status."""
        phase = f"p{number}"
        result = self.run(self.phases.set_status(self.caller, "machine", str(number + 1), requested))
        old = PhaseStatus(self.model.phases[phase])
        if old is requested:
            assert result is not None
            return
        is_allowed = requested in PHASE_TRANSITIONS[old]
        if requested in {PhaseStatus.IN_PROGRESS, PhaseStatus.COMPLETED}:
            is_allowed = is_allowed and all(self.model.is_done(other) for other in DEPENDENCIES.get(phase, ()))
            is_allowed = is_allowed and (
                self.model.plan == "active" or (old is PhaseStatus.IN_PROGRESS and requested is PhaseStatus.COMPLETED)
            )
        if requested is PhaseStatus.COMPLETED:
            is_allowed = is_allowed and not any(self.model.tasks[task] in OPEN_STATUSES for task in TASKS_BY_PHASE[phase])
        assert (result is not None) == is_allowed
        if is_allowed:
            self.model.phases[phase] = requested.value
            if (
                requested.value in CLOSED_STATUSES
                and CLOSED_STATUSES.issuperset(self.model.phases.values())
                and self.model.plan in {"active", "paused"}
            ):
                self.model.plan = "completed"

    @rule(requested=st.sampled_from([PlanStatus.ACTIVE, PlanStatus.PAUSED, PlanStatus.COMPLETED]))
    def set_plan(self, requested: PlanStatus) -> None:
        """Set the plan's status."""
        result = self.run(self.plans.set_status(self.caller, "machine", requested))
        is_allowed = requested.value == self.model.plan or requested in PLAN_TRANSITIONS[PlanStatus(self.model.plan)]
        if requested is PlanStatus.COMPLETED and self.model.plan != "completed":
            is_allowed = is_allowed and CLOSED_STATUSES.issuperset(self.model.phases.values())
        assert (result is not None) == is_allowed
        if is_allowed:
            self.model.plan = requested.value

    @rule(seconds=st.sampled_from([1, 30, 60]))
    def wait(self, seconds: int) -> None:
        """Let time pass."""
        self.clock.advance(seconds=seconds)
        self.model.now += seconds

    @rule()
    def expire(self) -> None:
        """Record expired leases."""
        self.run(self.claims.expire_leases())
        self.model.expire_leases()

    @invariant()
    def server_matches_model(self) -> None:
        """Compare the plan of the server with the model; ready tasks are exactly the claimable ones."""
        if not hasattr(self, "ids"):
            return
        view = self.run(self.plans.get(self.caller, "machine"))
        assert view is not None
        model = copy.deepcopy(self.model)
        model.expire_leases()
        phases = {phase_view.phase.name: phase_view for phase_view in view.phases or ()}
        tasks = {task_view.task.name: task_view for phase in phases.values() for task_view in phase.tasks or ()}
        assert view.plan.status == model.plan
        assert {name: phase_view.phase.status.value for name, phase_view in phases.items()} == model.phases
        assert {name: (task_view.task.status.value, task_view.task.attempts) for name, task_view in tasks.items()} == {
            name: (model.tasks[name], model.attempts[name]) for name in TASKS
        }
        assert {name for name, task_view in tasks.items() if task_view.task.claim is not None} == set(model.leases)
        assert {name for name, task_view in tasks.items() if task_view.task.status.value in OPEN_STATUSES and task_view.blocked_by} == {
            name for name in TASKS if model.tasks[name] in OPEN_STATUSES and model.is_blocked(name)
        }
        assert view.plan.event_seq == len(self.loop.run_until_complete(self._events(view.plan.id)))

    async def _events(self, plan_id: str) -> list[int]:
        events, *_ = await self.plans.list_events(self.caller, plan_id, after=0, page=PageSlice(10_000))
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return [event.seq for event in events]

    def _record_claim(self, view: TaskView) -> None:
        assert view.task.claim is not None
        task = view.task.name
        self.model.start(task)
        self.model.leases[task] = self.model.now + TTL_S
        self.tokens[task] = view.task.claim.token


def test_random_requests_match_the_model(data_dir: Path) -> None:
    """Statuses, leases, attempts and blocked tasks, after any sequence of requests and of time."""
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
