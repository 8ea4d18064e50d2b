"""Observability for operators: metrics, traces and the access log."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import cast

from rookery.access.networks import parse_proxies, resolve_client_address
from rookery.engines import traces
from rookery.kernel.config import Settings
from rookery.kernel.events import EventBus
from rookery.kernel.http.access_log import RequestMetrics
from rookery.kernel.http.metrics_page import MetricsServer
from rookery.kernel.metrics import Metrics
from rookery.kernel.server_group import ServerGroup
from rookery.kernel.tracing import Tracer
from rookery.observability.platform_metrics import MetricTargets, PlatformMetrics

__all__ = ["MetricTargets", "Observability", "build_observability"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observability:
    """
    The parts of observability.

    Attributes:
        tracer: None if tracing is off.
        metrics_server: None if metrics are served only to keys.
    """

    metrics: Metrics
    platform_metrics: PlatformMetrics
    request_metrics: RequestMetrics
    tracer: Tracer | None
    metrics_server: MetricsServer | None

    async def start(self, exit_stack: AsyncExitStack) -> None:
        """Start the tracer and the metrics server. *exit_stack* closes them last, so that they cover the shutdown."""
        if self.tracer is not None:
            exit_stack.push_async_callback(self.tracer.close)
        if self.metrics_server is not None:
            await self.metrics_server.start()
            exit_stack.push_async_callback(self.metrics_server.aclose)


def build_observability(settings: Settings, metrics: Metrics, bus: EventBus, group: ServerGroup) -> Observability:
    """
    Return the observability according to *settings*. Nothing is opened.

    Raises:
        WrongSettings: ROOKERY_TRACES is invalid.
    """
    trusted = parse_proxies(settings.trusted_proxies)

    def address(scope: Mapping[str, object]) -> str:
        client = cast("tuple[str, int] | None", scope.get("client"))
        headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        return resolve_client_address(client[0] if client else None, forwarded, trusted)

    return Observability(
        metrics=metrics,
        platform_metrics=PlatformMetrics(metrics, bus),
        request_metrics=RequestMetrics(metrics, access_log=settings.access_log, client_address=address),
        tracer=traces.open(settings.traces.reveal()),
        metrics_server=None
        if settings.metrics_port is None
        else MetricsServer(metrics, settings.metrics_port, shared_socket=group.metrics_socket),
    )
