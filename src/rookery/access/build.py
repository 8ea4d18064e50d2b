"""The services of access, each built on first use, and the registration of the domain."""

from __future__ import annotations

from functools import cached_property

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.audit_log import AuditLog
from rookery.access.first_run import FirstKeysFile
from rookery.access.guard import Guard
from rookery.access.hashing import Bcrypt
from rookery.access.key_cache import VerifiedKeyCache
from rookery.access.networks import parse_proxies
from rookery.access.ports import AccessPorts, RateLimitCounter
from rookery.access.rate_limits import RateLimiter, ToolRateLimiter
from rookery.access.usage_log import UsageLog
from rookery.access.workspaces import Workspaces
from rookery.kernel.domain import Domain
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.process_registry import ProcessRegistry
from rookery.kernel.process_resources import ProcessShare
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.server_group import ServerGroup


class AccessServices:
    """Keys and workspaces, the audit log, and the guard that admits requests."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @cached_property
    def audit(self) -> AuditLog:
        return AuditLog(self._runtime.db, self._runtime.clock)

    @cached_property
    def bcrypt(self) -> Bcrypt:
        bcrypt = Bcrypt(cost=self._runtime.settings.bcrypt_cost)
        self._runtime.on_close(bcrypt.close)
        return bcrypt

    @cached_property
    def key_cache(self) -> VerifiedKeyCache:
        key_cache = VerifiedKeyCache(self._runtime.db, self.bcrypt)
        self._runtime.on_close(key_cache.close)
        return key_cache

    @cached_property
    def usage(self) -> UsageLog:
        usage = UsageLog(self._runtime.db, self._runtime.clock)
        self._runtime.on_close(usage.close)
        return usage

    @cached_property
    def counter(self) -> RateLimitCounter:
        counter = self._runtime.use(AccessPorts).counter
        self._runtime.on_close(counter.close)
        return counter

    @cached_property
    def limiter(self) -> RateLimiter:
        group, registry = self._runtime.use(ServerGroup), self._runtime.use(ProcessRegistry)

        def get_share() -> ProcessShare:
            return registry.server_share or ProcessShare(group.number, group.count)

        limiter = RateLimiter(self.counter, breaker=self._runtime.breakers.counters, get_share=get_share)
        self._runtime.on_close(limiter.close)
        return limiter

    @cached_property
    def tool_limiter(self) -> ToolRateLimiter:
        return ToolRateLimiter(self.limiter, self._runtime.clock)

    @cached_property
    def guard(self) -> Guard:
        runtime = self._runtime
        return Guard(
            db=runtime.db,
            key_cache=self.key_cache,
            limiter=self.limiter,
            usage=self.usage,
            clock=runtime.clock,
            trusted_proxies=parse_proxies(runtime.settings.trusted_proxies),
            shares=runtime.shares,
        )

    @cached_property
    def workspaces(self) -> Workspaces:
        return Workspaces(self._runtime.db, self.audit, self._runtime.clock, purgers=self._runtime.use(AccessPorts).purgers)

    @cached_property
    def api_keys(self) -> ApiKeys:
        return ApiKeys(self._runtime.db, self.bcrypt, self.usage, self.audit, self._runtime.clock, bus=self._runtime.bus)

    @cached_property
    def agent_keys(self) -> AgentKeys:
        runtime = self._runtime
        is_agent_in_use = runtime.use(AccessPorts).is_agent_in_use
        return AgentKeys(runtime.db, self.usage, self.audit, runtime.clock, bus=runtime.bus, is_agent_in_use=is_agent_in_use)


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started. The other domains delete the data of a workspace, so this one has no purgers."""
    from rookery.access.api import AccessApi

    services = runtime.use(AccessServices)
    api = AccessApi(
        guard=services.guard,
        api_keys=services.api_keys,
        agent_keys=services.agent_keys,
        workspaces=services.workspaces,
        usage=services.usage,
        audit=services.audit,
        clock=runtime.clock,
    )
    first_keys = FirstKeysFile(runtime.settings.data_dir, runtime.db, runtime.clock)

    async def probe_counters() -> str:
        try:
            await services.counter.peek("readyz", window_us=1, now_us=0)
        except EngineUnavailable:
            return "counting locally"
        return "counting locally" if services.limiter.is_local else "ok"

    return Domain(
        operations=[("/api/v1", api.platform_operations()), ("/api/agent", api.agent_operations())],
        periodic_tasks=[
            PeriodicTask(name="API keys past their grace", interval_s=60, run=services.api_keys.delete_past_grace),
            PeriodicTask(name="agent keys past their grace", interval_s=60, run=services.agent_keys.delete_past_grace),
            PeriodicTask(name="expired API keys", interval_s=60, run=services.api_keys.announce_expired),
            PeriodicTask(name="expired agent keys", interval_s=60, run=services.agent_keys.announce_expired),
            PeriodicTask(name="old usage rows", interval_s=3600, run=services.usage.delete_old_calls),
            PeriodicTask(name="file with the first keys", interval_s=600, run=first_keys.delete_if_unneeded),
        ],
        probes={"counters": probe_counters},
    )
