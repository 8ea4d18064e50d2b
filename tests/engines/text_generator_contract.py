"""
The contract of `TextGenerator` as tests. The test class of an engine inherits `TextGeneratorContract` and defines `open_engine`.

    class TestMyGenerator(TextGeneratorContract):
        @pytest.fixture
        def open_engine(self) -> OpenGenerator:
            ...
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from contextlib import aclosing
from typing import Protocol

import jsonschema_rs
import pytest

from rookery.content.chat import ChatMessage, ChatRequest, Completion, Delta
from rookery.content.ports import TextGenerator
from rookery.kernel.errors import ValidationFailed
from tests.deadlines import HANG_S
from tests.engines.engine_contracts import EngineContract

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "height_m": {"type": "integer"}},
    "required": ["city", "height_m"],
    "additionalProperties": False,
}


class OpenGenerator(Protocol):
    """Opens an instance of the engine, which is closed at the end of the test."""

    def __call__(self) -> TextGenerator: ...


def make_request(model: str = "ok", text: str = "How high is Lyon?", **fields: object) -> ChatRequest:
    """Return a request with one message."""
    values: dict[str, object] = {"max_tokens": 40, "timeout_s": HANG_S, **fields}
    return ChatRequest(model=model, messages=(ChatMessage(role="user", content=text),), **values)  # pyright: ignore[reportArgumentType]


async def collect(generator: TextGenerator, request: ChatRequest) -> tuple[list[str], Completion]:
    """Return the pieces of a streamed answer and its completion, which must be the only one and the last."""
    events = [event async for event in generator.stream(request)]
    pieces = [event.text for event in events if isinstance(event, Delta)]
    assert isinstance(events[-1], Completion)
    assert len(pieces) == len(events) - 1
    return pieces, events[-1]


class TextGeneratorContract(EngineContract, ABC):
    """Tests of every engine of `TextGenerator`."""

    port = "TextGenerator"

    @pytest.fixture
    @abstractmethod
    def open_engine(self) -> OpenGenerator:
        """Return a function that opens another instance of the same engine."""
        ...

    @pytest.fixture
    def generator(self, open_engine: OpenGenerator) -> TextGenerator:
        """Return the engine."""
        return open_engine()

    async def test_an_answer_has_text_usage_and_a_model(self, generator: TextGenerator) -> None:
        """Usage and cost are computed from it."""
        completion = await generator.complete(make_request(generator.model))

        assert completion.text.strip()
        assert completion.usage.input_tokens > 0 < completion.usage.output_tokens
        assert (completion.attempts, completion.schema_mode) == (1, None)
        assert completion.model

    async def test_a_stream_ends_with_one_completion_that_has_all_pieces(self, generator: TextGenerator) -> None:
        """A streamed answer is stored and charged as a whole one."""
        pieces, completion = await collect(generator, make_request(generator.model))

        assert all(pieces)
        assert "".join(pieces) == completion.text
        assert completion.usage.output_tokens > 0

    async def test_an_answer_with_a_schema_matches_it(self, generator: TextGenerator) -> None:
        """JSON-schema output."""
        completion = await generator.complete(make_request(generator.model, response_schema=SCHEMA, max_tokens=200))

        jsonschema_rs.validate(SCHEMA, json.loads(completion.text))
        assert completion.schema_mode is not None

    async def test_a_streamed_answer_with_a_schema_matches_it(self, generator: TextGenerator) -> None:
        """The port: it is validated at its end."""
        pieces, completion = await collect(generator, make_request(generator.model, response_schema=SCHEMA, max_tokens=200))

        jsonschema_rs.validate(SCHEMA, json.loads(completion.text))
        assert "".join(pieces).strip() == completion.text

    @pytest.mark.parametrize("schema", [{"type": "text"}, {"minimum": "1"}, {"$ref": "http://127.0.0.1:1/schema"}, {"pattern": "("}])
    async def test_an_invalid_schema_is_rejected(self, generator: TextGenerator, schema: dict[str, object]) -> None:
        """422 names the field. References to other documents are never fetched."""
        with pytest.raises(ValidationFailed, match="schema: is not a valid JSON schema"):
            await generator.complete(make_request(generator.model, response_schema=schema))
        with pytest.raises(ValidationFailed, match="schema: is not a valid JSON schema"):
            await collect(generator, make_request(generator.model, response_schema=schema))

    async def test_requests_at_the_same_time_get_their_own_answers(self, generator: TextGenerator) -> None:
        """The port: all methods are safe for concurrent use."""
        requests = [make_request(generator.model, f"Say the number {number}.", max_tokens=8) for number in range(6)]
        completions = await asyncio.gather(*(generator.complete(request) for request in requests))
        streamed = await asyncio.gather(*(collect(generator, request) for request in requests[:3]))

        assert all(completion.text for completion in [*completions, *(completion for _, completion in streamed)])

    async def test_a_stream_that_is_closed_early_affects_no_other(self, generator: TextGenerator) -> None:
        """A client that leaves cancels upstream."""
        async with aclosing(generator.stream(make_request(generator.model))) as events:
            assert isinstance(await anext(events), Delta)

        assert (await generator.complete(make_request(generator.model, max_tokens=8))).text

    async def test_a_cancelled_call_affects_no_other(self, generator: TextGenerator) -> None:
        """The port: it can be cancelled at any time."""
        call = asyncio.ensure_future(generator.complete(make_request(generator.model)))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])

        assert (await generator.complete(make_request(generator.model, max_tokens=8))).text

    async def test_an_engine_that_works_passes_its_probe(self, generator: TextGenerator) -> None:
        """`/readyz` shows its state."""
        await generator.probe()

    async def test_it_can_be_closed_twice(self, open_engine: OpenGenerator) -> None:
        """The port: close is idempotent."""
        generator = open_engine()
        await generator.complete(make_request(generator.model, max_tokens=8))
        await generator.close()
        await generator.close()
