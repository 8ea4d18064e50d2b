"""Prices of models and the cost of calls. Amounts are billionths (`kernel.money`). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.content.chat import MAX_SCHEMA_ATTEMPTS, MESSAGE_OVERHEAD_TOKENS, ChatMessage, TokenUsage
from rookery.content.models import CostOverrun

ANY_MODEL = "*"
"""The name of the price for all models without a price of their own."""

_BYTES_PER_TOKEN = 3
"""UTF-8 bytes of a token in a reservation: fewer than a token of most texts has, so that the reservation is seldom too low."""

_MILLIS = 1000
_MAX_OVERRUN_FACTOR = 100
"""The greatest ratio of a reservation to its estimate, so that a single wrong bill does not block a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """The price of a model, in billionths per token; *cached_nanos* is that of input that the provider had in its cache."""

    input_nanos: int
    output_nanos: int
    cached_nanos: int


class PriceList:
    """
    The prices of the operator's settings.

    Args:
        prices: The name of a model, and its prices of input, output and cached input tokens in billionths. Without the last one, cached
            input has the price of other input.
    """

    def __init__(self, prices: Sequence[tuple[str, int, int] | tuple[str, int, int, int]]) -> None:
        self._by_model = {
            model: ModelPrice(input_nanos=input_nanos, output_nanos=output_nanos, cached_nanos=cached[0] if cached else input_nanos)
            for model, input_nanos, output_nanos, *cached in prices
        }

    def find(self, model: str) -> ModelPrice | None:
        """Return the price of *model*, or that of all other models; None if neither is set."""
        return self._by_model.get(model, self._by_model.get(ANY_MODEL))


def compute_cost(price: ModelPrice, usage: TokenUsage) -> int:
    """Return the cost of *usage* in billionths."""
    full_tokens = usage.input_tokens - usage.cached_tokens
    return full_tokens * price.input_nanos + usage.cached_tokens * price.cached_nanos + usage.output_tokens * price.output_nanos


def estimate_max_usage(messages: Iterable[ChatMessage], *, max_tokens: int, has_schema: bool) -> TokenUsage:
    """
    Return the usage for which a call reserves: its estimated input, and as many output tokens as it may use.

    A call with a schema may take several attempts, each with the answers before it.
    """
    texts = (len(message.content.encode()) // _BYTES_PER_TOKEN + 1 + MESSAGE_OVERHEAD_TOKENS for message in messages)
    once = TokenUsage(input_tokens=sum(texts), output_tokens=max_tokens)
    if not has_schema:
        return once
    repeated_tokens = sum(range(MAX_SCHEMA_ATTEMPTS)) * max_tokens
    input_tokens = once.input_tokens * MAX_SCHEMA_ATTEMPTS + repeated_tokens
    return TokenUsage(input_tokens=input_tokens, output_tokens=max_tokens * MAX_SCHEMA_ATTEMPTS)


def add_overrun(estimate_nanos: int, overrun: CostOverrun | None) -> int:
    """
    Return the amount to reserve for a call whose cost is estimated.

    A provider may add the same text to each prompt, or count more tokens in any text. The lower of both bounds is used, because the ratio
    of a short call would block long ones, and the difference of a long call short ones. The first call of another size may cost more.
    """
    if overrun is None:
        return estimate_nanos
    return min(-(-estimate_nanos * overrun.factor_millis // _MILLIS), estimate_nanos + overrun.extra_nanos)


def extend_overrun(
    earlier: CostOverrun | None, *, workspace_id: int, model: str, estimate_nanos: int, cost_nanos: int, now: datetime
) -> CostOverrun:
    """Return *earlier* with a call that cost more than its estimate."""
    cost_nanos = min(cost_nanos, estimate_nanos * _MAX_OVERRUN_FACTOR)
    factor_millis, extra_nanos = -(-cost_nanos * _MILLIS // max(1, estimate_nanos)), cost_nanos - estimate_nanos
    return CostOverrun(
        workspace_id=workspace_id,
        model=model,
        factor_millis=max(factor_millis, _MILLIS if earlier is None else earlier.factor_millis),
        extra_nanos=max(extra_nanos, 0 if earlier is None else earlier.extra_nanos),
        updated_at=now,
    )
