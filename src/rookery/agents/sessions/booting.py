"""What a session begins with, in one answer: a cold start costs an agent many questions otherwise (D-62)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.drafts import TaskState
from rookery.agents.models.plans import Within
from rookery.agents.models.sessions import Offered, Session
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.plans.reading import phase_view, plan_view, task_views
from rookery.agents.ports import Memories
from rookery.agents.sessions.starting import Starting
from rookery.agents.store import phases, plans, tasks
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

MOST_TASKS = 10
"""Tasks that a session begins with: the next ones to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
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
    offered: Offered
    memories: Mapping[str, object] | None


class Booting:
    """Gathers it."""

    def __init__(self, *, db: Database, clock: Clock, memories: Memories, starting: Starting) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._starting = starting

    async def boot(self, caller: Caller, session: Session) -> Boot:
        """Return what *session*, just started by *caller*, begins with."""
        within, now = Within.of(caller), self._clock()

        def read(tx: Tx) -> tuple[PlanView | None, PhaseView | None, tuple[TaskView, ...]]:
            plan = None if session.plan_id is None else plans.find(tx, within, session.plan_id)
            if plan is None:
                return None, None, ()
            view = plan_view(tx, plan, now, with_phases=False, with_tasks=False)
            current = None if view.current_phase is None else phases.find(tx, plan.id, view.current_phase.id)
            ready, _ = tasks.page(
                tx, within, TaskState.READY, plan_id=plan.id, phase_id=None, session_id=None, at=now, limit=MOST_TASKS, offset=0
            )
            phase = None if current is None else phase_view(tx, current, now, with_tasks=False)
            return view, phase, tuple(task_views(tx, ready, now)) if ready else ()

        plan, phase, ready = await self._db.read(read)
        offered = await self._starting.offered(session)
        memories = await self._memories.boot(
            caller, agent_id=session.agent_id, org=session.org, project=session.project, session_id=session.resumed_from
        )
        return Boot(plan=plan, phase=phase, tasks=ready, offered=offered, memories=memories)
