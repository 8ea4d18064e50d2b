"""Prometheus metrics of the hooks of coding agents."""

from __future__ import annotations

from rookery.agents.models.agent_hooks import HookOutcome
from rookery.coding_agents.hook_declarations import HookEvent
from rookery.kernel.metrics import Metrics


class HookMetrics:
    """The counter of this process."""

    def __init__(self, metrics: Metrics) -> None:
        self._hooks = metrics.add_counter(
            "rookery_agent_hooks_total", "Events of coding agents, by client, event and outcome.", "client", "event", "outcome"
        )

    def record(self, client: str, event: HookEvent, outcome: HookOutcome) -> None:
        """Count an event."""
        self._hooks.add(client, event, outcome.value)
