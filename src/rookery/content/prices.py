"""Prices of models and the cost of calls. Amounts are billionths (`kernel.money`). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rookery.content.chat import MAX_SCHEMA_ATTEMPTS, MESSAGE_OVERHEAD_TOKENS, ChatMessage, TokenUsage

ANY_MODEL = "*"
"""The name of the price for all models without a price of their own."""

_BYTES_PER_TOKEN = 3
"""UTF-8 bytes of a token in a reservation: fewer than a token of most texts has, so that the reservation is seldom too low."""


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


def compute_max_cost(price: ModelPrice, messages: Iterable[ChatMessage], *, max_tokens: int, has_schema: bool) -> int:
    """
    Return the amount to reserve for a call: its estimated input, and as many output tokens as it may use.

    A call with a schema may take several attempts, each with the answers before it.
    """
    texts = (len(message.content.encode()) // _BYTES_PER_TOKEN + 1 + MESSAGE_OVERHEAD_TOKENS for message in messages)
    once = TokenUsage(input_tokens=sum(texts), output_tokens=max_tokens)
    if not has_schema:
        return compute_cost(price, once)
    repeated_tokens = sum(range(MAX_SCHEMA_ATTEMPTS)) * max_tokens
    input_tokens = once.input_tokens * MAX_SCHEMA_ATTEMPTS + repeated_tokens
    return compute_cost(price, TokenUsage(input_tokens=input_tokens, output_tokens=max_tokens * MAX_SCHEMA_ATTEMPTS))
