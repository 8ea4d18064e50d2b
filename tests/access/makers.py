"""The access domain as wiring builds it, with the lowest bcrypt cost, and requests to its guard."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rookery.access.agent_keys import AgentKeys
from rookery.access.api import list_key_operations
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.guard import AdmittedRequest, Guard
from rookery.access.hashing import Bcrypt
from rookery.access.key_cache import KeyCacheLimits, VerifiedKeyCache
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import KeyWithSecret, Tier
from rookery.access.networks import parse_networks
from rookery.access.ports import RateLimitCounter
from rookery.access.rate_limits import RateLimiter
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.kernel.http import Operation
from rookery.migrations import migrate
from tests.conftest import OPERATOR, FakeClock


@dataclass
class Access:
    """The services of the access domain of one process."""

    db: Database
    clock: FakeClock
    counter: RateLimitCounter
    bcrypt: Bcrypt
    usage: UsageLog
    limiter: RateLimiter
    key_cache: VerifiedKeyCache
    guard: Guard
    api_keys: ApiKeys
    agent_keys: AgentKeys
    workspaces: Workspaces
    audit: AuditLog

    @property
    def operations(self) -> list[Operation]:
        """The operations of keys, which commands run."""
        return list_key_operations(self.api_keys, self.agent_keys, self.usage, self.clock)

    async def create_workspace(self, name: str = "nest") -> int:
        """Make a workspace."""
        return (await self.workspaces.create(name, by=OPERATOR)).id

    async def create_api_key(self, workspace_id: int, new: NewApiKey | None = None) -> KeyWithSecret:
        """Create an API key; by default one with all scopes and without a rate limit."""
        return await self.api_keys.create(
            workspace_id, new or NewApiKey(name="key", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE), by=OPERATOR
        )

    async def create_agent_key(self, workspace_id: int, new: NewAgentKey | None = None) -> KeyWithSecret:
        """Create an agent key; by default one that may read memories."""
        return await self.agent_keys.create(workspace_id, new or NewAgentKey(name="agent", permissions=("brain:read",)), by=OPERATOR)

    async def admit(
        self,
        token_or_key: KeyWithSecret | str,
        *,
        required_scope: str | None = None,
        rate_limited: bool = True,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        address: str | None = "192.0.2.1",
    ) -> AdmittedRequest:
        """Send a request with the key as Bearer."""
        token = token_or_key if isinstance(token_or_key, str) else token_or_key.plaintext.reveal()
        return await self.send(
            (b"authorization", f"Bearer {token}".encode()),
            *headers,
            required_scope=required_scope,
            rate_limited=rate_limited,
            address=address,
        )

    async def send(
        self, *headers: tuple[bytes, bytes], required_scope: str | None = None, rate_limited: bool = True, address: str | None = "192.0.2.1"
    ) -> AdmittedRequest:
        """Send a request with these headers alone."""
        client = None if address is None else (address, 50000)
        scope: dict[str, object] = {"headers": list(headers), "client": client, "state": {"request_id": "req_test"}, "query_string": b""}
        return await self.guard.admit(scope, required_scope=required_scope, rate_limited=rate_limited)

    async def close(self) -> None:
        """Write what is buffered and stop the threads. The store and the counter stay open."""
        await self.usage.close()
        self.key_cache.close()
        self.bcrypt.close()


def build_access(
    db: Database,
    counter: RateLimitCounter,
    clock: FakeClock,
    *,
    trusted: tuple[str, ...] = (),
    bcrypt: Bcrypt | None = None,
    cache_limits: KeyCacheLimits | None = None,
) -> Access:
    """Build the access services on *db* with their own caches, as a separate process would."""
    bcrypt = bcrypt or Bcrypt(cost=4)
    usage, audit = UsageLog(db, clock, flush_interval_s=0.01), AuditLog(db, clock)

    def monotonic() -> float:
        return clock().timestamp()

    limiter = RateLimiter(counter, breaker=EngineBreakers(Settings(), monotonic=monotonic).counters)
    key_cache = VerifiedKeyCache(db, bcrypt, monotonic=monotonic, limits=cache_limits)
    return Access(
        db=db,
        clock=clock,
        counter=counter,
        bcrypt=bcrypt,
        usage=usage,
        limiter=limiter,
        key_cache=key_cache,
        guard=Guard(db=db, key_cache=key_cache, limiter=limiter, usage=usage, clock=clock, trusted_proxies=parse_networks(trusted)),
        api_keys=ApiKeys(db, bcrypt, usage, audit, clock),
        agent_keys=AgentKeys(db, usage, audit, clock),
        workspaces=Workspaces(db, audit, clock),
        audit=audit,
    )


@cache
def empty_store() -> bytes:
    """Return a migrated record store."""
    with tempfile.TemporaryDirectory() as folder:
        migrate("embedded:", data_dir=Path(folder))
        return (Path(folder) / "records.db").read_bytes()
