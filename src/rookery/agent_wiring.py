"""The construction of agents. It is a part of `wiring`, in a file of its own for its length."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.audit_log import AuditLog
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.events import PlanEventRecorder, ReadyTaskNotifier
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.tasks import Tasks
from rookery.agents.ports import SessionKeyVerifier, SessionMemoryStore, ToolCallCounter
from rookery.agents.sessions.session_services import SessionServices, build_session_services
from rookery.agents.templates.library import Templates
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentServices:
    """The services of plans, sessions and templates."""

    plans: Plans
    phases: Phases
    tasks: Tasks
    claims: Claims
    notifier: ReadyTaskNotifier
    templates: Templates
    sessions: SessionServices


def build_agents(
    *,
    db: Database,
    audit: AuditLog,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    memories: SessionMemoryStore,
    tool_calls: ToolCallCounter,
    keys: SessionKeyVerifier,
) -> AgentServices:
    """Build the services of agents. Nothing is started."""
    recorder, notifier = PlanEventRecorder(bus), ReadyTaskNotifier(bus)
    claims = Claims(db=db, recorder=recorder, notifier=notifier, clock=clock, ids=ids)
    return AgentServices(
        plans=Plans(db=db, recorder=recorder, clock=clock, ids=ids),
        phases=Phases(db=db, recorder=recorder, clock=clock, ids=ids),
        tasks=Tasks(db=db, recorder=recorder, clock=clock, ids=ids),
        claims=claims,
        notifier=notifier,
        templates=Templates(db, audit, clock),
        sessions=build_session_services(
            db=db, bus=bus, clock=clock, ids=ids, memories=memories, tool_calls=tool_calls, keys=keys, claims=claims
        ),
    )
