"""Plays a recorded answer to the text generator of Rookery, and returns what it does with it."""

from __future__ import annotations

import asyncio
from typing import cast

from rookery.content.chat import ChatMessage, ChatRequest, Completion, TokenUsage
from rookery.content.errors import ProviderError
from rookery.engines.text_generators.openai import OpenAiTextGenerator
from rookery.engines.text_generators.provider import parse_url
from rookery.kernel.egress.service_client import RetryBounds
from tests.chat_service import ChatService, RecordedRequest, Script, answer
from tests.chat_service import Exchange as Connection
from tests.deadlines import HANG_S
from tests.text_generation_servers.exchanges import Exchange, Outcome

MODEL = "ok"
PROMPT = "How high is Lyon?"
_LATER_ANSWER = '{"stars": 4, "v": 0}'
"""The answer to a changed request with a schema."""

_SHOWN_CHARS = 160


async def play(service: ChatService, exchange: Exchange) -> Outcome:
    """Return what a new generator does with the answer of *exchange*. A changed request gets a usual answer."""
    service.requests.clear()
    service.queue.clear()
    later = answer(_LATER_ANSWER if "schema" in exchange.request else None)
    service.queue += [_send(exchange), *[later] * 5]
    provider = parse_url(service.url(), setting="ROOKERY_GENERATION")
    generator = OpenAiTextGenerator(provider, retries=RetryBounds(max_attempts=1))
    outcome, request = Outcome(), _build_request(exchange)
    try:
        completion = await asyncio.wait_for(_run(generator, request, streams=bool(exchange.request.get("stream"))), HANG_S)
    except ProviderError as error:
        outcome.error = f"{error.code}: {error.message}"
        retry_after = (error.headers or {}).get("Retry-After")
        outcome.retry_after_s = None if retry_after is None else int(retry_after)
        _add_usage(outcome, error.usage)
    else:
        outcome.text, outcome.reasoning = _cut(completion.text), _cut(completion.reasoning)
        outcome.schema_mode = completion.schema_mode
        _add_usage(outcome, completion.usage)
    finally:
        await generator.close()
    outcome.resent = [_describe_change(before, after) for before, after in zip(service.requests, list(service.requests)[1:], strict=False)]
    return outcome


async def _run(generator: OpenAiTextGenerator, request: ChatRequest, *, streams: bool) -> Completion:
    if not streams:
        return await generator.complete(request)
    events = [event async for event in generator.stream(request)]
    assert isinstance(events[-1], Completion)
    return events[-1]


def _build_request(exchange: Exchange) -> ChatRequest:
    fields = {"max_tokens": 40} | {name: value for name, value in exchange.request.items() if name in {"max_tokens", "temperature", "seed"}}
    schema = cast("dict[str, object] | None", exchange.request.get("schema"))
    messages = (ChatMessage(role="user", content=PROMPT),)
    return ChatRequest(model=MODEL, messages=messages, response_schema=schema, timeout_s=HANG_S, **fields)  # pyright: ignore[reportArgumentType] - of the record


def _send(exchange: Exchange) -> Script:
    """Return a script that sends the answer with its headers as they were."""

    async def run(connection: Connection) -> None:
        body = exchange.body.encode()
        headers = {**exchange.headers, "content-length": str(len(body))}
        lines = [f"HTTP/1.1 {exchange.status} Recorded", *(f"{name}: {value}" for name, value in headers.items())]
        await connection.send("\r\n".join([*lines, "", ""]).encode() + body)

    return run


def _describe_change(before: RecordedRequest, after: RecordedRequest) -> str:
    one, other = before.json, after.json
    if "stream_options" in one and "stream_options" not in other:
        return "without stream_options"
    if "max_completion_tokens" in other and "max_completion_tokens" not in one:
        return "max_completion_tokens"
    if "temperature" in one and "temperature" not in other:
        return "without temperature"
    if one.get("response_format") != other.get("response_format"):
        form = cast("dict[str, object]", other.get("response_format") or {})
        return str(form.get("type", "prompt"))
    return "a correction"


def _add_usage(outcome: Outcome, usage: TokenUsage) -> None:
    outcome.input_tokens, outcome.output_tokens = usage.input_tokens, usage.output_tokens
    outcome.reasoning_tokens, outcome.cached_tokens = usage.reasoning_tokens, usage.cached_tokens
    outcome.is_estimated = usage.is_estimated


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
