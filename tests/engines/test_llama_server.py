"""The text generator on a real provider: llama.cpp's server with a small model. Its answers mean little, so they are short."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from rookery.content.errors import ProviderAccessDenied, ProviderRefused, ResponseSchemaMismatch
from rookery.content.ports import TextGenerator
from rookery.engines import text_generators
from tests.engines.conftest import CloseAtEnd
from tests.engines.text_generator_contract import collect, make_request
from tests.llama_server import run_llama_server
from tests.postgres import free_port

pytestmark = pytest.mark.external_service

KEY = "the-key-of-the-model"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run the server for the module, and yield its address."""
    with run_llama_server(free_port(), KEY) as address:
        if address is None:
            pytest.skip("llama.cpp's server is not installed: make test-engines")
        yield address


@pytest.fixture
def generator(address: str, close_at_end: CloseAtEnd) -> TextGenerator:
    """Return a generator on the server."""
    return close_at_end(text_generators.open(address))


async def test_a_real_model_answers(generator: TextGenerator) -> None:
    """Text, streamed text and reported usage."""
    await generator.probe()
    completion = await generator.complete(make_request(generator.model, max_tokens=6))
    pieces, streamed = await collect(generator, make_request(generator.model, max_tokens=6))

    assert completion.text.strip()
    assert len(pieces) > 1
    assert "".join(pieces) == streamed.text
    for answer in (completion, streamed):
        assert (answer.finish_reason, answer.usage.output_tokens, answer.usage.is_estimated) == ("length", 6, False)


async def test_a_real_model_follows_a_schema(generator: TextGenerator) -> None:
    """`response_format` with the schema, which llama.cpp turns into a grammar."""
    schema = {"enum": ["heron", "egret"]}
    completion = await generator.complete(make_request(generator.model, response_schema=schema, max_tokens=20))

    assert completion.text in {'"heron"', '"egret"'}
    assert (completion.schema_mode, completion.attempts) == ("json_schema", 1)


async def test_a_schema_that_a_real_server_rejects_degrades_no_other(address: str, close_at_end: CloseAtEnd) -> None:
    """
    llama.cpp converts no `true` to a grammar, and without one this model may close no object.

    The next schema is sent strictly again.
    """
    generator = close_at_end(text_generators.open(address))
    stars = {"type": "object", "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}}, "required": ["stars"]}
    strict = {**stars, "additionalProperties": False}
    odd = {"type": "object", "properties": {"v": True}}
    with capture_logs() as logs, suppress(ResponseSchemaMismatch):
        await generator.complete(make_request(generator.model, response_schema=odd, max_tokens=60))
    completions = [await generator.complete(make_request(generator.model, response_schema=strict, max_tokens=60)) for _ in range(2)]

    assert [log["schema_mode"] for log in logs if log["event"] == "generation.features_reduced"] == ["json_object"]
    assert [(completion.schema_mode, completion.attempts) for completion in completions] == [("json_schema", 1)] * 2


async def test_a_real_server_rejects_what_it_cannot_do(address: str, generator: TextGenerator, close_at_end: CloseAtEnd) -> None:
    """Its own words are passed on; nothing is repeated."""
    with pytest.raises(ProviderRefused, match="exceeds the available context size"):
        await generator.complete(make_request(generator.model, "heron " * 4000))
    with pytest.raises(ProviderAccessDenied):
        await close_at_end(text_generators.open(address.replace(KEY, "wrong"))).complete(make_request(generator.model))
