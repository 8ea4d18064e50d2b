"""The tokens that a provider reports, and those that it bills. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from rookery.content.chat import TokenUsage

_MAX_TOKENS = 10**9
"""Largest plausible number of tokens. A larger one counts as missing."""

_INPUT_NAMES = ("prompt_tokens", "input_tokens")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens")
_INPUT_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")
_CACHED_NAMES = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedUsage:
    """The numbers of a provider's `usage`; None: it has none, or an impossible one."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None

    def merge(self, other: ReportedUsage | None) -> ReportedUsage:
        """Return the greater of each number: streams report a usage several times, as a running sum or in parts."""
        if other is None:
            return self
        return ReportedUsage(
            input_tokens=_greater(self.input_tokens, other.input_tokens),
            output_tokens=_greater(self.output_tokens, other.output_tokens),
            total_tokens=_greater(self.total_tokens, other.total_tokens),
            reasoning_tokens=_greater(self.reasoning_tokens, other.reasoning_tokens),
            cached_tokens=_greater(self.cached_tokens, other.cached_tokens),
        )


def parse_usage(value: object) -> ReportedUsage | None:
    """Return the numbers of a `usage`; None if it has none that count."""
    fields = _as_object(value)
    if not fields:
        return None
    input_tokens, output_tokens = _find_count(fields, _INPUT_NAMES), _find_count(fields, _OUTPUT_NAMES)
    if input_tokens is not None and "prompt_tokens" not in fields:  # Anthropic's names: the cache is counted beside the input
        input_tokens += sum(_parse_count(fields.get(name)) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    total_tokens = _parse_count(fields.get("total_tokens"))
    if not (input_tokens or output_tokens or total_tokens):
        return None
    return ReportedUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total_tokens,
        reasoning_tokens=_find_detail(fields, _OUTPUT_DETAILS, ("reasoning_tokens",)),
        cached_tokens=_find_detail(fields, _INPUT_DETAILS, _CACHED_NAMES),
    )


def compute_usage(reported: ReportedUsage | None, *, estimate: TokenUsage) -> TokenUsage:
    """
    Return the tokens that are billed.

    Providers disagree on the numbers: some count reasoning only in the total, or only in the details, and some count cached tokens only
    in the details. The total is what they bill, so what it has beyond both sides is output, or cached input if it is exactly that.

    Args:
        estimate: The usage as computed from the texts, for what is not reported. Its output is split into text and reasoning.
    """
    if reported is None:
        return estimate
    input_tokens, output_tokens, total = reported.input_tokens or 0, reported.output_tokens or 0, reported.total_tokens or 0
    reasoning, cached = reported.reasoning_tokens or 0, reported.cached_tokens or 0
    if 0 < input_tokens < cached:
        input_tokens += cached
    input_tokens, output_tokens, is_estimated = _fill(input_tokens, output_tokens, total, reasoning, estimate)
    extra = total - input_tokens - output_tokens
    if extra > 0 and extra == cached != reasoning:
        input_tokens += extra
    elif extra > 0:
        output_tokens, reasoning = output_tokens + extra, max(reasoning, extra)
    if reported.output_tokens and reasoning > reported.output_tokens:
        output_tokens = max(output_tokens, reported.output_tokens + reasoning)
    return TokenUsage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=min(reasoning, output_tokens),
        cached_tokens=min(cached, input_tokens),
        is_estimated=is_estimated,
    )


def _fill(input_tokens: int, output_tokens: int, total: int, reasoning: int, estimate: TokenUsage) -> tuple[int, int, bool]:
    """
    Return the input and the output, with what is not reported, and whether a part of it is an estimate.

    The rest of a total is exact. A side alone is doubtful, as some providers report only what they have counted so far, so it counts
    where it is more than the estimate.
    """
    is_empty = not estimate.output_tokens
    if input_tokens and (output_tokens or (is_empty and total <= input_tokens)):
        return input_tokens, output_tokens, False
    if total > max(input_tokens, output_tokens) > 0:
        return (input_tokens, total - input_tokens, False) if input_tokens else (total - output_tokens, output_tokens, False)
    visible = estimate.output_tokens - estimate.reasoning_tokens
    estimated_output = visible + max(reasoning, estimate.reasoning_tokens)
    if not input_tokens and not output_tokens:
        estimated_total = estimate.input_tokens + estimated_output
        input_tokens = (
            min(estimate.input_tokens, total * estimate.input_tokens // max(1, estimated_total))
            if total < estimated_total
            else estimate.input_tokens
        )
        return input_tokens, total - input_tokens, True
    return max(input_tokens, estimate.input_tokens), max(output_tokens, estimated_output), True


def _greater(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _find_count(fields: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name in fields and (count := _parse_count(fields[name])) is not None:
            return count
    return None


def _find_detail(fields: Mapping[str, object], groups: tuple[str, ...], names: tuple[str, ...]) -> int | None:
    """Return a number of the details, or one beside the other numbers."""
    for group in groups:
        if (details := fields.get(group)) and (count := _find_count(_as_object(details), names)):
            return count
    return _find_count(fields, names)


def _parse_count(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS
    return cast("int", value) if is_count else None


def _as_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
