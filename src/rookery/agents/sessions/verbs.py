"""The verbs of sessions, put together."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.agents.plans.claims import Claims
from rookery.agents.ports import Keys, Memories, ToolCalls
from rookery.agents.sessions.at_work import AtWork
from rookery.agents.sessions.booting import Booting
from rookery.agents.sessions.ending import Closing, Endings
from rookery.agents.sessions.following import Following
from rookery.agents.sessions.starting import Starting
from rookery.agents.sessions.upkeep import SessionUpkeep
from rookery.agents.sessions.working import Working
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices:
    """What edges call."""

    starting: Starting
    booting: Booting
    working: Working
    endings: Endings
    following: Following
    upkeep: SessionUpkeep


def build_sessions(
    *,
    db: Database,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    memories: Memories,
    tool_calls: ToolCalls,
    keys: Keys,
    claims: Claims,
) -> SessionServices:
    """
    Put them together; nothing is started.

    Args:
        claims: Of tasks; from now on a session that somebody claims in must be open.
    """
    closing = Closing(memories=memories, claims=claims, bus=bus)
    claims.enter_session = AtWork(clock).enter
    claims.listeners.append(AtWork(clock).completed)
    starting = Starting(db=db, bus=bus, clock=clock, ids=ids, closing=closing)
    return SessionServices(
        starting=starting,
        booting=Booting(db=db, clock=clock, memories=memories, starting=starting),
        working=Working(db=db, bus=bus, clock=clock, tool_calls=tool_calls),
        endings=Endings(db=db, clock=clock, memories=memories, closing=closing),
        following=Following(db=db, bus=bus, keys=keys),
        upkeep=SessionUpkeep(db=db, clock=clock, memories=memories, closing=closing),
    )
