"""The generator of test keys: it calls no model, and its answers say so."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import orjson

from rookery.content.chat import ChatRequest, Completion, Delta, TokenUsage, estimate_input_tokens, estimate_tokens
from rookery.content.errors import ResponseSchemaMismatch
from rookery.content.response_schema import AnswerMismatch, ResponseSchema
from rookery.engines.text_generators.schema_sample import SampleBuilder

CANNED_MODEL = "canned"
CANNED_TEXT = "This is the fixed answer for test keys. No language model was called."
_WORDS = re.compile(r"\S+\s*")


class CannedGenerator:
    """
    An implementation of `content.ports.TextGenerator` that always gives the same answer.

    With a schema, it answers with the smallest value that it can derive from the schema, whose texts say the same.
    """

    model = CANNED_MODEL

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the fixed answer. Raises `ResponseSchemaMismatch` if it cannot derive a value from the schema."""
        text = CANNED_TEXT if request.response_schema is None else _answer_with_schema(request)
        return Completion(
            text=text,
            finish_reason="stop",
            usage=_estimate_usage(request, text),
            model=CANNED_MODEL,
            schema_mode=None if request.response_schema is None else "json_schema",
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Completion]:
        """Yield the fixed answer word by word, and the completion."""
        completion = await self.complete(request)
        for word in _WORDS.findall(completion.text):
            yield Delta(word)
        yield completion

    async def probe(self) -> None:
        """Do nothing: it always works."""

    async def close(self) -> None:
        """Do nothing: it holds no resources."""


def _estimate_usage(request: ChatRequest, text: str) -> TokenUsage:
    return TokenUsage(input_tokens=estimate_input_tokens(request.messages), output_tokens=estimate_tokens(text), is_estimated=True)


def _answer_with_schema(request: ChatRequest) -> str:
    schema = request.response_schema or {}
    compiled = ResponseSchema(schema)
    text = orjson.dumps(SampleBuilder(schema).build(schema)).decode()
    try:
        return compiled.extract(text)
    except AnswerMismatch as mismatch:
        reason = f"the fixed answer of test keys cannot be derived from this schema: {mismatch}"
        raise ResponseSchemaMismatch(reason, excerpt=text, attempts=1, usage=_estimate_usage(request, text)) from None
