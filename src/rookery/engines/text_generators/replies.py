"""The JSON of a provider with status 200: completions and the chunks of a stream. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import orjson

from rookery.engines.text_generators.failures import ProviderFailure, find_error_status, parse_error_value
from rookery.engines.text_generators.usage import ReportedUsage, parse_usage
from rookery.kernel.secret import Secret

T = TypeVar("T")

_MAX_NAME_CHARS = 200
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that PostgreSQL or UTF-8 cannot store."""

_REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")
"""Fields beside `content` with the reasoning as a text. A provider with several has the same text in each."""

_REASONING_LISTS = ("reasoning_details", "thinking_blocks")
_REASONING_PARTS = frozenset({"thinking", "reasoning", "thought"})
_ANSWER_PARTS = frozenset({"text", "output_text"})
_UNKNOWN_ERROR_STATUS = 500


class InvalidReplyError(Exception):
    """An answer that is no chat completion. The message is the reason."""


class ErrorReplyError(Exception):
    """An answer with status 200 that contains an error."""

    def __init__(self, failure: ProviderFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """A completion, or what a chunk adds to it. None: the provider does not say."""

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    usage: ReportedUsage | None = None
    model: str | None = None


def parse_completion(body: bytes, key: Secret | None) -> ChatReply:
    """
    Return the completion in *body*.

    Raises:
        InvalidReplyError: It is no completion.
        ErrorReplyError: It is an error.
    """
    reply = _parse_object(body, key)
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices:
        raise InvalidReplyError("it has no choices")
    choice = _as_object(cast("list[object]", choices)[0])
    _require_no_error(choice, key)
    message = _as_object(choice.get("message"))
    is_empty = "message" not in choice and isinstance(choice.get("finish_reason"), str)  # Google's, if all tokens went into reasoning
    if not message and not is_empty:
        raise InvalidReplyError("its first choice has no message")
    text, reasoning = _parse_message(message)
    return ChatReply(
        text=text,
        reasoning=reasoning,
        refusal=_as_text(message.get("refusal")),
        finish_reason=_parse_name(choice.get("finish_reason")),
        usage=parse_usage(reply.get("usage")),
        model=_parse_name(reply.get("model")),
    )


def parse_chunk(data: bytes, key: Secret | None) -> ChatReply:
    """
    Return what a chunk of a stream adds. The chunk with the usage has no choices.

    Raises:
        InvalidReplyError: It is no chunk.
        ErrorReplyError: It is an error.
    """
    chunk = _parse_object(data, key)
    usage, model = _find_usage(chunk), _parse_name(chunk.get("model"))
    choices = chunk.get("choices")
    if choices is None and usage is None:
        raise InvalidReplyError("a chunk has neither choices nor usage")
    if not isinstance(choices, list | None):
        raise InvalidReplyError("the choices of a chunk are not a list")
    if not choices:
        return ChatReply(usage=usage, model=model)
    choice = _as_object(cast("list[object]", choices)[0])
    _require_no_error(choice, key)
    if usage is None and "usage" in choice:
        usage = parse_usage(choice["usage"])
    delta = _as_object(choice.get("delta"))
    text, reasoning = _parse_message(delta)
    return ChatReply(
        text=text,
        reasoning=reasoning,
        refusal=_as_text(delta.get("refusal")),
        finish_reason=_parse_name(choice.get("finish_reason")),
        usage=usage,
        model=model,
    )


def _parse_object(body: bytes, key: Secret | None) -> Mapping[str, object]:
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = _parse_json_with_invalid_characters(body)
    if isinstance(parsed, list) and parsed:  # some proxies put everything into a list, as Google's streams do
        parsed = cast("list[object]", parsed)[0]
    if not isinstance(parsed, dict):
        raise InvalidReplyError("it is not a JSON object")
    fields = cast("dict[str, object]", parsed)
    has_choices = "choices" in fields
    if fields.get("error") or (not has_choices and (fields.get("object") == "error" or fields.get("type") == "error")):
        raise ErrorReplyError(parse_error_value(find_error_status(fields, _UNKNOWN_ERROR_STATUS), fields, key))
    if not has_choices and (status := find_error_status(fields, 0)):
        raise ErrorReplyError(parse_error_value(status, fields, key))
    return fields


def _require_no_error(choice: Mapping[str, object], key: Secret | None) -> None:
    """Raise `ErrorReplyError` if a choice reports an error, as some proxies do when the service behind them fails."""
    error = choice.get("error")
    if error:
        raise ErrorReplyError(parse_error_value(find_error_status(error, _UNKNOWN_ERROR_STATUS), {"error": error}, key))


def _find_usage(chunk: Mapping[str, object]) -> ReportedUsage | None:
    """Return the usage of a chunk, which one provider has in an object of its own."""
    usage = parse_usage(chunk["usage"]) if "usage" in chunk else None
    if usage is None and "x_groq" in chunk:
        return parse_usage(_as_object(chunk["x_groq"]).get("usage"))
    return usage


def _parse_json_with_invalid_characters(body: bytes) -> object:
    """Return the JSON of *body* that has invalid UTF-8 or half a surrogate pair, as when a service cuts a text between two tokens."""
    try:
        return json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        raise InvalidReplyError("it is not JSON") from None


def _parse_message(message: Mapping[str, object]) -> tuple[str, str]:
    """Return the text and the reasoning of a message or of a delta."""
    content = message.get("content")
    if isinstance(content, str):
        text, reasoning = _clean(content), ""
        if text and len(message) == 1:
            return text, reasoning
    else:
        text, reasoning = _parse_parts(content)
    if not reasoning and (not text or len(message) > 1):
        reasoning = _find_reasoning(message)
    return text, reasoning


def _parse_parts(content: object) -> tuple[str, str]:
    """Return the text and the reasoning of a content that is no string: null, or a list of parts."""
    if content is None:
        return "", ""
    if not isinstance(content, list):
        raise InvalidReplyError(f"the content of its message is of type {type(content).__name__}")
    texts, reasoning = list[str](), list[str]()
    for part in map(_as_object, cast("list[object]", content)):
        kind = part.get("type")
        if kind in _ANSWER_PARTS:
            texts.append(_read_text(part.get("text")))
        elif kind in _REASONING_PARTS:
            reasoning.append(_read_text(part.get("thinking") or part.get("reasoning") or part.get("text")))
    return "".join(texts), "".join(reasoning)


def _find_reasoning(message: Mapping[str, object]) -> str:
    for name in _REASONING_NAMES:
        if name in message and (text := _read_text(message[name])):
            return text
    for name in _REASONING_LISTS:
        if isinstance(blocks := message.get(name), list):
            items = map(_as_object, cast("list[object]", blocks))
            text = "".join(_read_text(item.get("text") or item.get("thinking") or item.get("summary")) for item in items)
            if text:
                return text
    return ""


def _read_text(value: object) -> str:
    """Return a text, that of an object, or those of a list of parts; empty for anything else."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, list):
        return "".join(_read_text(item) for item in cast("list[object]", value))
    fields = _as_object(value)
    return _read_text(fields.get("text") or fields.get("content")) if fields else ""


def _clean(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)


def _parse_name(value: object) -> str | None:
    return _CONTROL_CHARACTERS.sub(" ", value)[:_MAX_NAME_CHARS] if isinstance(value, str) and value else None


def _as_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""
