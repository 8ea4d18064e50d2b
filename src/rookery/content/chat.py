"""The types of an exchange with a language model: messages, requests, completions and token usage. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

from rookery.kernel.money import CHARS_PER_TOKEN

Role = Literal["system", "user", "assistant"]

SchemaMode = Literal["json_schema", "json_object", "prompt"]
"""
The way in which JSON output was requested, from the strictest.

    json_schema  `response_format` with the schema, which the provider enforces
    json_object  `response_format` without it: the provider enforces JSON, and the prompt has the schema
    prompt       the prompt has the schema, and the provider enforces nothing
"""

MAX_SCHEMA_ATTEMPTS = 3
"""Maximum answers that are requested for one completion with a schema: the first, and two that carry the errors of the previous ones."""


MESSAGE_OVERHEAD_TOKENS = 4
"""Tokens of a message in an estimate for its role and its separators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """
    A request for one completion.

    Attributes:
        model: The name of the model at the provider.
        max_tokens: Maximum tokens of an answer; None for the provider's default.
        temperature: None for the provider's default.
        is_temperature_optional: The model's own temperature will do if it accepts no other. A value that a user chose is not optional.
        seed: A number that makes answers repeatable at providers that support it; None to send none.
        response_schema: The JSON schema that the answer must match; None for free text.
        timeout_s: Total time of the completion, with all attempts and their delays.
    """

    model: str
    messages: tuple[ChatMessage, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    is_temperature_optional: bool = False
    seed: int | None = None
    response_schema: Mapping[str, object] | None = None
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUsage:
    """
    Tokens that were used. With several attempts: the sum of all of them.

    Attributes:
        output_tokens: All billed tokens of the answers, with those of the reasoning.
        reasoning_tokens: The part of *output_tokens* that is reasoning; 0 if the provider reports none.
        cached_tokens: The part of *input_tokens* that the provider read from its cache of prompts; 0 if it reports none.
        is_estimated: True if the provider did not report the usage of at least one attempt, and it was computed from the texts.
    """

    input_tokens: int
    output_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False

    def __add__(self, other: Self) -> TokenUsage:
        return TokenUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            is_estimated=self.is_estimated or other.is_estimated,
        )


NO_USAGE = TokenUsage(input_tokens=0, output_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """
    The answer of a model.

    Attributes:
        text: The whole answer without its reasoning. With a schema: JSON that matches it, without the fence of a code block.
        finish_reason: The provider's reason, such as `stop` or `length`; None if it gave none.
        usage: The tokens of all attempts.
        model: The model as the provider names it, which can be more exact than the requested name.
        schema_mode: The way in which JSON was requested; None without a schema.
        attempts: Number of answers that were requested; more than 1 if earlier ones did not match the schema.
        reasoning: The reasoning of the last attempt, as far as the model shows it; empty if it shows none.
    """

    text: str
    finish_reason: str | None
    usage: TokenUsage
    model: str
    schema_mode: SchemaMode | None = None
    attempts: int = 1
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of an answer that is being streamed, or of the reasoning before it. One of both is empty."""

    text: str
    reasoning: str = ""


def estimate_tokens(text: str) -> int:
    """Return the estimated number of tokens of *text*: a quarter of its characters, rounded up."""
    return math.ceil(len(text) / CHARS_PER_TOKEN)


def estimate_input_tokens(messages: Iterable[ChatMessage]) -> int:
    """Return the estimated number of tokens of *messages*."""
    return sum(MESSAGE_OVERHEAD_TOKENS + estimate_tokens(message.content) for message in messages)
