"""Prometheus metrics of generations."""

from __future__ import annotations

from rookery.content.models import Generation, GenerationOutcome
from rookery.kernel.metrics import Metrics

_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


class GenerationMetrics:
    """The counters and durations of this process."""

    def __init__(self, metrics: Metrics) -> None:
        self._ended = metrics.add_counter("rookery_generations_total", "Generations that ended, by status and mode.", "status", "mode")
        self._durations = metrics.add_histogram(
            "rookery_generation_provider_duration_seconds",
            "Duration of a call at the provider of language models, with its attempts.",
            bounds=_BOUNDS_S,
        )
        self._tokens = metrics.add_counter(
            "rookery_generation_tokens_total", "Tokens of calls, by direction: input or output, which includes reasoning.", "direction"
        )

    def record_call(self, outcome: GenerationOutcome) -> None:
        """Count a call at the provider."""
        self._durations.observe(outcome.latency_ms / 1000)
        if outcome.usage is not None:
            self._tokens.add("input", by=outcome.usage.input_tokens)
            self._tokens.add("output", by=outcome.usage.output_tokens)

    def record_end(self, generation: Generation) -> None:
        """Count a generation that ended."""
        self._ended.add(generation.status.value, generation.mode.value)
