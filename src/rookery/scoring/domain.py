"""The registration of the scoring domain. It has no tables: texts are not stored."""

from __future__ import annotations

from rookery.kernel.domain import Domain
from rookery.kernel.runtime import Runtime
from rookery.scoring.api import ScoringApi
from rookery.scoring.models import ROUTE_PREFIX
from rookery.scoring.wiring import ScoringServices


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started, and no weights are loaded."""
    services = runtime.use(ScoringServices)
    api = ScoringApi(services.scorer, services.judge, runtime.settings.public_url_of(ROUTE_PREFIX), services.judge_errors)
    return Domain(operations=[(ROUTE_PREFIX, api.operations())], tool_servers=[api.server()])
