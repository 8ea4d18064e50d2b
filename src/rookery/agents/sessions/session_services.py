"""Construction of the session services."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.agents.plans.claims import Claims
from rookery.agents.ports import SessionKeyVerifier, SessionMemoryStore, ToolCallCounter
from rookery.agents.sessions.boot import BootLoader
from rookery.agents.sessions.claim_hooks import ClaimHooks
from rookery.agents.sessions.end import SessionCloser, SessionEnder
from rookery.agents.sessions.records import SessionRecords
from rookery.agents.sessions.start import SessionStarter
from rookery.agents.sessions.stream import SessionStreams
from rookery.agents.sessions.sweeper import SessionSweeper
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices:
    """The session services that routes, tools and periodic tasks call."""

    starter: SessionStarter
    boot_loader: BootLoader
    records: SessionRecords
    ender: SessionEnder
    streams: SessionStreams
    sweeper: SessionSweeper


def build_session_services(
    *,
    db: Database,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    memories: SessionMemoryStore,
    tool_calls: ToolCallCounter,
    keys: SessionKeyVerifier,
    claims: Claims,
) -> SessionServices:
    """
    Return the session services. No background task is started.

    Args:
        claims: The task claims. This registers hooks there, so that a claim in a session requires that the session is open.
    """
    closing = SessionCloser(memories=memories, claims=claims, bus=bus)
    claims.session_hook = ClaimHooks(clock).record_activity
    claims.completion_listeners.append(ClaimHooks(clock).on_task_completed)
    starting = SessionStarter(db=db, bus=bus, clock=clock, ids=ids, closer=closing)
    return SessionServices(
        starter=starting,
        boot_loader=BootLoader(db=db, clock=clock, memories=memories, starter=starting),
        records=SessionRecords(db=db, bus=bus, clock=clock, tool_calls=tool_calls),
        ender=SessionEnder(db=db, clock=clock, memories=memories, closer=closing),
        streams=SessionStreams(db=db, bus=bus, keys=keys),
        sweeper=SessionSweeper(db=db, clock=clock, memories=memories, closer=closing),
    )
