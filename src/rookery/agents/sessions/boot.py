"""What a session begins with, in one answer: a cold start costs an agent many questions otherwise (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.drafts import TaskState
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import AgentSession, PreviousSessionState
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.view_builder import load_phase_view, load_plan_view, load_task_views
from rookery.agents.ports import SessionMemoryStore
from rookery.agents.sessions.start import SessionStarter
from rookery.agents.store import phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

MAX_BOOT_TASKS = 10
"""Tasks that a session begins with: the next ones to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBoot:
    """
    What a session begins with.

    Attributes:
        plan: Without its phases; None: the session has none. *phase* is the one that work is in.
        tasks: Those that may be claimed now, in the order in which they are given out.
        memories: None: the key may not read any.
    """

    plan: PlanView | None
    phase: PhaseView | None
    tasks: tuple[TaskView, ...]
    previous: PreviousSessionState
    memories: Mapping[str, object] | None


class BootLoader:
    """Gathers it."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, starter: SessionStarter) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._starter = starter

    async def load(self, caller: Caller, session: AgentSession) -> SessionBoot:
        """Return what *session*, just started by *caller*, begins with."""
        within, now = PlanAccessFilter.from_caller(caller), self._clock()

        def read(tx: Tx) -> tuple[PlanView | None, PhaseView | None, tuple[TaskView, ...]]:
            plan = None if session.plan_id is None else plans.find(tx, within, session.plan_id)
            if plan is None:
                return None, None, ()
            view = load_plan_view(tx, plan, now, with_phases=False, with_tasks=False)
            current = None if view.current_phase is None else phases.find(tx, plan.id, view.current_phase.id)
            ready, _ = tasks.list_page(
                tx, within, TaskState.READY, plan_id=plan.id, phase_id=None, session_id=None, at=now, limit=MAX_BOOT_TASKS, offset=0
            )
            phase = None if current is None else load_phase_view(tx, current, now, with_tasks=False)
            return view, phase, tuple(load_task_views(tx, ready, now)) if ready else ()

        plan, phase, ready = await self._db.read(read)
        offered = await self._starter.load_previous_state(session)
        memories = await self._memories.boot(
            caller, agent_id=session.agent_id, org=session.org, project=session.project, session_id=session.resumed_from
        )
        return SessionBoot(plan=plan, phase=phase, tasks=ready, previous=offered, memories=memories)
