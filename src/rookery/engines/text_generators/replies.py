"""The JSON of a provider: completions, chunks of a stream, and errors. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import orjson

from rookery.content.chat import TokenUsage
from rookery.kernel.secret import Secret

T = TypeVar("T")

MAX_EXCERPT_CHARS = 300
MAX_MESSAGE_CHARS = 500
_MAX_NAME_CHARS = 200
_MAX_TOKENS = 10**9
"""Largest plausible number of tokens. A larger one counts as missing."""

_KEY_PATTERN = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|pk|rk|key|gsk|xai)[-_](?=[\w.-]*[\d*\u2026])[\w*.\u2026-]{4,}")
"""Keys as services quote them, also masked ones such as sk-ab***xyz. A word such as key-value has no digit and stays."""

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
"""Characters that PostgreSQL or UTF-8 cannot store."""

_HTML = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)


class InvalidReplyError(Exception):
    """An answer that is no chat completion. The message is the reason."""


class ErrorReplyError(Exception):
    """An answer with status 200 that contains an error."""

    def __init__(self, failure: ProviderFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailure:
    """
    An error that the provider reports.

    Attributes:
        status: The HTTP status, or the one that the error contains.
        message: The provider's words without keys; empty if it has none.
        code: The provider's code or type, such as `insufficient_quota`; empty if it has none.
        param: The field of the request that the error names; empty if it names none.
    """

    status: int
    message: str
    code: str = ""
    param: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """A completion, or what a chunk adds to it. None: the provider does not say."""

    text: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    usage: TokenUsage | None = None
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
    message = _as_object(choice.get("message"))
    if not message:
        raise InvalidReplyError("its first choice has no message")
    return ChatReply(
        text=_parse_text(message.get("content")),
        refusal=_as_text(message.get("refusal")),
        finish_reason=_parse_name(choice.get("finish_reason")),
        usage=_parse_usage(reply.get("usage")),
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
    usage, model = _parse_usage(chunk.get("usage")), _parse_name(chunk.get("model"))
    choices = chunk.get("choices")
    if choices is None and usage is None:
        raise InvalidReplyError("a chunk has neither choices nor usage")
    if not isinstance(choices, list | None):
        raise InvalidReplyError("the choices of a chunk are not a list")
    if not choices:
        return ChatReply(usage=usage, model=model)
    choice = _as_object(cast("list[object]", choices)[0])
    delta = _as_object(choice.get("delta"))
    return ChatReply(
        text=_parse_text(delta.get("content")),
        refusal=_as_text(delta.get("refusal")),
        finish_reason=_parse_name(choice.get("finish_reason")),
        usage=usage,
        model=model,
    )


def parse_failure(status: int, body: bytes, key: Secret | None) -> ProviderFailure:
    """Return the error in the *body* of a response with an error *status*, in any of the usual forms."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ProviderFailure(status=status, message=excerpt(body, key, MAX_MESSAGE_CHARS))
    if isinstance(parsed, str):
        return ProviderFailure(status=status, message=redact(parsed, key)[:MAX_MESSAGE_CHARS])
    fields = _as_object(parsed)
    error = fields.get("error")
    inner = _as_object(error) or fields
    message = _as_text(error) or _as_text(inner.get("message")) or _parse_detail(fields.get("detail"))
    return ProviderFailure(
        status=status,
        message=redact(message, key)[:MAX_MESSAGE_CHARS],
        code=_as_text(inner.get("code")) or _as_text(inner.get("type")),
        param=_as_text(inner.get("param")),
    )


def excerpt(body: bytes, key: Secret | None, max_chars: int = MAX_EXCERPT_CHARS) -> str:
    """Return the start of *body* as one line without keys; of a page its title."""
    text = body[: 8 * max_chars].decode(errors="replace")
    if _HTML.match(text):
        title = _HTML_TITLE.search(text)
        text = f"an HTML page, {title[1].strip()!r}" if title else "an HTML page"
    return redact(text, key)[:max_chars]


def redact(text: str, key: Secret | None) -> str:
    """Return *text* on one line, without *key* and without anything that looks like a key."""
    if key is not None:
        text = text.replace(key.reveal(), "…")
    return _CONTROL_CHARACTERS.sub(" ", _KEY_PATTERN.sub("…", text)).strip()


def _parse_object(body: bytes, key: Secret | None) -> Mapping[str, object]:
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = _parse_json_with_invalid_characters(body)
    if not isinstance(parsed, dict):
        raise InvalidReplyError("it is not a JSON object")
    fields = cast("dict[str, object]", parsed)
    error = fields.get("error")
    if error:
        code = _as_object(error).get("code", fields.get("code"))
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        raise ErrorReplyError(parse_failure(status, body, key))
    return fields


def _parse_json_with_invalid_characters(body: bytes) -> object:
    """Return the JSON of *body* that has invalid UTF-8 or half a surrogate pair, as when a service cuts a text between two tokens."""
    try:
        return json.loads(body.decode(errors="replace"))
    except (ValueError, RecursionError):
        raise InvalidReplyError("it is not JSON") from None


def _parse_text(content: object) -> str:
    """Return the text of a message: a string, null, or a list of parts, of which those with text count."""
    if isinstance(content, str):
        return _UNSTORABLE.sub("\ufffd", content)
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [_as_object(part) for part in cast("list[object]", content)]
        return "".join(_parse_text(part.get("text")) for part in parts if part.get("type") == "text")
    raise InvalidReplyError(f"the content of its message is of type {type(content).__name__}")


def _parse_usage(value: object) -> TokenUsage | None:
    usage = _as_object(value)
    input_tokens, output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (_is_count(input_tokens) and _is_count(output_tokens)):
        return None
    return TokenUsage(input_tokens=cast("int", input_tokens), output_tokens=cast("int", output_tokens))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_TOKENS


def _parse_name(value: object) -> str | None:
    return _CONTROL_CHARACTERS.sub(" ", value)[:_MAX_NAME_CHARS] if isinstance(value, str) and value else None


def _parse_detail(detail: object) -> str:
    """Return the text of FastAPI's `detail`, a text or a list of errors with `loc` and `msg`."""
    if not isinstance(detail, list):
        return _as_text(detail)
    errors = [_as_object(error) for error in cast("list[object]", detail)[:5]]
    return "; ".join(f"{_describe_location(error.get('loc'))}{_as_text(error.get('msg'))}" for error in errors)


def _describe_location(location: object) -> str:
    return ".".join(str(part) for part in cast("list[object]", location)) + ": " if isinstance(location, list) else ""


def _as_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else ""
