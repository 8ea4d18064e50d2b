"""Agent work, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.audit import Audit
from rookery.agents.plans.bell import Bell
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.journal import PlanJournal
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.tasks import Tasks
from rookery.agents.ports import Keys, Memories, ToolCalls
from rookery.agents.sessions.verbs import SessionServices, build_sessions
from rookery.agents.templates.library import Templates
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """Plans, and who works on them."""

    plans: Plans
    phases: Phases
    tasks: Tasks
    claims: Claims
    bell: Bell
    templates: Templates
    sessions: SessionServices


def build_agents(
    *,
    db: Database,
    audit: Audit,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    memories: Memories,
    tool_calls: ToolCalls,
    keys: Keys,
) -> AgentServices:
    """Put agent work together; nothing is started yet."""
    journal, bell = PlanJournal(bus), Bell(bus)
    claims = Claims(db=db, journal=journal, bell=bell, clock=clock, ids=ids)
    return AgentServices(
        plans=Plans(db=db, journal=journal, clock=clock, ids=ids),
        phases=Phases(db=db, journal=journal, clock=clock, ids=ids),
        tasks=Tasks(db=db, journal=journal, clock=clock, ids=ids),
        claims=claims,
        bell=bell,
        templates=Templates(db, audit, clock),
        sessions=build_sessions(db=db, bus=bus, clock=clock, ids=ids, memories=memories, tool_calls=tool_calls, keys=keys, claims=claims),
    )
