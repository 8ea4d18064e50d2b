"""The JSON of requests to a provider. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from rookery.content.chat import ChatMessage, ChatRequest, SchemaMode
from rookery.engines.text_generators.compatibility import ModelFeatures

_SCHEMA_NAME = "answer"
_INSTRUCTION = "Answer with one JSON value that matches this JSON schema, and with nothing else:\n"
_MAX_MISMATCH_CHARS = 2000


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
