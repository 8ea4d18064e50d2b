"""What tells an operator how it goes: metrics, traces, and a line for each request."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import cast

from rookery.access.networks import caller_address, proxies
from rookery.engines import traces
from rookery.kernel.config import Settings
from rookery.kernel.events import Bus
from rookery.kernel.http.metrics_page import MetricsPort
from rookery.kernel.http.traffic import Traffic
from rookery.kernel.metrics import Metrics
from rookery.kernel.tracing import Tracer
from rookery.observation.figures import Figures, Watched

__all__ = ["Observation", "Watched", "observe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """
    The parts.

    Attributes:
        tracer: None: nothing is traced.
        port: None: metrics are shown to keys alone.
    """

    metrics: Metrics
    figures: Figures
    traffic: Traffic
    tracer: Tracer | None
    port: MetricsPort | None

    async def start(self, running: AsyncExitStack) -> None:
        """Open what there is to open, closed with *running*: last of all, so that the end is seen too."""
        if self.tracer is not None:
            running.push_async_callback(self.tracer.close)
        if self.port is not None:
            await self.port.start()
            running.push_async_callback(self.port.aclose)


def observe(settings: Settings, metrics: Metrics, bus: Bus) -> Observation:
    """
    Return what *settings* ask for; nothing is opened yet.

    Raises:
        WrongSettings: ROOKERY_TRACES cannot be.
    """
    trusted = proxies(settings.trusted_proxies)

    def address(scope: Mapping[str, object]) -> str:
        client = cast("tuple[str, int] | None", scope.get("client"))
        headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
        forwarded = [value for name, value in headers if name == b"x-forwarded-for"]
        return caller_address(client[0] if client else None, forwarded, trusted)

    return Observation(
        metrics=metrics,
        figures=Figures(metrics, bus),
        traffic=Traffic(metrics, access_log=settings.access_log, address=address),
        tracer=traces.open(settings.traces.reveal()),
        port=None if settings.metrics_port is None else MetricsPort(metrics, settings.metrics_port),
    )
