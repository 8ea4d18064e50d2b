"""The services of usage, each built on first use, and the registration of the domain."""

from __future__ import annotations

from functools import cached_property

from rookery.kernel.domain import Domain
from rookery.kernel.runtime import Runtime
from rookery.usage.embedding_meter import EmbeddingMeter
from rookery.usage.ledger import UsageLedger
from rookery.usage.ports import UsagePorts
from rookery.usage.reports import UsageReports
from rookery.usage.store import ledger


class UsageServices:
    """The ledger of usage, what counts embeddings, and the reports."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @cached_property
    def ledger(self) -> UsageLedger:
        return UsageLedger(self._runtime.settings.currency)

    @cached_property
    def embedding_meter(self) -> EmbeddingMeter:
        runtime = self._runtime
        meter = EmbeddingMeter(runtime.db, self.ledger, dict(runtime.settings.embedding_prices), clock=runtime.clock)
        runtime.on_close(meter.aclose)
        return meter

    @cached_property
    def reports(self) -> UsageReports:
        return UsageReports(self._runtime.db, self.ledger, self._runtime.use(UsagePorts))


PREFIXES = ("/api/agent", "/v1")


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    from rookery.usage.api import UsageApi

    api = UsageApi(runtime.use(UsageServices).reports, runtime.clock)
    return Domain(operations=[(prefix, api.operations()) for prefix in PREFIXES], purgers=[ledger.purge])
