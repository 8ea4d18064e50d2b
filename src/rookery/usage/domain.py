"""The registration of the usage domain."""

from __future__ import annotations

from rookery.kernel.domain import Domain
from rookery.kernel.runtime import Runtime
from rookery.usage.api import UsageApi
from rookery.usage.store import ledger
from rookery.usage.wiring import UsageServices

PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    api = UsageApi(runtime.use(UsageServices).reports, runtime.clock)
    return Domain(operations=[(prefix, api.operations()) for prefix in PREFIXES], purgers=[ledger.purge])
