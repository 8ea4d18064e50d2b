"""Generation of text by providers with OpenAI's protocol, tested on a local service that is scripted byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol, cast

import pytest

from rookery.content.chat import ChatMessage, ChatRequest, Completion, Delta, TokenUsage, estimate_input_tokens
from rookery.content.errors import (
    ProviderAccessDenied,
    ProviderError,
    ProviderRateLimited,
    ProviderRefused,
    ProviderResponseInvalid,
    ProviderUnavailable,
    ResponseSchemaMismatch,
    StreamInterrupted,
)
from rookery.content.ports import TextGenerator
from rookery.engines import text_generators
from rookery.engines.text_generators.canned import CANNED_TEXT, CannedGenerator
from rookery.engines.text_generators.http_client import Timeouts
from rookery.engines.text_generators.openai import OpenAiTextGenerator
from rookery.engines.text_generators.provider import parse_url
from rookery.kernel.egress.service_client import RetryBounds
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from tests.certificates import write_certificate
from tests.chat_service import (
    ANSWER,
    JSON_ANSWER,
    KEY,
    ChatService,
    Exchange,
    Script,
    answer,
    build_chunk,
    build_completion,
    build_event,
    build_events,
    cut,
    fail,
    reject_field,
    respond,
    run_chat_service,
    stream_parts,
)
from tests.conftest import eventually
from tests.engines.conftest import CloseAtEnd
from tests.engines.engine_contracts import HowTested
from tests.engines.text_generator_contract import SCHEMA, OpenGenerator, TextGeneratorContract, collect, make_request

REPORTED_USAGE = TokenUsage(input_tokens=11, output_tokens=17)
FAST_RETRIES = RetryBounds(min_delay_s=0.001)


class OpenConfigured(Protocol):
    """Opens a generator on the service, with other bounds if that is wanted."""

    def __call__(
        self, *, timeouts: Timeouts | None = None, retries: RetryBounds = FAST_RETRIES, max_answer_bytes: int = 8 * 1024 * 1024
    ) -> OpenAiTextGenerator: ...


@pytest.fixture
def service() -> Iterator[ChatService]:
    """Yield a service that requires a key."""
    with run_chat_service() as running:
        yield running


@pytest.fixture
def open_configured(service: ChatService, close_at_end: CloseAtEnd) -> OpenConfigured:
    """Return a function that opens a generator on the service."""

    def open_it(
        *, timeouts: Timeouts | None = None, retries: RetryBounds = FAST_RETRIES, max_answer_bytes: int = 8 * 1024 * 1024
    ) -> OpenAiTextGenerator:
        provider = parse_url(service.url(), setting="ROOKERY_GENERATION")
        return close_at_end(OpenAiTextGenerator(provider, timeouts=timeouts, retries=retries, max_answer_bytes=max_answer_bytes))

    return open_it


@pytest.fixture
def generator(open_configured: OpenConfigured) -> OpenAiTextGenerator:
    """Return a generator on the service with short delays of retries."""
    return open_configured()


async def read_into(pieces: list[str], events: AsyncGenerator[Delta | Completion]) -> None:
    """Append the pieces of an answer, also if it fails in the middle."""
    async for event in events:
        assert isinstance(event, Delta)
        pieces.append(event.text)


class TestAProvider(TextGeneratorContract):
    """The contract, for a provider over HTTP."""

    engine = "`openai:`, `ollama:`"
    tested_on = HowTested.STAND_IN
    tested_with = "a chat service; `test_llama_server.py` uses llama.cpp besides"

    @pytest.fixture
    def open_engine(self, service: ChatService, close_at_end: CloseAtEnd) -> OpenGenerator:
        """Return a function that opens a generator on the service."""
        return lambda: close_at_end(text_generators.open(service.url()))


class TestTheCannedGenerator(TextGeneratorContract):
    """The contract, for the generator of test keys."""

    engine = "answers of test keys"

    @pytest.fixture
    def open_engine(self) -> OpenGenerator:
        """Return the class itself."""
        return CannedGenerator


async def test_the_request_is_exactly_what_the_protocol_has(service: ChatService, generator: TextGenerator) -> None:
    """The wire is checked. Parameters without a value are left to the provider."""
    messages = (ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content="Grüße, 鷺 🪶"))
    await generator.complete(ChatRequest(model="ok", messages=messages))
    await generator.complete(ChatRequest(model="ok", messages=messages, max_tokens=7, temperature=0.0, seed=3))
    await collect(generator, ChatRequest(model="ok", messages=messages))
    plain, full, streamed = service.requests

    wire_messages = '[{"role":"system","content":"Be brief."},{"role":"user","content":"Grüße, 鷺 🪶"}]'
    assert plain.body.decode() == f'{{"model":"ok","messages":{wire_messages}}}'
    assert full.body.decode() == f'{{"model":"ok","messages":{wire_messages},"max_tokens":7,"temperature":0.0,"seed":3}}'
    assert streamed.body.decode() == (
        f'{{"model":"ok","messages":{wire_messages},"stream":true,"stream_options":{{"include_usage":true}}}}'
    )
    assert (plain.method, plain.path) == ("POST", "/v1/chat/completions")
    headers = {name: plain.headers[name] for name in ("authorization", "content-type", "accept", "accept-encoding", "user-agent")}
    assert headers == {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "rookery",
    }
    assert streamed.headers["accept"] == "text/event-stream"


async def test_the_answer_has_what_the_provider_reports(generator: TextGenerator) -> None:
    """Text, reason, usage and the exact model."""
    expected = Completion(text=ANSWER, finish_reason="stop", usage=REPORTED_USAGE, model="heron-1-2026")

    assert await generator.complete(make_request()) == expected
    assert (await collect(generator, make_request()))[1] == expected


async def test_missing_usage_is_estimated_and_marked(service: ChatService, generator: TextGenerator) -> None:
    """Usage then says `estimated`. Some providers report it never, or as negative or absurd numbers."""
    request = make_request("no-usage")
    estimate = TokenUsage(input_tokens=estimate_input_tokens(request.messages), output_tokens=-(-len(ANSWER) // 4), is_estimated=True)
    absurd = [{"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": True, "completion_tokens": 2}, {"prompt_tokens": 1}]
    absurd += [{"prompt_tokens": 1, "completion_tokens": 10**18}, {"prompt_tokens": "1", "completion_tokens": "2"}]
    service.queue += [respond(200, build_completion(usage=usage)) for usage in absurd]
    service.queue.append(stream_parts(build_events(usage=False)))

    for _ in absurd:
        assert (await generator.complete(request)).usage == estimate
    assert (await collect(generator, request))[1].usage == estimate
    assert (await generator.complete(request)).usage == estimate


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
async def test_a_stream_may_be_split_at_every_byte(service: ChatService, generator: TextGenerator, line_end: bytes) -> None:
    """Characters of four bytes and lines are split, line ends differ, and comments and other fields stand between."""
    stream = b": OPENROUTER PROCESSING\n\nevent: message\nid: 7\nretry: 10\n" + b"".join(build_events())
    data = stream.replace(b"\n", line_end)
    service.queue.append(stream_parts([data[index : index + 1] for index in range(len(data))]))
    pieces, completion = await collect(generator, make_request())

    assert "".join(pieces) == completion.text == ANSWER
    assert completion.usage == REPORTED_USAGE


async def test_data_of_several_lines_is_one_event(service: ChatService, generator: TextGenerator) -> None:
    """The standard of server-sent events joins them with a line feed."""
    lines = json.dumps(build_chunk("heron"), indent=1).splitlines()
    event = b"".join(b"data:" + line.encode() + b"\n" for line in lines) + b"\n"
    service.queue.append(stream_parts([event, *build_events("")]))

    assert (await collect(generator, make_request()))[0] == ["heron"]


@pytest.mark.parametrize("end", ["", "\n", "data: [DONE]", "data: [DONE]\n", ": bye\n\n", "data:\n\n", "event: done\ndata: [DONE]\n\n"])
async def test_the_end_of_a_stream_may_lack_its_mark(service: ChatService, generator: TextGenerator, end: str) -> None:
    """Some providers omit [DONE], or the empty line after it."""
    service.queue.append(stream_parts([*build_events(done=False), *([end.encode()] if end else [])]))

    assert (await collect(generator, make_request()))[1].text == ANSWER


async def test_a_stream_without_a_finish_reason_ends_with_its_mark(service: ChatService, generator: TextGenerator) -> None:
    """Some providers send no finish reason."""
    service.queue.append(stream_parts(build_events(finish_reason=None)))

    assert (await collect(generator, make_request()))[1].finish_reason is None


async def test_a_connection_that_is_cut_after_the_answer_loses_nothing(service: ChatService, generator: TextGenerator) -> None:
    """Only the usage is missing, so it is estimated."""
    service.queue.append(stream_parts(build_events(usage=False, done=False), then=cut))
    _, completion = await collect(generator, make_request())

    assert (completion.text, completion.usage.is_estimated) == (ANSWER, True)


async def test_a_provider_that_does_not_stream_is_read_as_a_whole(service: ChatService, generator: TextGenerator) -> None:
    """Some gateways ignore `stream`."""
    service.queue.append(respond(200, build_completion()))
    pieces, completion = await collect(generator, make_request())

    assert (pieces, completion.text, completion.usage) == ([ANSWER], ANSWER, REPORTED_USAGE)


async def test_content_may_be_a_list_of_parts(service: ChatService, generator: TextGenerator) -> None:
    """Some models answer with parts, of which only the text is the answer."""
    parts: list[object] = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a heron"}, {"type": "text", "text": "\x00"}]
    choice = {"message": {"role": "assistant", "content": parts}, "finish_reason": "stop"}
    service.queue.append(respond(200, build_completion(choices=[choice])))

    assert (await generator.complete(make_request())).text == "a heron\ufffd"


async def test_half_a_character_becomes_a_replacement_character(service: ChatService, generator: TextGenerator) -> None:
    """Services that cut between tokens send half a surrogate pair, or invalid UTF-8. Neither can be stored."""
    events = [
        b'data: {"choices": [{"delta": {"content": "a\\ud83e"}}]}\n\n',
        b'data: {"choices": [{"delta": {"content": "b\xf0\x9f"}}]}\n\n',
    ]
    service.queue.append(stream_parts([*events, *build_events("")]))

    assert (await collect(generator, make_request()))[0] == ["a\ufffd", "b\ufffd"]


async def test_a_failure_that_may_pass_is_repeated(service: ChatService, generator: TextGenerator) -> None:
    """Bounded retries after 408, 409, 429, 5xx and a lost connection. Retry-After is obeyed."""
    for status in (408, 409, 425, 429, 500, 502, 503, 504, 529):
        service.queue.append(fail(status, retry_after="0"))
        assert (await generator.complete(make_request())).text == ANSWER
        service.queue.append(fail(status, retry_after_ms="1"))
        assert (await collect(generator, make_request()))[1].text == ANSWER
    service.queue += [cut, cut]
    assert (await generator.complete(make_request())).text == ANSWER
    assert len({request.body for request in service.requests}) == 2


async def test_retry_after_is_obeyed(service: ChatService, generator: TextGenerator) -> None:
    """The next attempt comes no earlier than the provider says."""
    service.queue.append(fail(429, retry_after="1"))
    loop = asyncio.get_running_loop()
    started = loop.time()
    await generator.complete(make_request())

    assert loop.time() - started >= 1


@pytest.mark.parametrize(
    ("script", "text", "retry_after"),
    [
        (fail(429, "slow down", retry_after="0"), "limits the rate of requests: slow down", "1"),
        (fail(500, "boom"), "status 500: boom", "5"),
        (fail(503, retry_after="0"), "status 503", "1"),
        (respond(502, b"<html><title>502 Bad Gateway</title>"), "an HTML page, '502 Bad Gateway'", "5"),
        (cut, "closed the connection", "5"),
    ],
)
async def test_retries_are_bounded(service: ChatService, generator: TextGenerator, script: Script, text: str, retry_after: str) -> None:
    """Three attempts, then an error that says when to try again."""
    for stream in (False, True):
        service.requests.clear()
        service.queue += [script] * 3
        with pytest.raises((ProviderUnavailable, ProviderRateLimited), match=text) as error:
            await (collect(generator, make_request()) if stream else generator.complete(make_request()))

        assert (len(service.requests), error.value.headers) == (3, {"Retry-After": retry_after})
        assert not service.queue


async def test_a_longer_retry_after_is_passed_on(service: ChatService, open_configured: OpenConfigured) -> None:
    """The server does not wait for minutes, the caller may."""
    generator = open_configured(retries=RetryBounds(max_delay_s=2.0))
    for retry_after, expected in (("61", "61"), ("99999999", "86400"), ("Fri, 31 Dec 9999 23:59:59 GMT", "86400")):
        service.queue.append(fail(429, retry_after=retry_after))
        with pytest.raises(ProviderRateLimited) as error:
            await generator.complete(make_request())
        assert error.value.headers == {"Retry-After": expected}
    service.queue.append(fail(503, retry_after="3"))
    with pytest.raises(ProviderUnavailable) as unavailable:
        await generator.complete(make_request(timeout_s=1.0))

    assert unavailable.value.headers == {"Retry-After": "3"}
    assert len(service.requests) == 4


async def test_what_does_not_pass_is_not_repeated(service: ChatService, generator: TextGenerator) -> None:
    """Another attempt would fail too: 4xx, 501, an exhausted quota."""
    for status in (400, 404, 413, 422, 451, 501):
        service.queue.append(fail(status, f"reason {status}"))
        with pytest.raises(ProviderRefused, match=f"rejected the request with status {status}: reason {status}") as refused:
            await generator.complete(make_request())
        assert (refused.value.status, refused.value.detail) == (
            422,
            {"provider_status": status, "provider_message": f"reason {status}"},
        )
    service.queue.append(fail(429, "You exceeded your current quota", code="insufficient_quota"))
    with pytest.raises(ProviderAccessDenied, match="You exceeded your current quota"):
        await generator.complete(make_request())

    assert len(service.requests) == 7


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": "model is loading"}, "model is loading"),
        ({"message": "too long", "code": 400}, "too long"),
        ({"detail": "no such route"}, "no such route"),
        ({"detail": [{"loc": ["body", "messages", 0], "msg": "Field required"}]}, "body.messages.0: Field required"),
        ({"object": "error", "message": "context length is 4096"}, "context length is 4096"),
        ("plain words", "plain words"),
        (b"not json\r\nat all\x00", "not json at all"),
        (b"", "status 400"),
        ({}, "status 400"),
        ([1], "status 400"),
        ({"error": {"message": {"a": 1}}}, "status 400"),
        ({"error": {"message": "x" * 9000}}, "x" * 500),
    ],
)
async def test_the_words_of_the_provider_are_passed_on(service: ChatService, generator: TextGenerator, body: object, text: str) -> None:
    """Each form in which providers report an error."""
    service.queue.append(respond(400, body))
    with pytest.raises(ProviderRefused) as refused:
        await generator.complete(make_request())

    assert refused.value.detail["provider_message"] == text


async def test_words_that_only_begin_like_keys_are_shown(service: ChatService, close_at_end: CloseAtEnd) -> None:
    """The provider's message names the fault; a key has a digit or is masked."""
    generator = close_at_end(text_generators.open(service.url()))
    text = "metadata takes key-value pairs"
    service.queue.append(fail(400, text))
    with pytest.raises(ProviderError) as refused:
        await generator.complete(make_request())

    assert refused.value.detail["provider_message"] == text


async def test_no_error_contains_the_key(service: ChatService, close_at_end: CloseAtEnd, caplog: pytest.LogCaptureFixture) -> None:
    """House rule: secrets are never in answers or logs. OpenAI quotes a wrong key, partly masked."""
    wrong = close_at_end(text_generators.open(service.url(key="sk-wrong-key-0123456789")))
    right = close_at_end(text_generators.open(service.url()))
    errors: list[ProviderError] = []
    with pytest.raises(ProviderAccessDenied, match="it rejects the configured key") as denied:
        await wrong.complete(make_request())
    errors.append(denied.value)
    for status in (400, 402, 403, 500):
        text = f"key {KEY} or Bearer {KEY} or sk-the***tor and sk-proj-abcdef…wxyz are wrong"
        service.queue += [fail(status, text, retry_after="0")] * (3 if status == 500 else 1)
        with pytest.raises(ProviderError) as error:
            await right.complete(make_request())
        errors.append(error.value)
    service.queue.append(respond(200, f'{{"k": "{KEY}"}}'.encode()))
    with pytest.raises(ProviderResponseInvalid) as invalid:
        await right.complete(make_request())
    texts = "".join(json.dumps(error.body()) for error in [*errors, invalid.value]) + caplog.text

    assert not any(part in texts for part in ("sk-", KEY, "tor ", "wxyz"))
    assert [error.status for error in errors] == [502, 422, 502, 502, 503]


async def test_an_answer_that_is_no_completion_is_reported_with_its_start(service: ChatService, generator: TextGenerator) -> None:
    """Provider answering nonsense is a clear state with a reason, and is not requested again."""
    cases: list[tuple[object, str]] = [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"<html><title>Welcome", "not JSON"),
        (b"[]", "not a JSON object"),
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": {"0": 1}}, "no choices"),
        ({"choices": [1]}, "no message"),
        ({"choices": [{"message": "text"}]}, "no message"),
        ({"choices": [{"message": {"content": 7}}]}, "content of its message is of type int"),
        (build_completion(""), "it is empty"),
        (build_completion(" \n"), "it is empty"),
        (build_completion(choices=[{"message": {"content": None}, "finish_reason": "length"}]), "max_tokens may be too small"),
        (build_completion(choices=[{"message": {"role": "assistant"}, "finish_reason": "content_filter"}]), "content filter"),
        (build_completion(choices=[{"message": {"content": None, "refusal": "I cannot."}}]), "declines to answer"),
    ]
    for body, text in cases:
        service.queue.append(respond(200, body))
        with pytest.raises(ProviderResponseInvalid, match=text) as invalid:
            await generator.complete(make_request())
        assert len(cast("str", invalid.value.detail["excerpt"])) <= 300
    for status in (204, 302):
        service.queue.append(respond(status, b"", location="http://127.0.0.1:1/"))
        with pytest.raises(ProviderResponseInvalid, match=f"its status is {status}"):
            await generator.complete(make_request())

    assert len(service.requests) == len(cases) + 2


async def test_an_error_with_status_200_is_an_error(service: ChatService, generator: TextGenerator) -> None:
    """OpenRouter reports failures of the model's host that way."""
    cases: list[tuple[object, type[ProviderError]]] = [
        ({"error": {"message": "slow down", "code": 429}}, ProviderRateLimited),
        ({"error": {"message": "bad gateway", "code": 502}}, ProviderUnavailable),
        ({"error": {"message": "too long", "code": 400}}, ProviderRefused),
        ({"error": "boom"}, ProviderUnavailable),
    ]
    for body, error_class in cases:
        service.queue += [respond(200, body), stream_parts([build_event(body)])]
        with pytest.raises(error_class):
            await generator.complete(make_request())
        with pytest.raises(error_class):
            await collect(generator, make_request())


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (stream_parts(build_events()[:4], then=cut), "the provider closed the connection, after 12 characters"),
        (stream_parts(build_events()[:4]), "the provider closed the stream, after 12 characters"),
        (stream_parts([*build_events()[:4], b"data: {\n\n"]), "a chunk is invalid: it is not JSON, after 12 characters"),
        (stream_parts([*build_events()[:4], build_event({"error": {"message": "GPU lost"}})]), "GPU lost, after 12 characters"),
        (stream_parts([*build_events()[:4], b'event: error\ndata: {"message": "GPU lost"}\n\n']), "GPU lost, after 12 characters"),
        (stream_parts([*build_events()[:4], b"data: " + b"x" * 1_200_000]), "an event of the stream is too large, after 12"),
    ],
)
async def test_an_answer_that_ends_in_the_middle_is_not_repeated(
    service: ChatService, generator: TextGenerator, script: Script, text: str
) -> None:
    """Never a retry after a byte was streamed. The error says how much was received."""
    service.queue.append(script)
    pieces: list[str] = []
    with pytest.raises(StreamInterrupted, match=text) as interrupted:
        await read_into(pieces, generator.stream(make_request()))

    assert "".join(pieces) == ANSWER[:12]
    assert interrupted.value.detail == {"received_chars": 12}
    assert interrupted.value.usage == TokenUsage(input_tokens=9, output_tokens=3, is_estimated=True)
    assert len(service.requests) == 1


async def test_a_stream_without_chunks_is_no_answer(service: ChatService, generator: TextGenerator) -> None:
    """A page of a proxy with status 200, an empty body, or events of another kind."""
    page = respond(200, b"<!doctype html><title>Login</title>", content_type="text/html")
    cases = [(page, "an HTML page, 'Login'"), (stream_parts([]), ""), (stream_parts([b": ping\n\n"]), ": ping")]
    cases += [(stream_parts([b"data: [1]\n\n"]), "data: [1]"), (stream_parts([build_event({"type": "ping"})]), 'data: {"type": "ping"}')]
    for script, excerpt in cases:
        service.queue.append(script)
        with pytest.raises(ProviderResponseInvalid) as invalid:
            await collect(generator, make_request())
        assert invalid.value.detail == {"excerpt": excerpt}


async def test_an_answer_that_is_too_large_is_cut_off(service: ChatService, open_configured: OpenConfigured) -> None:
    """The size is bounded, also of a stream that never ends."""
    generator = open_configured(max_answer_bytes=10_000)

    async def never_end(exchange: Exchange) -> None:
        while True:
            await exchange.send_part(build_event(build_chunk("x" * 1000)))

    service.queue += [respond(200, build_completion("x" * 10_000)), stream_parts([], then=never_end)]
    with pytest.raises(ProviderResponseInvalid, match="larger than 10,000 bytes"):
        await generator.complete(make_request())
    with pytest.raises(StreamInterrupted, match="the answer is too large, after 11,000 characters"):
        await collect(generator, make_request())
    await eventually(lambda: service.disconnects == 1)


@pytest.mark.parametrize("model", ["hang", "hold"])
async def test_a_whole_answer_is_bounded_by_its_time(service: ChatService, generator: TextGenerator, model: str) -> None:
    """Every wait is bounded, and the connection is closed."""
    with pytest.raises(ProviderUnavailable, match="did not answer in time") as raised:
        await generator.complete(make_request(model, timeout_s=1.0))
    await eventually(lambda: service.disconnects == 1)

    assert len(service.requests) == 1
    assert (raised.value.usage.input_tokens, raised.value.usage.is_estimated) == (9, True), "the provider may charge for the input"


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("hang", "the provider did not answer in time"),
        ("hold-after-headers", "the provider sent nothing for 1 seconds"),
        ("hang-in-stream", "the provider sent nothing for 0.5 seconds, after 12 characters"),
    ],
)
async def test_the_waits_of_a_stream_are_bounded(service: ChatService, open_configured: OpenConfigured, model: str, text: str) -> None:
    """For the first byte and between bytes."""
    generator = open_configured(timeouts=Timeouts(first_byte_s=1.0, idle_s=0.5))
    with pytest.raises(ProviderUnavailable, match=text) as raised:
        await collect(generator, make_request(model))
    await eventually(lambda: service.disconnects == 1)

    assert (raised.value.usage.input_tokens, raised.value.usage.is_estimated) == (9, True), "the provider may charge for the input"


async def test_a_stream_is_bounded_in_total(service: ChatService, generator: TextGenerator) -> None:
    """A provider that sends a comment now and then does not hold the connection for ever."""

    async def keep_alive(exchange: Exchange) -> None:
        while True:
            await exchange.send_part(b": ping\n\n")
            await asyncio.sleep(0.01)

    service.queue.append(stream_parts(build_events()[:4], then=keep_alive))
    with pytest.raises(StreamInterrupted, match="the time of the request is over, after 12 characters"):
        await collect(generator, make_request(timeout_s=1.0))
    await eventually(lambda: service.disconnects == 1)


async def test_a_cancelled_call_closes_the_connection(service: ChatService, generator: TextGenerator) -> None:
    """A client that leaves cancels upstream."""
    call = asyncio.ensure_future(generator.complete(make_request("hold")))
    await eventually(lambda: service.active_count == 1)
    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    await eventually(lambda: (service.active_count, service.disconnects) == (0, 1))


@pytest.mark.parametrize("model", ["hold-after-headers", "hang-in-stream"])
async def test_a_cancelled_stream_closes_the_connection(service: ChatService, generator: TextGenerator, model: str) -> None:
    """Before the first piece and between two of them."""
    reading = asyncio.ensure_future(collect(generator, make_request(model)))
    await eventually(lambda: service.active_count == 1)
    reading.cancel()
    await asyncio.wait([reading])

    assert reading.cancelled()
    await eventually(lambda: (service.active_count, service.disconnects) == (0, 1))


async def test_a_closed_stream_closes_the_connection(service: ChatService, generator: TextGenerator) -> None:
    """A consumer that stops reading stops the provider."""
    async with aclosing(generator.stream(make_request("hang-in-stream"))) as events:
        assert await anext(events) == Delta("The ")

    await eventually(lambda: (service.active_count, service.disconnects) == (0, 1))


async def test_closing_the_generator_ends_its_calls(service: ChatService, open_configured: OpenConfigured) -> None:
    """The port: a server that stops waits for no provider, and later calls fail too."""
    generator = open_configured()
    calls = [asyncio.ensure_future(generator.complete(make_request("hold"))) for _ in range(3)]
    stream = asyncio.ensure_future(collect(generator, make_request("hang-in-stream")))
    await eventually(lambda: service.active_count == 4)
    await generator.close()

    for error in [*await asyncio.gather(*calls, return_exceptions=True), *await asyncio.gather(stream, return_exceptions=True)]:
        assert isinstance(error, ProviderUnavailable)
    with pytest.raises(ProviderUnavailable, match="the server is stopping"):
        await generator.complete(make_request())
    await eventually(lambda: service.active_count == 0)


async def test_a_connection_is_used_again(service: ChatService, generator: TextGenerator) -> None:
    """Otherwise each request would pay for a TLS handshake. An idle connection that the provider closed costs no attempt of the caller."""
    for _ in range(3):
        await generator.complete(make_request())
        await collect(generator, make_request())
    assert service.connections == 1

    with pytest.raises(ProviderRefused):
        await generator.complete(make_request("413"))
    await generator.complete(make_request())
    assert service.connections == 1


async def test_no_provider_is_a_clear_error(open_configured: OpenConfigured, service: ChatService, close_at_end: CloseAtEnd) -> None:
    """No connection."""
    closed = close_at_end(
        OpenAiTextGenerator(parse_url(f"openai://127.0.0.1:{_free_port()}/v1?model=ok", setting="X"), retries=FAST_RETRIES)
    )
    with pytest.raises(ProviderUnavailable, match="the connection to the provider could not be opened"):
        await closed.complete(make_request())
    with pytest.raises(EngineUnavailable, match="could not be opened"):
        await closed.probe()
    generator = open_configured()
    service.key = "another"
    with pytest.raises(ProviderAccessDenied):
        await generator.complete(make_request())


async def test_a_rejected_usage_option_is_dropped_once(service: ChatService, generator: TextGenerator) -> None:
    """Dropped once where it is refused; usage then says `estimated`, and the next request does not try again."""
    for _ in range(2):
        _, completion = await collect(generator, make_request("no-usage-option"))
        assert (completion.text, completion.usage.is_estimated) == (ANSWER, True)
    await collect(generator, make_request())

    assert ["stream_options" in request.json for request in service.requests] == [True, False, False, True]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Unrecognized request argument supplied: stream_options"),
        (422, '{"detail":[{"loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}'),
        (400, "stream_options: include_usage is not available for this deployment"),
        (400, "Bad Request"),
        (400, ""),
        (501, "not implemented"),
    ],
)
async def test_the_forms_of_rejecting_the_usage_option(service: ChatService, generator: TextGenerator, status: int, message: str) -> None:
    """Azure, Databricks, vLLM and others word it differently; a proxy gives no reason at all."""
    service.queue += [reject_field("stream_options", message=message, status=status)] * 2
    _, completion = await collect(generator, make_request())

    assert completion.text == ANSWER
    assert len(service.requests) == 2


async def test_another_rejection_drops_nothing(service: ChatService, generator: TextGenerator) -> None:
    """A request that is too long is rejected for that, and the next one has everything again."""
    service.queue.append(fail(400, "This model's maximum context length is 4096 tokens"))
    with pytest.raises(ProviderRefused, match="maximum context length"):
        await collect(generator, make_request(response_schema=SCHEMA))
    service.queue += [fail(400, "Bad Request")] * 4
    with pytest.raises(ProviderRefused, match="Bad Request"):
        await collect(generator, make_request(response_schema=SCHEMA))
    service.queue.clear()
    await collect(generator, make_request(response_schema=SCHEMA))

    assert "stream_options" in service.requests[-1].json
    assert cast("dict[str, object]", service.requests[-1].json["response_format"])["type"] == "json_schema"


async def test_new_models_get_the_limit_under_its_new_name(service: ChatService, generator: TextGenerator) -> None:
    """OpenAI's reasoning models reject `max_tokens` and name the field to use."""
    message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    service.queue += [reject_field("max_tokens", message=message)] * 3
    for _ in range(2):
        assert (await generator.complete(make_request())).text == ANSWER

    assert [request.json.get("max_completion_tokens") for request in service.requests] == [None, 40, 40]


async def test_a_schema_is_sent_in_the_strict_form(service: ChatService, generator: TextGenerator) -> None:
    """`response_format` with the schema comes first; the messages stay as they are."""
    completion = await generator.complete(make_request(response_schema=SCHEMA))
    body = service.requests[0].json

    assert (completion.text, completion.schema_mode, completion.attempts) == (JSON_ANSWER, "json_schema", 1)
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    assert body["messages"] == [{"role": "user", "content": "How high is Lyon?"}]


@pytest.mark.parametrize("system", [None, "Be brief."])
async def test_a_rejected_schema_is_put_into_the_prompt(service: ChatService, generator: TextGenerator, system: str | None) -> None:
    """json_schema, then json_object, then the prompt alone. What works is remembered for the model."""
    rejected: list[str] = []

    async def reject_formats(exchange: Exchange) -> None:
        response_format = cast("dict[str, object] | None", exchange.body.get("response_format"))
        rejected.append("prompt" if response_format is None else cast("str", response_format["type"]))
        await reject_field("response_format", then=answer(f"```json\n{JSON_ANSWER}\n```"))(exchange)

    service.queue += [reject_formats] * 4
    request = make_request(response_schema=SCHEMA)
    if system is not None:
        request = ChatRequest(model="ok", messages=(ChatMessage(role="system", content=system), *request.messages), response_schema=SCHEMA)
    for _ in range(2):
        completion = await generator.complete(request)
        assert (completion.text, completion.schema_mode, completion.attempts) == (JSON_ANSWER, "prompt", 1)
    first, question = cast("list[dict[str, str]]", service.requests[-1].json["messages"])

    assert rejected == ["json_schema", "json_object", "prompt", "prompt"]
    assert (first["role"], question) == ("system", {"role": "user", "content": "How high is Lyon?"})
    assert first["content"].startswith("Be brief.\n\nAnswer with one JSON value" if system else "Answer with one JSON value")
    assert json.dumps(SCHEMA, separators=(",", ":")) in first["content"]


async def test_a_schema_that_the_strict_form_lacks_does_not_count_for_others(service: ChatService, generator: TextGenerator) -> None:
    """OpenAI's strict form rejects schemas with optional fields; another schema is tried strictly again."""
    message = "Invalid schema for response_format 'answer': 'additionalProperties' is required to be supplied and to be false."
    service.queue += [fail(400, message, param="response_format"), answer(JSON_ANSWER), answer(JSON_ANSWER)]
    one = await generator.complete(make_request(response_schema={"type": "object"}))
    other = await generator.complete(make_request(response_schema=SCHEMA))

    assert (one.schema_mode, other.schema_mode) == ("json_object", "json_schema")


@pytest.mark.parametrize(
    "text",
    [
        JSON_ANSWER,
        f"\n {JSON_ANSWER}\n",
        f"```json\n{JSON_ANSWER}\n```",
        f"```\n{JSON_ANSWER}```",
        f"Here it is:\n\n```JSON\r\n{JSON_ANSWER}\r\n```\nAnything else?",
    ],
)
async def test_json_in_a_code_block_is_accepted(service: ChatService, generator: TextGenerator, text: str) -> None:
    """Models often put JSON into a code block of Markdown."""
    service.queue += [answer(text), answer(text)]

    assert (await generator.complete(make_request(response_schema=SCHEMA))).text == JSON_ANSWER
    assert (await collect(generator, make_request(response_schema=SCHEMA)))[1].text == JSON_ANSWER


async def test_an_answer_that_does_not_match_is_requested_again_with_the_error(service: ChatService, generator: TextGenerator) -> None:
    """Two retries that carry the error. Usage is that of all attempts."""
    service.queue += [answer("173 m"), answer('{"city": "Lyon", "height_m": "173"}'), answer(JSON_ANSWER)]
    completion = await generator.complete(make_request(response_schema=SCHEMA))
    conversations = [cast("list[dict[str, str]]", request.json["messages"]) for request in service.requests]

    assert (completion.text, completion.attempts) == (JSON_ANSWER, 3)
    assert completion.usage == TokenUsage(input_tokens=33, output_tokens=51)
    assert [len(messages) for messages in conversations] == [1, 3, 5]
    assert conversations[2][1] == {"role": "assistant", "content": "173 m"}
    assert "it is not JSON" in conversations[2][2]["content"]
    assert '/height_m: "173" is not of type "integer"' in conversations[2][4]["content"]


async def test_attempts_are_bounded_and_their_usage_is_reported(service: ChatService, generator: TextGenerator) -> None:
    """Three attempts; the budget must know what they cost."""
    service.queue += [answer("no"), answer("no"), answer('{"city": 1, "height_m": 1}')] * 2
    with pytest.raises(ResponseSchemaMismatch, match="after 3 attempts: /city: 1 is not of type") as mismatch:
        await generator.complete(make_request(response_schema=SCHEMA))

    assert mismatch.value.usage == TokenUsage(input_tokens=33, output_tokens=51)
    assert (mismatch.value.detail["attempts"], mismatch.value.detail["excerpt"]) == (3, '{"city": 1, "height_m": 1}')
    service.queue.clear()
    service.queue += [answer("no"), fail(400, "boom")]
    with pytest.raises(ProviderRefused) as refused:
        await generator.complete(make_request(response_schema=SCHEMA))
    assert refused.value.usage == REPORTED_USAGE


async def test_an_answer_that_was_cut_is_not_requested_again(service: ChatService, generator: TextGenerator) -> None:
    """It would be cut again: the error names `max_tokens`."""
    choice = {"message": {"content": '{"city": "Ly'}, "finish_reason": "length"}
    service.queue.append(respond(200, build_completion(choices=[choice])))
    with pytest.raises(ResponseSchemaMismatch, match=r"after 1 attempt: it is not JSON.*max_tokens may be too small"):
        await generator.complete(make_request(response_schema=SCHEMA))

    assert len(service.requests) == 1


async def test_a_streamed_answer_has_one_attempt(service: ChatService, generator: TextGenerator) -> None:
    """The port: nothing is requested again after the first piece, so the mismatch is reported at the end."""
    service.queue.append(answer("173 m"))
    pieces: list[str] = []
    with pytest.raises(ResponseSchemaMismatch, match="after 1 attempt: it is not JSON") as mismatch:
        await read_into(pieces, generator.stream(make_request(response_schema=SCHEMA)))

    assert ("".join(pieces), mismatch.value.usage, len(service.requests)) == ("173 m", REPORTED_USAGE, 1)


async def test_the_probe_requests_no_answer(service: ChatService, open_configured: OpenConfigured) -> None:
    """`/readyz` needs no key, so it costs no tokens and few requests. A provider without a list of models works too."""
    for status, text in ((401, "rejects the configured key"), (403, "rejects the configured key"), (500, "status 500")):
        service.probe_status = status
        failing = open_configured()
        for _ in range(3):
            with pytest.raises(EngineUnavailable, match=text):
                await failing.probe()
    for status in (200, 404, 405, 501):
        service.probe_status = status
        generator = open_configured()
        await generator.probe()
        await generator.probe()

    assert [(probe.path, probe.headers["authorization"]) for probe in service.probes] == [("/v1/models", f"Bearer {KEY}")] * 7
    assert service.requests == []


async def test_a_certificate_that_is_not_trusted_is_rejected(tmp_path: Path, close_at_end: CloseAtEnd) -> None:
    """`verify_ssl` is on by default."""
    with run_chat_service(ChatService(certificate=write_certificate(tmp_path / "tls.pem"))) as service:
        strict, lenient = (close_at_end(text_generators.open(service.url(), verify_ssl=verify)) for verify in (True, False))
        with pytest.raises(EngineUnavailable, match="could not be opened"):
            await strict.probe()

        assert (await lenient.complete(make_request())).text == ANSWER


@pytest.mark.parametrize(
    ("url", "base_url", "model"),
    [
        ("openai+https://:sk-1@api.example.org/v1?model=gpt-5", "https://api.example.org/v1", "gpt-5"),
        ("openai+https://:sk-1@api.example.org/v1/chat/completions?model=gpt-5", "https://api.example.org/v1", "gpt-5"),
        ("openai+https://:sk-1@openrouter.example/api/v1/?model=a/b:free", "https://openrouter.example/api/v1", "a/b:free"),
        ("openai://127.0.0.1:8080?model=local", "http://127.0.0.1:8080/v1", "local"),
        ("openai+http://:k@[2001:db8::1]:80/v1?model=m", "http://[2001:db8::1]:80/v1", "m"),
        ("ollama://127.0.0.1/llama3.2:3b", "http://127.0.0.1:11434/v1", "llama3.2:3b"),
        ("ollama+https://ollama.example/?model=llama3", "https://ollama.example:11434/v1", "llama3"),
    ],
)
def test_addresses_of_providers(url: str, base_url: str, model: str) -> None:
    """The same form as the embedder's."""
    provider = parse_url(url, setting="ROOKERY_GENERATION")

    assert (provider.base_url, provider.model) == (base_url, model)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("embedded:", "unknown scheme 'embedded'; use openai"),
        ("tei://127.0.0.1:8080/m", "unknown scheme 'tei'; use openai"),
        ("https://:sk-1@api.example.org/v1", "unknown scheme 'https'"),
        ("openai+https://:sk-1@api.example.org/v1", "the model is missing"),
        ("openai+https://:sk-1@/v1?model=m", "the host is missing"),
        ("openai+https://:sk-1@[::1/v1?model=m", "invalid URL"),
        ("openai+https://:sk-1@host:port/v1?model=m", "invalid URL"),
        ("openai+https://:sk-1@host/v1?model=m&temperature=1", "unknown option 'temperature'; the options are model"),
        ("openai://:sk-1@api.example.org/v1?model=m", "the key would be sent to a public host without encryption"),
        ("ollama://127.0.0.1", "the model is missing; use ollama://HOST:11434/NAME"),
    ],
)
def test_a_wrong_address_is_rejected_at_the_start(url: str, text: str) -> None:
    """A wrong value refuses to start, in one line without the key."""
    with pytest.raises(WrongSettings) as wrong:
        text_generators.open(url)

    assert wrong.value.message.startswith(f"ROOKERY_GENERATION: {text}")
    assert "sk-1" not in wrong.value.message


async def test_an_answer_for_a_test_key_says_so() -> None:
    """Generation with a test key answers from a marked canned writer, always the same."""
    generator = CannedGenerator()
    completions = [await generator.complete(make_request()) for _ in range(2)]

    assert completions[0] == completions[1]
    assert (completions[0].text, completions[0].model) == (CANNED_TEXT, "canned")
    assert completions[0].usage.is_estimated


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 40},
        {"type": "string", "maxLength": 3},
        {"type": "string", "format": "date-time"},
        {"type": ["integer", "null"], "minimum": 3, "multipleOf": 4},
        {"type": "number", "exclusiveMinimum": 3},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 3},
        {"type": "array", "prefixItems": [{"const": 1}, {"enum": ["a"]}], "items": False},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"},
        {"allOf": [{"type": "object", "properties": {"a": {"default": [1]}}}, {"required": ["a"]}]},
        {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {}}, "required": ["b"]}}, "required": ["a"]},
        {"properties": {"a/b": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {"type": "integer"}}},
        {},
        {"type": "null"},
    ],
)
async def test_an_answer_for_a_test_key_matches_usual_schemas(schema: dict[str, object]) -> None:
    """A client of a test key gets JSON that it can parse."""
    completion = await CannedGenerator().complete(make_request(response_schema=schema))

    assert completion.text


@pytest.mark.parametrize("keyword", ["properties", "prefixItems"])
async def test_a_schema_that_refers_to_itself_ends(keyword: str) -> None:
    """Two references in each value would give 2 to the power of the depth."""
    parts: Sequence[object] | dict[str, object]
    parts = {"a": {"$ref": "#"}, "b": {"$ref": "#"}} if keyword == "properties" else [{"$ref": "#"}, {"$ref": "#"}]
    schema: dict[str, object] = {keyword: parts, "type": "object" if keyword == "properties" else "array", "required": ["a", "b"]}
    with contextlib.suppress(ResponseSchemaMismatch):
        await CannedGenerator().complete(make_request(response_schema=schema))


async def test_a_pattern_that_cannot_be_derived_is_an_error() -> None:
    """The fixed answer never violates the schema."""
    with pytest.raises(ResponseSchemaMismatch, match="cannot be derived from this schema"):
        await CannedGenerator().complete(make_request(response_schema={"type": "string", "pattern": "^[0-9]{9}$"}))


def _free_port() -> int:
    with run_chat_service() as service:
        return service.port
