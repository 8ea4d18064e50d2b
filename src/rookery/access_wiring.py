"""The construction of access. It is a part of `wiring`, in a file of its own for its length."""

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
    """The services of keys and workspaces, and the guard that admits requests."""

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
    Build the services of access.

    Args:
        is_agent_in_use: Returns whether a workspace has memories of an agent.
        purgers: Delete the rows of a deleted workspace from the tables of all other domains.
    """
    bcrypt, usage, limiter = Bcrypt(cost=settings.bcrypt_cost), UsageLog(db, clock), RateLimiter(counter)
    key_cache, audit = VerifiedKeyCache(db, bcrypt), AuditLog(db, clock)
    guard = Guard(
        db=db, key_cache=key_cache, limiter=limiter, usage=usage, clock=clock, trusted_proxies=parse_proxies(settings.trusted_proxies)
    )
    return AccessServices(
        guard=guard,
        limiter=limiter,
        workspaces=Workspaces(db, audit, clock, purgers=purgers),
        api_keys=ApiKeys(db, bcrypt, usage, audit, clock, bus=bus),
        agent_keys=AgentKeys(db, usage, audit, clock, bus=bus, is_agent_in_use=is_agent_in_use),
        bcrypt=bcrypt,
        key_cache=key_cache,
        usage=usage,
        audit=audit,
    )
