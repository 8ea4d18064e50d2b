"""Answers as providers really send them: reasoning, usage, errors, delays, and rejected parts of a request."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any, cast

import pytest

from rookery.content.chat import Completion, Delta, TokenUsage, estimate_input_tokens
from rookery.content.errors import (
    ProviderAccessDenied,
    ProviderError,
    ProviderRateLimited,
    ProviderRefused,
    ProviderResponseInvalid,
    ProviderUnavailable,
    ResponseSchemaMismatch,
)
from rookery.content.response_schema import AnswerMismatch, ResponseSchema
from rookery.engines.text_generators.compatibility import MEMORY_S
from rookery.engines.text_generators.openai import OpenAiTextGenerator
from rookery.engines.text_generators.provider import parse_url
from rookery.kernel.clock import utc_now
from rookery.kernel.egress.service_client import RetryBounds
from rookery.kernel.retry_delays import find_retry_delay
from tests.chat_service import (
    ANSWER,
    JSON_ANSWER,
    KEY,
    ChatService,
    Exchange,
    Json,
    Script,
    answer,
    build_chunk,
    build_completion,
    build_event,
    build_events,
    fail,
    reject_field,
    respond,
    run_chat_service,
    split_words,
    stream_parts,
)
from tests.engines.text_generator_contract import SCHEMA, make_request

REASONING = "The user asks for the height. I give 173."
ODD_SCHEMA: Json = {"type": "object", "properties": {"v": True}, "required": ["v"]}
OTHER_SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def service() -> Iterator[ChatService]:
    """Yield a service that requires a key."""
    with run_chat_service() as running:
        yield running


class SteppedClock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> SteppedClock:
    """Return the clock of what a generator remembers."""
    return SteppedClock()


@pytest.fixture
async def generator(service: ChatService, clock: SteppedClock) -> AsyncIterator[OpenAiTextGenerator]:
    """Yield a generator on the service that sends each request once."""
    provider = parse_url(service.url(), setting="ROOKERY_GENERATION")
    opened = OpenAiTextGenerator(provider, retries=RetryBounds(max_attempts=1), clock=clock)
    yield opened
    await opened.close()


async def read(generator: OpenAiTextGenerator, **fields: object) -> tuple[str, str, Completion]:
    """Return the streamed pieces of the answer and of the reasoning, and the completion."""
    request = make_request(**fields)  # pyright: ignore[reportArgumentType] - without the model and the text
    events = [event async for event in generator.stream(request)]
    deltas = [event for event in events if isinstance(event, Delta)]
    assert isinstance(events[-1], Completion)
    return "".join(delta.text for delta in deltas), "".join(delta.reasoning for delta in deltas), events[-1]


def stream_text(text: str, *, finish_reason: str = "stop") -> Script:
    """Return a script that streams *text* character by character."""
    return stream_parts([*(build_event(build_chunk(letter)) for letter in text), *build_events("", finish_reason=finish_reason)])


def complete_with(message: Json, *, finish_reason: str = "stop") -> Script:
    """Return a script that answers with a message."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    return respond(200, build_completion(choices=[choice]))


BLOCKS = {
    "think": f"<think>\n{REASONING}\n</think>\n\n",
    "upper case": f"<THINK>{REASONING}</THINK>",
    "thinking": f"<thinking>{REASONING}</thinking>\n",
    "reasoning": f"\n <reasoning>{REASONING}</reasoning>\n",
    "thought": f"<thought>{REASONING}</thought>",
    "brackets": f"[THINK]{REASONING}[/THINK]",
    "diamonds": f"◁think▷{REASONING}◁/think▷",
    "start and end": f"<|START_THINKING|>{REASONING}<|END_THINKING|><|START_RESPONSE|>",
    "channels": f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant<|channel|>final<|message|>",
    "channels for JSON": f"<|channel|>analysis<|message|>{REASONING}<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
    "bare channels": f"analysis{REASONING}assistantfinal",
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
async def test_reasoning_before_an_answer_is_kept_apart(service: ChatService, generator: OpenAiTextGenerator, block: str) -> None:
    """It costs no second call, with and without a schema, whole and streamed, wherever the stream is split."""
    for schema, text in ((None, ANSWER), (SCHEMA, JSON_ANSWER)):
        service.queue += [answer(block + text), stream_text(block + text)]
        whole = await generator.complete(make_request(response_schema=schema))
        pieces, reasoning, streamed = await read(generator, response_schema=schema)

        assert pieces == text
        assert [(made.text, made.reasoning, made.attempts) for made in (whole, streamed)] == [(text, REASONING, 1)] * 2
        assert reasoning.strip() == REASONING
    assert len(service.requests) == 4


LONE_ENDS = ("</think>\n\n", "\n</thinking>", "[/THINK]", "<|end|><|start|>assistant<|channel|>final<|message|>")


@pytest.mark.parametrize("end", LONE_ENDS)
async def test_only_the_end_of_a_block_ends_the_reasoning_too(service: ChatService, generator: OpenAiTextGenerator, end: str) -> None:
    """Some templates of prompts have the start of the block, so that the answer has only its end."""
    for schema, text in ((SCHEMA, JSON_ANSWER), (None, ANSWER)):
        service.queue += [answer(REASONING + end + text), *[stream_text(REASONING + end + text)] * 2]
        whole = await generator.complete(make_request(response_schema=schema))
        _, _, first = await read(generator, response_schema=schema)
        pieces, reasoning, second = await read(generator, response_schema=schema)

        assert [(made.text, made.reasoning) for made in (whole, first, second)] == [(text, REASONING)] * 3
        assert (pieces, reasoning) == (text, ""), "after the first stream, the model is known to begin in its reasoning"
    assert len(service.requests) == 6


async def test_a_model_that_no_longer_begins_in_reasoning_streams_again(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """A feature that was learned from one answer holds back no later one for good."""
    service.queue += [stream_text(f"{REASONING}</think>{ANSWER}"), stream_text(ANSWER), stream_text(ANSWER)]
    await read(generator)
    assert (await read(generator))[0] == ANSWER
    events = [event async for event in generator.stream(make_request())]

    assert len(events) > len(ANSWER) // 2


FIELDS: dict[str, Json] = {
    "reasoning_content": {"content": ANSWER, "reasoning_content": REASONING},
    "reasoning": {"content": ANSWER, "reasoning": REASONING},
    "both": {"content": ANSWER, "reasoning": REASONING, "reasoning_content": REASONING},
    "with details": {"content": ANSWER, "reasoning": REASONING, "reasoning_details": [{"type": "reasoning.text", "text": REASONING}]},
    "details alone": {"content": ANSWER, "reasoning_details": [{"type": "reasoning.summary", "summary": REASONING}]},
    "parts": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": REASONING}]}, {"type": "text", "text": ANSWER}]},
}


@pytest.mark.parametrize("message", FIELDS.values(), ids=FIELDS)
async def test_reasoning_beside_an_answer_is_kept_apart(service: ChatService, generator: OpenAiTextGenerator, message: Json) -> None:
    """Providers name the field differently."""
    events = [build_event(build_chunk(choices=[{"index": 0, "delta": message}])), *build_events("")]
    service.queue += [complete_with(message), stream_parts(events)]
    whole = await generator.complete(make_request())
    pieces, reasoning, streamed = await read(generator)

    assert [(made.text, made.reasoning) for made in (whole, streamed)] == [(ANSWER, REASONING)] * 2
    assert (pieces, reasoning) == (ANSWER, REASONING)


async def test_json_that_a_provider_puts_into_the_reasoning_is_the_answer(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """Some servers do so with a schema, and leave the content empty."""
    service.queue.append(complete_with({"content": None, "reasoning_content": JSON_ANSWER}))
    completion = await generator.complete(make_request(response_schema=SCHEMA))

    assert (completion.text, completion.reasoning, completion.attempts) == (JSON_ANSWER, "", 1)


@pytest.mark.parametrize(
    "message",
    [{"content": f"<think>{REASONING}"}, {"content": "", "reasoning_content": REASONING}, {"content": None, "reasoning": REASONING}],
)
async def test_reasoning_that_was_cut_is_a_clear_error(service: ChatService, generator: OpenAiTextGenerator, message: Json) -> None:
    """A model that reasons until the end of its tokens has no answer. Its tokens are charged, and nothing is requested again."""
    for schema in (None, SCHEMA):
        events = [build_event(build_chunk(choices=[{"index": 0, "delta": message}])), *build_events("", finish_reason="length")]
        service.queue += [complete_with(message, finish_reason="length"), stream_parts(events)]
        for call in (generator.complete(make_request(response_schema=schema)), read(generator, response_schema=schema)):
            with pytest.raises(ProviderResponseInvalid, match=r"it has reasoning and no answer .* max_tokens may be too small") as invalid:
                await call
            assert invalid.value.usage == TokenUsage(input_tokens=11, output_tokens=17)
    assert len(service.requests) == 4


async def test_a_block_without_an_end_is_the_answer(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """A model that has finished has answered: its text may begin with such a word, or lack the end of the block."""
    text = "<think> is a mark of reasoning models."
    service.queue += [answer(text), stream_text(text), answer(f"<think>\nI give 173.\n{JSON_ANSWER}"), stream_text(f"<think>{JSON_ANSWER}")]
    whole, streamed = await generator.complete(make_request()), await read(generator)
    with_schema = await generator.complete(make_request(response_schema=SCHEMA)), (await read(generator, response_schema=SCHEMA))[2]

    assert (whole.text, whole.reasoning, streamed[0], streamed[2].text) == (text, "", text, text)
    assert [(made.text, made.attempts) for made in with_schema] == [(JSON_ANSWER, 1)] * 2


TEXTS_WITH_MARKS = (
    '{"city": "<think>Lyon</think>", "height_m": 173}',
    '{"city": "</think>", "height_m": 173}',
    "Write `</think>` at its end.",
    'The mark "</think>" ends it.',
    "Between <think> and </think> a model reasons.",
    "```xml\n<think>a</think>\n```",
    "analysis of a heron",
    "<thinker>Rodin</thinker>",
    "< think > and [THIN] and ◁",
)


@pytest.mark.parametrize("text", TEXTS_WITH_MARKS)
async def test_marks_inside_an_answer_stay(service: ChatService, generator: OpenAiTextGenerator, text: str) -> None:
    """Also in the strings of JSON, with and without reasoning before it."""
    for before in ("", f"<think>{REASONING}</think>\n"):
        service.queue += [answer(before + text), stream_text(before + text)]
        whole, (pieces, _, streamed) = await generator.complete(make_request()), await read(generator)
        assert [whole.text, pieces, streamed.text] == [text] * 3
    if text.startswith("{"):
        service.queue.append(answer(text))
        assert (await generator.complete(make_request(response_schema=SCHEMA))).text == text


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        ('The city is Lyon: {"city": "Lyon", "height_m": 173}', '{"city": "Lyon", "height_m": 173}'),
        ('Maybe {"city": "Paris", "height_m": 1}? No.\n{"city": "Lyon", "height_m": 173}\n', '{"city": "Lyon", "height_m": 173}'),
        ('{"city": "Lyon", "height_m": 173}\n\nThis is what you asked for.', '{"city": "Lyon", "height_m": 173}'),
        ('<answer>{"city": "Lyon", "height_m": 173}</answer>', '{"city": "Lyon", "height_m": 173}'),
        ('```json\n{"city": "Paris"}\n```\nthen\n```json\n{"city": "Lyon", "height_m": 173}\n```', '{"city": "Lyon", "height_m": 173}'),
        ('First {"city": "Paris", "height_m": 1}, then {"city": "Ly', None),
        ("[1] says so", None),
        ("{" * 5000, None),
    ],
)
def test_a_sentence_around_json_costs_no_second_call(text: str, extracted: str | None) -> None:
    """The object at the end counts, or the only one."""
    schema = ResponseSchema(SCHEMA)
    if extracted is None:
        with pytest.raises(AnswerMismatch, match="it is not JSON"):
            schema.extract(text)
    else:
        assert schema.extract(text) == extracted


def test_brackets_mean_nothing_where_any_text_matches() -> None:
    """A schema without a type is matched by the text itself only as JSON."""
    with pytest.raises(AnswerMismatch, match="it is not JSON"):
        ResponseSchema({}).extract("as in [1]")


USAGES: list[tuple[str, Json, TokenUsage]] = [
    ("the usual", {"prompt_tokens": 20, "completion_tokens": 603, "total_tokens": 623}, TokenUsage(input_tokens=20, output_tokens=603)),
    (
        "reasoning inside",
        {"prompt_tokens": 20, "completion_tokens": 603, "total_tokens": 623, "completion_tokens_details": {"reasoning_tokens": 405}},
        TokenUsage(input_tokens=20, output_tokens=603, reasoning_tokens=405),
    ),
    (
        "reasoning outside",
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623, "completion_tokens_details": {"reasoning_tokens": 405}},
        TokenUsage(input_tokens=20, output_tokens=603, reasoning_tokens=405),
    ),
    (
        "reasoning in the total alone",
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
        TokenUsage(input_tokens=20, output_tokens=603, reasoning_tokens=405),
    ),
    (
        "reasoning in the details alone",
        {"prompt_tokens": 20, "completion_tokens": 198, "completion_tokens_details": {"reasoning_tokens": 405}},
        TokenUsage(input_tokens=20, output_tokens=603, reasoning_tokens=405),
    ),
    (
        "a total that forgets the reasoning",
        {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 218, "completion_tokens_details": {"reasoning_tokens": 405}},
        TokenUsage(input_tokens=20, output_tokens=603, reasoning_tokens=405),
    ),
    (
        "cached tokens inside",
        {"prompt_tokens": 1100, "completion_tokens": 8, "total_tokens": 1108, "prompt_tokens_details": {"cached_tokens": 1024}},
        TokenUsage(input_tokens=1100, output_tokens=8, cached_tokens=1024),
    ),
    (
        "cached tokens outside",
        {"prompt_tokens": 76, "completion_tokens": 8, "total_tokens": 1108, "prompt_tokens_details": {"cached_tokens": 1024}},
        TokenUsage(input_tokens=1100, output_tokens=8, cached_tokens=1024),
    ),
    (
        "hits and misses",
        {
            "prompt_tokens": 1100,
            "completion_tokens": 8,
            "total_tokens": 1108,
            "prompt_cache_hit_tokens": 1024,
            "prompt_cache_miss_tokens": 76,
        },
        TokenUsage(input_tokens=1100, output_tokens=8, cached_tokens=1024),
    ),
    ("without output", {"prompt_tokens": 20, "total_tokens": 623}, TokenUsage(input_tokens=20, output_tokens=603)),
    ("without input", {"completion_tokens": 603, "total_tokens": 623}, TokenUsage(input_tokens=20, output_tokens=603)),
    ("with nulls", {"prompt_tokens": 20, "completion_tokens": None, "total_tokens": 28}, TokenUsage(input_tokens=20, output_tokens=8)),
    ("only a total", {"total_tokens": 623}, TokenUsage(input_tokens=9, output_tokens=614, is_estimated=True)),
    ("a tiny total", {"total_tokens": 10}, TokenUsage(input_tokens=3, output_tokens=7, is_estimated=True)),
    ("whole floats", {"prompt_tokens": 20.0, "completion_tokens": 8.0}, TokenUsage(input_tokens=20, output_tokens=8)),
    ("other names", {"input_tokens": 20, "output_tokens": 8}, TokenUsage(input_tokens=20, output_tokens=8)),
    (
        "null details",
        {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28, "completion_tokens_details": None, "prompt_tokens_details": None},
        TokenUsage(input_tokens=20, output_tokens=8),
    ),
    (
        "a total that is too small",
        {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 1},
        TokenUsage(input_tokens=20, output_tokens=8),
    ),
    (
        "an absurd total",
        {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 10**18},
        TokenUsage(input_tokens=20, output_tokens=8),
    ),
]


@pytest.mark.parametrize(("reported", "expected"), [case[1:] for case in USAGES], ids=[case[0] for case in USAGES])
async def test_what_is_billed_is_charged(
    service: ChatService, generator: OpenAiTextGenerator, reported: Json, expected: TokenUsage
) -> None:
    """Whole and streamed, with the total of the provider where it has one."""
    event = build_event({"id": "1", "model": "heron-1-2026", "choices": [], "usage": reported})
    service.queue += [respond(200, build_completion(usage=reported)), stream_parts([*build_events(usage=False, done=False), event])]

    assert (await generator.complete(make_request())).usage == expected
    assert (await read(generator))[2].usage == expected


@pytest.mark.parametrize("zeros", [{"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, {}, None, [], {"prompt_tokens": "20"}])
async def test_a_usage_that_counts_nothing_is_estimated(service: ChatService, generator: OpenAiTextGenerator, zeros: object) -> None:
    """Proxies report zeros for what they do not know."""
    request = make_request()
    service.queue.append(respond(200, build_completion() | {"usage": zeros}))
    usage = (await generator.complete(request)).usage

    assert usage == TokenUsage(input_tokens=estimate_input_tokens(request.messages), output_tokens=-(-len(ANSWER) // 4), is_estimated=True)


async def test_usage_that_a_stream_reports_several_times_counts_once(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """As a running sum, in parts, or followed by zeros."""
    sums = [{"prompt_tokens": 20, "completion_tokens": count, "total_tokens": 20 + count} for count in (1, 4, 8)]
    parts = [{"prompt_tokens": 20, "completion_tokens": 1}, {"completion_tokens": 8}]
    for usages in (sums, [*sums, sums[-1]], [sums[-1], {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, None], parts):
        chunks = [build_event(build_chunk("a", usage=usage)) for usage in usages]
        service.queue.append(stream_parts([*chunks, *build_events("", usage=False)]))
        usage = (await read(generator))[2].usage
        assert usage == TokenUsage(input_tokens=20, output_tokens=8)


async def test_usage_in_the_choice_or_in_an_object_of_the_vendor_counts(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """Two providers have it there in streams."""
    usage = {"prompt_tokens": 20, "completion_tokens": 8, "total_tokens": 28}
    places = [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]}, {"x_groq": {"usage": usage}}]
    for place in places:
        service.queue.append(
            stream_parts(
                [*build_events(usage=False, done=False, finish_reason=None), build_event(build_chunk() | place), b"data: [DONE]\n\n"]
            )
        )
        assert (await read(generator))[2].usage == TokenUsage(input_tokens=20, output_tokens=8)


WORDS = "Unknown name seed: Cannot find field."
REASONS: list[object] = [
    {"error": {"message": WORDS}},
    [{"error": {"code": 400, "message": WORDS, "status": "INVALID_ARGUMENT"}}],
    [{"error": {"message": WORDS}}, {"error": {"message": WORDS}}],
    {"error": [{"message": WORDS}]},
    {"errors": [{"code": 7, "message": WORDS}], "success": False, "result": None},
    {"errors": [WORDS]},
    {"0": {"error": {"message": WORDS}}, "provider": "openai"},
    {"message": {"detail": [{"msg": WORDS}]}},
    {"detail": {"error": WORDS}},
    {"error": {"code": "x", "details": [{"reason": WORDS}]}},
    {"error": {"message": json.dumps({"error": {"message": WORDS}})}},
    {"title": "Bad Request", "detail": WORDS},
    {"error_description": WORDS},
    {"error": {"message": None, "metadata": {"raw": json.dumps({"error": {"message": WORDS}})}}},
]


@pytest.mark.parametrize("body", REASONS)
async def test_the_reason_of_a_provider_reaches_the_user(service: ChatService, generator: OpenAiTextGenerator, body: object) -> None:
    """One request, whatever the form, with its words and nothing else."""
    service.queue += [respond(400, body), respond(400, body), respond(429, body)]
    with pytest.raises(ProviderRefused) as refused:
        await generator.complete(make_request(response_schema=SCHEMA))
    with pytest.raises(ProviderRefused) as streamed:
        await read(generator, response_schema=SCHEMA)
    with pytest.raises(ProviderRateLimited) as limited:
        await generator.complete(make_request())

    assert {error.value.detail["provider_message"] for error in (refused, streamed, limited)} == {WORDS}
    assert len(service.requests) == 3


async def test_the_words_of_a_service_behind_a_proxy_are_added(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """OpenRouter quotes them beside its own."""
    raw = json.dumps({"error": {"message": "temperature must be at most 1"}})
    service.queue.append(respond(400, {"error": {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}}))
    with pytest.raises(ProviderRefused) as refused:
        await generator.complete(make_request(temperature=1.5))

    assert refused.value.detail["provider_message"] == "Provider returned error: temperature must be at most 1"


async def test_words_in_an_unknown_form_are_shown_as_they_are(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """A text is better than a status alone."""
    service.queue.append(respond(400, {"fault": {"faultstring": "Quota is over"}}))
    with pytest.raises(ProviderRefused, match="Quota is over"):
        await generator.complete(make_request())


@pytest.mark.parametrize(
    "body", [{}, {"error": {}}, {"error": {"message": ""}}, [{"error": {"code": 400}}], b"", {"error": {"message": None}}]
)
async def test_an_error_without_words_drops_nothing(service: ChatService, generator: OpenAiTextGenerator, body: object) -> None:
    """One request, and the status."""
    service.queue.append(respond(400, body))
    with pytest.raises(ProviderRefused, match="status 400: status 400"):
        await read(generator, response_schema=SCHEMA)

    assert len(service.requests) == 1


ERRORS_WITH_200: list[tuple[object, type[ProviderError], str]] = [
    ([{"error": {"code": 429, "message": "slow down"}}], ProviderRateLimited, "slow down"),
    ({"error": {"code": "429", "message": "slow down"}}, ProviderRateLimited, "slow down"),
    ({"error": {"type": "overloaded_error", "message": "busy"}, "type": "error"}, ProviderUnavailable, "busy"),
    ({"object": "error", "message": "too long", "code": 400}, ProviderRefused, "too long"),
    ({"code": 400, "msg": "too long", "success": False}, ProviderRefused, "too long"),
    (
        {"choices": [{"index": 0, "error": {"code": 502, "message": "host lost"}, "finish_reason": "error"}]},
        ProviderUnavailable,
        "host lost",
    ),
]


@pytest.mark.parametrize(("body", "error_class", "words"), ERRORS_WITH_200)
async def test_an_error_with_status_200_has_its_words(
    service: ChatService, generator: OpenAiTextGenerator, body: object, error_class: type[ProviderError], words: str
) -> None:
    """Whole, and as an event of a stream."""
    service.queue += [respond(200, body), stream_parts([build_event(body)])]
    with pytest.raises(error_class, match=words):
        await generator.complete(make_request())
    with pytest.raises(error_class, match=words):
        await read(generator)


async def test_the_key_of_a_service_behind_a_proxy_is_told_apart(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """The operator must know which of two keys is wrong. No part of one is shown."""
    behind = "litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect API key provided: the-ke**********ator."
    own = f"Authentication Error, Invalid proxy server token passed. Received API Key = {KEY[:5]}...{KEY[-4:]}, Key Hash = {'ab12' * 16}"
    service.queue += [fail(401, behind), fail(401, own), respond(400, [{"error": {"code": 400, "message": "API key not valid."}}])]
    errors: list[str] = []
    for _ in range(3):
        with pytest.raises(ProviderAccessDenied) as denied:
            await generator.complete(make_request())
        errors.append(denied.value.message)

    assert "the service behind it rejects the key that it has for it: litellm.AuthenticationError" in errors[0]
    assert "it rejects the configured key: Authentication Error, Invalid proxy server token passed." in errors[1]
    assert "it rejects the configured key: API key not valid." in errors[2]
    assert not any(part in "".join(errors) for part in ("the-ke", "ator.", KEY[:5], KEY[-4:], "ab12"))


DELAYS: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after": "7"}, 7),
    ({"retry-after": "7.5"}, 7.5),
    ({"retry-after": "2", "retry-after-ms": "600"}, 0.6),
    ({"llm_provider-retry-after": "7"}, 7),
    ({"llm_provider-retry-after": "9", "retry-after": "7"}, 7),
    ({"x-ms-retry-after-ms": "1500"}, 1.5),
    ({"X-Retry-After": "7"}, 7),
    ({"retry-after": "1m30s"}, 90),
    ({"x-ratelimit-reset-requests": "7s"}, 7),
    ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360),
    ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "17ms"}, 0.017),
    ({"x-ratelimit-remaining-requests": "499", "x-ratelimit-reset-requests": "2m59.56s"}, None),
    ({"llm_provider-x-ratelimit-reset-tokens": "7s"}, 7),
    ({"anthropic-ratelimit-tokens-reset": "AT+9"}, 9),
    ({"x-ratelimit-reset": "EPOCH+9"}, 9),
    ({"x-ratelimit-reset": "EPOCH_MS+9"}, 9),
    ({"ratelimit-reset": "9"}, 9),
    ({"ratelimit": '"default";r=0;t=9'}, 9),
    ({"retry-after": "soon"}, None),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "NaN"}, None),
    ({"retry-after": "1e999"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "soon", "x-ratelimit-reset-requests": "7s"}, 7),
    ({"retry-after": "5, 7"}, 7),
]


@pytest.mark.parametrize(("headers", "expected"), DELAYS)
def test_a_delay_is_found_under_any_name(headers: dict[str, str], expected: float | None) -> None:
    """Names of proxies, units, dates, and values that mean nothing."""
    now = utc_now()
    moments = {
        "AT+9": (now + timedelta(seconds=9)).isoformat(),
        "EPOCH+9": str(now.timestamp() + 9),
        "EPOCH_MS+9": str(int((now.timestamp() + 9) * 1000)),
    }
    fields = [(name, moments.get(value, value)) for name, value in headers.items()]
    delay = find_retry_delay(fields, 429, now)

    assert delay == (None if expected is None else pytest.approx(expected, abs=0.01))
    if not any("retry-after" in name.lower() for name in headers):
        assert find_retry_delay(fields, 503, now) is None, "the end of a rate limit says nothing about another failure"


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({"error": {"message": "slow down"}}, {"llm_provider-retry-after": "31"}, "31"),
        ([{"error": {"message": "slow", "details": [{"@type": "RetryInfo", "retryDelay": "34s"}]}}], {}, "34"),
        ({"error": {"message": "Rate limit reached. Please try again in 25.3s."}}, {}, "26"),
        ({"error": {"message": "Please retry after 40 seconds."}}, {}, "40"),
        ({"error": {"message": "slow", "retry_after": 50}}, {}, "50"),
        ({"error": {"message": "slow", "retry_after": "never"}}, {}, "5"),
        ({"error": {"message": "slow"}}, {"retry-after": "1" + "0" * 30}, "86400"),
    ],
)
async def test_the_delay_of_a_provider_reaches_the_user(
    service: ChatService, generator: OpenAiTextGenerator, body: object, headers: dict[str, str], expected: str
) -> None:
    """From a header, from the fields of the error, or from its words."""

    async def limit(exchange: Exchange) -> None:
        data = json.dumps(body).encode()
        lines = ["HTTP/1.1 429 Slow", f"content-length: {len(data)}", *(f"{name}: {value}" for name, value in headers.items())]
        await exchange.send("\r\n".join([*lines, "", ""]).encode() + data)

    service.queue.append(limit)
    with pytest.raises(ProviderRateLimited) as limited:
        await generator.complete(make_request())

    assert limited.value.headers == {"Retry-After": expected}


async def test_a_quota_behind_a_proxy_is_no_rate(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """LiteLLM replaces the code of an exhausted quota. With a delay, it is a rate limit that Google calls a quota."""
    words = "litellm.RateLimitError: OpenAIException - You exceeded your current quota, please check your plan and billing details."
    service.queue += [fail(429, words, code="429"), fail(429, words, code="429", retry_after="34")]
    with pytest.raises(ProviderAccessDenied, match="exceeded your current quota"):
        await generator.complete(make_request())
    with pytest.raises(ProviderRateLimited):
        await generator.complete(make_request())


def _accept_only(schema: Json, message: str, **fields: str) -> Script:
    """Return a script that rejects every schema but one, with *message*."""

    async def run(exchange: Exchange) -> None:
        form = cast("dict[str, Any]", exchange.body.get("response_format") or {})
        if form.get("type") == "json_schema" and form["json_schema"]["schema"] != schema:
            await fail(400, message, **fields)(exchange)
        else:
            await answer('{"v": 1, "city": "Lyon", "height_m": 1}' if schema != SCHEMA else JSON_ANSWER)(exchange)

    return run


SCHEMA_REJECTIONS = (
    "Automatic parser generation failed: JSON schema error at #/properties/v: schema must be an object",
    "Invalid schema for response_format 'answer': 'additionalProperties' is required",
    "response_format is not supported",
    "Unknown name \"v\" at 'generation_config.response_schema': Cannot find field.",
    "The provided JSON schema contains features not supported by xgrammar.",
    "unsupported $ref",
    "Bad Request",
)


@pytest.mark.parametrize("message", SCHEMA_REJECTIONS)
async def test_an_odd_schema_degrades_no_other(service: ChatService, generator: OpenAiTextGenerator, message: str) -> None:
    """A rejection is remembered for this schema alone, whatever its words."""
    service.queue += [_accept_only(OTHER_SCHEMA, message)] * 9
    odd = [
        await generator.complete(make_request(response_schema=schema)) for schema in (ODD_SCHEMA, {"type": "object"}, {"minProperties": 1})
    ]
    other = await generator.complete(make_request(response_schema=OTHER_SCHEMA))
    requests = len(service.requests)
    again = await generator.complete(make_request(response_schema=dict(reversed(ODD_SCHEMA.items()))))

    assert {completion.schema_mode for completion in odd} == {"json_object"}
    assert (other.schema_mode, other.attempts) == ("json_schema", 1)
    assert (again.schema_mode, len(service.requests)) == ("json_object", requests + 1), "the same schema is not tried again"


async def test_a_rejection_is_forgotten_after_a_while(service: ChatService, generator: OpenAiTextGenerator, clock: SteppedClock) -> None:
    """A provider that was updated gets everything again."""
    service.queue += [reject_field("stream_options")] * 3
    await read(generator)
    clock.now_s += MEMORY_S - 1
    await read(generator)
    clock.now_s += 2
    await read(generator)

    assert ["stream_options" in request.json for request in service.requests] == [True, False, False, True]


async def test_a_model_without_a_usual_temperature_is_remembered(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """The temperature of an internal call is left out; that of a user is not, and nothing else is dropped."""
    message = "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) value is supported."
    rejection = reject_field("temperature", message=message)
    service.queue += [rejection] * 5
    for _ in range(2):
        request = make_request(temperature=0.0, is_temperature_optional=True, response_schema=SCHEMA)
        assert (await generator.complete(request)).schema_mode == "json_schema"
    for call in (generator.complete(make_request(temperature=0.2, response_schema=SCHEMA)), read(generator, temperature=0.2)):
        with pytest.raises(ProviderRefused, match="'temperature' does not support 0"):
            await call

    assert [request.json.get("temperature") for request in service.requests] == [0.0, None, None, 0.2, 0.2]
    assert all("response_format" in request.json for request in service.requests[:4])


NAMED_VALUES = (
    ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens.", "max_tokens", "invalid_value"),
    ("'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's limit is 4096 tokens.", None, None),
    ("Invalid value: max_completion_tokens must be less than 4096", None, None),
    ("Unsupported parameter: 'seed' is not supported with this model.", "seed", "unsupported_parameter"),
    ("Unsupported parameter: 'seed' is not supported with this model.", None, None),
    ("seed: Extra inputs are not permitted", None, None),
    ("Unsupported parameter: 'top_p'", None, None),
    ("Unknown parameter: 'stop'.", "stop", None),
    ("Unrecognized request argument supplied: top_k", None, None),
    ("Unsupported value", "temperature", "unsupported_value"),
    ("This model's maximum context length is 4096 tokens (50 in the response_format).", "messages", "context_length_exceeded"),
    ("The model `gpt-9` is not supported", None, "model_not_found"),
)


@pytest.mark.parametrize(("message", "param", "code"), NAMED_VALUES)
async def test_only_the_part_that_is_named_is_dropped(
    service: ChatService, generator: OpenAiTextGenerator, message: str, param: str | None, code: str | None
) -> None:
    """A value of the user is never dropped silently, and nothing else is dropped for it."""
    service.queue.append(fail(400, message, param=param, code=code))
    with pytest.raises(ProviderRefused) as refused:
        await read(generator, response_schema=SCHEMA, seed=7, temperature=0.2)

    assert refused.value.detail["provider_message"] == message
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("field", "message", "param"),
    [
        ("stream_options", "Unsupported parameter", "stream_options.include_usage"),
        ("stream_options", 'Invalid JSON payload received. Unknown name "stream_options": Cannot find field.', None),
        (
            "stream_options",
            "litellm.BadRequestError: OpenAIException - Error code: 400 - {'error': {'message': 'no', 'param': 'stream_options'}}",
            None,
        ),
        ("response_format", "Invalid value", "response_format.json_schema"),
        ("response_format", "Structured outputs are not available", None),
        ("max_tokens", "Unrecognized request argument supplied: max_tokens", None),
    ],
)
async def test_a_part_is_dropped_by_its_name(
    service: ChatService, generator: OpenAiTextGenerator, field: str, message: str, param: str | None
) -> None:
    """The name may be in `param`, in the words, or in an error that a proxy quotes."""

    async def reject(exchange: Exchange) -> None:
        await (fail(400, message, param=param) if field in exchange.body else answer(JSON_ANSWER))(exchange)

    service.queue += [reject] * 3
    _, _, completion = await read(generator, response_schema=SCHEMA)
    first, *others = service.requests
    missing = {name for name in first.json if name not in others[-1].json}

    assert completion.text == JSON_ANSWER
    assert missing == {field}


async def test_a_schema_that_fails_with_500_is_sent_in_another_way(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """Ollama answers so. A failure that names nothing stays one that may pass."""
    service.queue += [fail(500, "invalid JSON schema in format"), answer(JSON_ANSWER), fail(500, "out of memory")]
    completion = await generator.complete(make_request(response_schema=SCHEMA))
    with pytest.raises(ProviderUnavailable, match="out of memory"):
        await generator.complete(make_request(response_schema=OTHER_SCHEMA))

    assert (completion.schema_mode, completion.text) == ("json_object", JSON_ANSWER)


async def test_a_cut_answer_with_a_schema_is_no_draft_of_its_reasoning(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """An object in the text before a cut one is not the answer."""
    service.queue.append(complete_with({"content": f"Maybe {JSON_ANSWER}? No: {{"}, finish_reason="length"))
    with pytest.raises(ResponseSchemaMismatch, match="max_tokens may be too small"):
        await generator.complete(make_request(response_schema=SCHEMA))


async def test_words_are_streamed_as_they_arrive(service: ChatService, generator: OpenAiTextGenerator) -> None:
    """An answer without reasoning is held back nowhere."""
    service.queue.append(stream_parts(build_events()))
    events = [event.text async for event in generator.stream(make_request()) if isinstance(event, Delta)]

    assert events == split_words(ANSWER)
