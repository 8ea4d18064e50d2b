"""The context of a new session, loaded at once, so that an agent needs no further requests to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.drafts import TaskState
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import AgentSession, PreviousSessionState
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.views import load_phase_view, load_plan_view, load_task_views
from rookery.agents.ports import SessionMemoryStore
from rookery.agents.sessions.start import SessionStarter
from rookery.agents.store import phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.pages import PageSlice

MAX_BOOT_TASKS = 10
"""Ready tasks in the context of a new session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBoot:
    """
    The context of a new session.

    Attributes:
        plan: The plan without its phases, or None if the session has no plan.
        phase: The current phase of the plan, or None.
        tasks: Tasks that can be claimed now, in the order of claims.
        previous: The offered hand-off and the last checkpoint.
        memories: The memories of the agent, or None if the key may not read memories.
    """

    plan: PlanView | None
    phase: PhaseView | None
    tasks: tuple[TaskView, ...]
    previous: PreviousSessionState
    memories: Mapping[str, object] | None


class BootLoader:
    """Loads the context of a new session."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, starter: SessionStarter) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._starter = starter

    async def load(self, caller: Caller, session: AgentSession) -> SessionBoot:
        """Return the context of *session*, which *caller* has just started."""
        access_filter, now = PlanAccessFilter.from_caller(caller), self._clock()

        def read(tx: Tx) -> tuple[PlanView | None, PhaseView | None, tuple[TaskView, ...]]:
            plan = None if session.plan_id is None else plans.find(tx, access_filter, session.plan_id)
            if plan is None:
                return None, None, ()
            view = load_plan_view(tx, plan, now, with_phases=False, with_tasks=False)
            current = None if view.current_phase is None else phases.find(tx, plan, view.current_phase.id)
            task_page = tasks.list_page(
                tx, access_filter, TaskState.READY, plan_id=plan.id, phase_id=None, session_id=None, at=now, page=PageSlice(MAX_BOOT_TASKS)
            )
            phase = None if current is None else load_phase_view(tx, current, now, with_tasks=False)
            return view, phase, tuple(load_task_views(tx, task_page.items, now)) if task_page.items else ()

        plan, phase, ready = await self._db.read(read)
        previous = await self._starter.load_previous_state(session)
        memories = await self._memories.boot(
            caller, agent_id=session.agent_id, org=session.org, project=session.project, session_id=session.resumed_from
        )
        return SessionBoot(plan=plan, phase=phase, tasks=ready, previous=previous, memories=memories)
