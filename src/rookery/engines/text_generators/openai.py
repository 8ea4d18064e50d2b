"""A generator that uses any provider with OpenAI's `/chat/completions`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace

import orjson
import structlog

from rookery.content.chat import MAX_SCHEMA_ATTEMPTS, NO_USAGE, ChatMessage, ChatRequest, Completion, Delta, SchemaMode
from rookery.content.errors import ProviderError, ProviderResponseInvalid, ProviderUnavailable
from rookery.content.response_schema import AnswerMismatch, ResponseSchema
from rookery.engines.text_generators.answers import AcceptedRequest, build_mismatch_error, is_cut
from rookery.engines.text_generators.compatibility import FeatureMemory, ModelFeatures, OptionalParts, Part, reduce_features
from rookery.engines.text_generators.failures import excerpt
from rookery.engines.text_generators.http_client import (
    BodyReadError,
    NoAnswerError,
    ProviderClient,
    ProviderResponse,
    RequestRefusedError,
    Timeouts,
    build_error,
)
from rookery.engines.text_generators.provider import Provider
from rookery.engines.text_generators.replies import ChatReply, ErrorReplyError, InvalidReplyError, parse_completion
from rookery.engines.text_generators.streamed_answer import StreamedAnswer
from rookery.kernel.egress.service_client import RetryBounds
from rookery.kernel.errors import EngineUnavailable

_SCHEMA_NAME = "answer"
_INSTRUCTION = "Answer with one JSON value that matches this JSON schema, and with nothing else:\n"
_MAX_MISMATCH_CHARS = 2000

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum size of an answer. A model's answer of 100,000 tokens is about 0.5 MB."""

_DRAIN_S = 0.05
"""Wait for the end of a stream after its last event, so that its connection can be used again."""

_HEALTHY_FOR_S = 30.0
"""Seconds after an answer in which `probe` does not contact the provider."""

_UNHEALTHY_FOR_S = 3.0
"""Seconds after a failed probe in which `probe` returns the same error, because `/readyz` needs no key."""


def build_body(
    request: ChatRequest, messages: Sequence[ChatMessage], features: ModelFeatures, schema_mode: SchemaMode | None, *, streams: bool
) -> bytes:
    """Return the body of `/chat/completions`. Parameters that are None are left to the provider."""
    body: dict[str, object] = {
        "model": request.model,
        "messages": [{"role": message.role, "content": message.content} for message in messages],
    }
    if request.max_tokens is not None:
        body[features.max_tokens_name] = request.max_tokens
    if request.temperature is not None and (features.accepts_temperature or not request.is_temperature_optional):
        body["temperature"] = request.temperature
    if request.seed is not None:
        body["seed"] = request.seed
    if schema_mode == "json_schema":
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": _SCHEMA_NAME, "strict": True, "schema": request.response_schema},
        }
    elif schema_mode == "json_object":
        body["response_format"] = {"type": "json_object"}
    if streams:
        body["stream"] = True
        if features.accepts_usage_option:
            body["stream_options"] = {"include_usage": True}
    return orjson.dumps(body)


def add_schema(request: ChatRequest, schema_mode: SchemaMode | None) -> tuple[ChatMessage, ...]:
    """
    Return the messages of *request*, with the schema in the system message if the provider does not get it in `response_format`.

    There is one system message, because some models accept no second one.
    """
    if schema_mode is None or schema_mode == "json_schema":
        return request.messages
    instruction = _INSTRUCTION + orjson.dumps(request.response_schema).decode()
    first, *others = request.messages
    if first.role == "system":
        return (ChatMessage(role="system", content=f"{first.content}\n\n{instruction}"), *others)
    return (ChatMessage(role="system", content=instruction), *request.messages)


def build_correction(request: ChatRequest, answer: str, mismatch: str) -> tuple[ChatMessage, ...]:
    """Return the messages that request another answer: the rejected one, and what is wrong with it."""
    schema = orjson.dumps(request.response_schema).decode()
    text = f"This answer is invalid: {mismatch[:_MAX_MISMATCH_CHARS]}\n\n{_INSTRUCTION}{schema}"
    return (ChatMessage(role="assistant", content=answer), ChatMessage(role="user", content=text))


_log = structlog.stdlib.get_logger("rookery.generation")


class OpenAiTextGenerator:
    """An implementation of `content.ports.TextGenerator` over HTTP."""

    def __init__(
        self,
        provider: Provider,
        *,
        verify_ssl: bool = True,
        timeouts: Timeouts | None = None,
        retries: RetryBounds | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Create the generator. Nothing is sent yet.

        Args:
            clock: Returns seconds that only grow, for what is forgotten after a while.
        """
        self.model = provider.model
        self._key = provider.key
        self._client = ProviderClient(provider, verify_ssl=verify_ssl, timeouts=timeouts or Timeouts(), retries=retries or RetryBounds())
        self._max_answer_bytes = max_answer_bytes
        self._features = FeatureMemory(clock)
        self._last_success_s = self._last_failure_s = float("-inf")
        self._failure_reason = ""

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the model's answer; see the port."""
        schema = None if request.response_schema is None else ResponseSchema(request.response_schema)
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        usage, attempt = NO_USAGE, 0
        while True:
            attempt += 1
            try:
                completion = await self._complete_once(request, deadline)
            except ProviderError as error:
                error.usage += usage
                raise
            usage += completion.usage
            completion = replace(completion, usage=usage, attempts=attempt)
            if schema is None:
                return completion
            try:
                return replace(completion, text=schema.extract(completion.text))
            except AnswerMismatch as mismatch:
                if attempt == MAX_SCHEMA_ATTEMPTS or is_cut(completion.finish_reason):
                    raise build_mismatch_error(completion, mismatch) from None
                _log.info("generation.schema_mismatch", attempt=attempt, mode=completion.schema_mode)
                correction = build_correction(request, completion.text, str(mismatch))
                request = replace(request, messages=(*request.messages, *correction))

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Completion]:
        """Yield the pieces of the answer and the completion; see the port."""
        schema = None if request.response_schema is None else ResponseSchema(request.response_schema)
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        response, accepted, features = await self._send(request, streams=True, deadline=deadline)
        try:
            if response.content_type == "application/json":  # the provider does not stream
                completion = await self._read_completion(response, accepted)
                yield Delta(completion.text)
            else:
                answer = StreamedAnswer(
                    response,
                    accepted,
                    self._key,
                    max_bytes=self._max_answer_bytes,
                    begins_in_reasoning=features.begins_in_reasoning,
                )
                async with aclosing(answer.read()) as deltas:
                    async for delta in deltas:
                        yield delta
                split = answer.split()
                if split.begins_in_reasoning != features.begins_in_reasoning:
                    self._features.store_reasoning(request.model, begins_in_reasoning=split.begins_in_reasoning)
                completion = answer.build_completion(split)
            self._last_success_s = time.monotonic()
            if schema is not None:
                try:
                    completion = replace(completion, text=schema.extract(completion.text))
                except AnswerMismatch as mismatch:
                    raise build_mismatch_error(completion, mismatch) from None
            yield completion
            await response.drain(_DRAIN_S)
        finally:
            await response.close()

    async def probe(self) -> None:
        """Request the provider's list of models, unless it answered recently; see the port."""
        now_s = time.monotonic()
        if now_s - self._last_success_s <= _HEALTHY_FOR_S:
            return
        if now_s - self._last_failure_s <= _UNHEALTHY_FOR_S:
            raise EngineUnavailable("generation", self._failure_reason)
        try:
            await self._client.probe()
        except EngineUnavailable as error:
            self._failure_reason, self._last_failure_s = error.reason, time.monotonic()
            raise
        self._last_success_s = time.monotonic()

    async def close(self) -> None:
        """Close all connections; see the port."""
        await self._client.close()

    async def _complete_once(self, request: ChatRequest, deadline: float) -> Completion:
        response, accepted, _ = await self._send(request, streams=False, deadline=deadline)
        try:
            completion = await self._read_completion(response, accepted)
        finally:
            await response.close()
        self._last_success_s = time.monotonic()
        return completion

    async def _send(
        self, request: ChatRequest, *, streams: bool, deadline: float
    ) -> tuple[ProviderResponse, AcceptedRequest, ModelFeatures]:
        """Send *request*, again without each optional part that the provider rejects. Raises a `ProviderError`."""
        features = self._features.get(request)
        learned = set[Part]()
        guess: Part | None = None
        while True:
            schema_mode = None if request.response_schema is None else features.schema_mode
            messages = add_schema(request, schema_mode)
            accepted = AcceptedRequest(request=request, messages=messages, schema_mode=schema_mode)
            body = build_body(request, messages, features, schema_mode, streams=streams)
            try:
                response = await self._client.post(body, model=request.model, streams=streams, deadline=deadline)
            except NoAnswerError:
                raise ProviderUnavailable("the provider did not answer in time", usage=accepted.compute_usage(ChatReply())) from None
            except RequestRefusedError as refusal:
                parts = OptionalParts(
                    has_usage_option=streams,
                    has_schema=schema_mode is not None,
                    has_token_limit=request.max_tokens is not None,
                    has_optional_temperature=request.temperature is not None and request.is_temperature_optional,
                )
                reduction = reduce_features(features, parts, refusal.failure, model=request.model)
                if reduction is None:
                    raise build_error(refusal.failure, self._key) from None
                features = reduction.features
                if reduction.is_named:
                    learned.add(reduction.part)
                else:
                    guess = reduction.part
                continue
            if guess is not None:
                learned.add(guess)  # the last guess was right; those before it were not enough, and are guessed again next time
            for part in learned:
                self._features.store(request, features, part)
                _log.info("generation.features_reduced", model=request.model, part=part, **asdict(features))
            return response, accepted, features

    async def _read_completion(self, response: ProviderResponse, accepted: AcceptedRequest) -> Completion:
        try:
            body = await response.read_all(self._max_answer_bytes)
        except BodyReadError as error:
            usage = accepted.compute_usage(ChatReply())  # the provider may charge for the input
            raise ProviderUnavailable(f"{error}, in the middle of the answer", usage=usage) from None
        if body is None:
            raise ProviderResponseInvalid(f"it is larger than {self._max_answer_bytes:,} bytes")
        try:
            reply = parse_completion(body, self._key)
        except InvalidReplyError as error:
            raise ProviderResponseInvalid(str(error), excerpt=excerpt(body, self._key)) from None
        except ErrorReplyError as error:
            raise build_error(error.failure, self._key) from None
        return accepted.build_completion(reply, accepted.split(reply))
