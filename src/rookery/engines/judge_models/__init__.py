"""Engines of `scoring.ports.LanguageModel`: the judge's language model, which is that of content generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.content.chat import ChatMessage, ChatRequest
from rookery.content.ports import TextGenerator
from rookery.scoring.ports import ModelAnswer

__all__ = ["GeneratorJudge"]

_MAX_TOKENS = 1_000
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class GeneratorJudge:
    """A judge that asks a text generator, at temperature 0."""

    generator: TextGenerator

    async def answer(self, instructions: str, document: str, *, schema: Mapping[str, object]) -> ModelAnswer:
        """Return the generator's answer in JSON that matches *schema*. Errors of the provider are passed on."""
        messages = (ChatMessage(role="system", content=instructions), ChatMessage(role="user", content=document))
        completion = await self.generator.complete(
            ChatRequest(
                model=self.generator.model,
                messages=messages,
                max_tokens=_MAX_TOKENS,
                temperature=0.0,
                response_schema=schema,
                timeout_s=_TIMEOUT_S,
            )
        )
        return ModelAnswer(completion.model, completion.text)
