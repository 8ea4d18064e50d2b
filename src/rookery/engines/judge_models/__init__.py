"""Engines of `scoring.ports.LanguageModel`: the judge's language model, which is that of content generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rookery.access.models import Caller
from rookery.content.chat import ChatMessage
from rookery.content.errors import PROVIDER_ERRORS, BudgetExhausted, ModelNotPriced
from rookery.content.metered_calls import MeteredCalls
from rookery.kernel.errors import RookeryError
from rookery.scoring.ports import ModelAnswer

__all__ = ["GeneratorJudge"]

_MAX_TOKENS = 1_000
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class GeneratorJudge:
    """A judge that asks the language model of content generation, at temperature 0. Its calls are charged to the caller."""

    calls: MeteredCalls

    errors: ClassVar[tuple[type[RookeryError], ...]] = (BudgetExhausted, ModelNotPriced, *PROVIDER_ERRORS)
    """The errors of `answer`."""

    async def answer(self, caller: Caller, instructions: str, document: str, *, schema: Mapping[str, object]) -> ModelAnswer:
        """Return the model's answer in JSON that matches *schema*. Errors of the provider and of budgets are passed on."""
        completion = await self.calls.complete(
            caller,
            (ChatMessage(role="system", content=instructions), ChatMessage(role="user", content=document)),
            response_schema=schema,
            max_tokens=_MAX_TOKENS,
            temperature=0.0,
            timeout_s=_TIMEOUT_S,
        )
        return ModelAnswer(completion.model, completion.text)
