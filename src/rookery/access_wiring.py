"""Access, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit import Audit
from rookery.access.guard import Guard
from rookery.access.hashing import Bcrypt
from rookery.access.limits import Limiter
from rookery.access.networks import proxies
from rookery.access.ports import Counter
from rookery.access.proofs import Proofs
from rookery.access.usage import Usage
from rookery.access.workspaces import Purger, Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import Bus


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Keys and workspaces, and what admits by them."""

    guard: Guard
    limiter: Limiter
    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    bcrypt: Bcrypt
    proofs: Proofs
    usage: Usage
    audit: Audit


def build_access(
    settings: Settings,
    *,
    db: Database,
    counter: Counter,
    bus: Bus,
    clock: Clock,
    is_known_agent: Callable[[Tx, int, str], bool],
    purgers: Sequence[Purger],
) -> Access:
    """
    Put it together.

    Args:
        is_known_agent: Whether a workspace has memories of an agent's own.
        purgers: What takes out a workspace that is deleted, from every table that is not access' own.
    """
    bcrypt, usage, limiter = Bcrypt(cost=settings.bcrypt_cost), Usage(db, clock), Limiter(counter)
    proofs, audit = Proofs(db, bcrypt), Audit(db, clock)
    guard = Guard(db=db, proofs=proofs, limiter=limiter, usage=usage, clock=clock, trusted_proxies=proxies(settings.trusted_proxies))
    return Access(
        guard=guard,
        limiter=limiter,
        workspaces=Workspaces(db, audit, clock, purgers=purgers),
        api_keys=ApiKeys(db, bcrypt, usage, audit, clock, bus=bus),
        agent_keys=AgentKeys(db, usage, audit, clock, bus=bus, is_known_agent=is_known_agent),
        bcrypt=bcrypt,
        proofs=proofs,
        usage=usage,
        audit=audit,
    )
