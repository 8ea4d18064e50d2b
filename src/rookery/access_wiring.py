"""Access, put together: what `wiring` leaves to this file, so that each can be read in one go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.guard import Guard
from rookery.access.hashing import Bcrypt
from rookery.access.key_cache import VerifiedKeyCache
from rookery.access.networks import parse_proxies
from rookery.access.ports import RateLimitCounter
from rookery.access.rate_limits import RateLimiter
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Purger, Workspaces
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessServices:
    """Keys and workspaces, and what admits by them."""

    guard: Guard
    limiter: RateLimiter
    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    bcrypt: Bcrypt
    key_cache: VerifiedKeyCache
    usage: UsageLog
    audit: AuditLog


def build_access(
    settings: Settings,
    *,
    db: Database,
    counter: RateLimitCounter,
    bus: EventBus,
    clock: Clock,
    is_agent_in_use: Callable[[Tx, int, str], bool],
    purgers: Sequence[Purger],
) -> AccessServices:
    """
    Put it together.

    Args:
        is_agent_in_use: Whether a workspace has memories of an agent's own.
        purgers: What takes out a workspace that is deleted, from every table that is not access' own.
    """
    bcrypt, usage, limiter = Bcrypt(cost=settings.bcrypt_cost), UsageLog(db, clock), RateLimiter(counter)
    proofs, audit = VerifiedKeyCache(db, bcrypt), AuditLog(db, clock)
    guard = Guard(
        db=db, key_cache=proofs, limiter=limiter, usage=usage, clock=clock, trusted_proxies=parse_proxies(settings.trusted_proxies)
    )
    return AccessServices(
        guard=guard,
        limiter=limiter,
        workspaces=Workspaces(db, audit, clock, purgers=purgers),
        api_keys=ApiKeys(db, bcrypt, usage, audit, clock, bus=bus),
        agent_keys=AgentKeys(db, usage, audit, clock, bus=bus, is_agent_in_use=is_agent_in_use),
        bcrypt=bcrypt,
        key_cache=proofs,
        usage=usage,
        audit=audit,
    )
