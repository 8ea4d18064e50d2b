"""The errors of a provider, in all the forms in which services and the proxies before them report one. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import orjson

from rookery.kernel.retry_delays import parse_duration
from rookery.kernel.secret import Secret

MAX_EXCERPT_CHARS = 300
MAX_MESSAGE_CHARS = 500
_MAX_DEPTH = 6
_MAX_LISTED_ERRORS = 5
_NONE_TEXTS = frozenset({"", "none", "null"})
"""Texts for a missing value: proxies write the `None` of Python as a text."""

_KEY_PATTERN = re.compile(r"(?i)\bbearer\s+\S+|\b(?:sk|pk|rk|key|gsk|xai)[-_](?=[\w.-]*[\d*\u2026])[\w*.\u2026-]{4,}")
"""Keys as services quote them, also masked ones such as sk-ab***xyz. A word such as key-value has no digit and stays."""

_MASKED = re.compile(r"\S*(?:\*{3,}|\u2026|\w\.{3})\S*|\b[0-9a-f]{32,}\b")
"""A masked key of any form, or the hash of one."""

_MIN_PART_CHARS = 4
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")

_HTML = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)

_MESSAGE_NAMES = (
    "message",
    "error",
    "errors",
    "detail",
    "details",
    "msg",
    "error_message",
    "error_description",
    "description",
    "reason",
    "title",
)
"""Fields with the words of an error, the best first."""

_DELAY_NAMES = ("retry_after", "retryAfter", "retry_after_seconds", "retry_after_s", "retryDelay")
_RETRY_WORDS = re.compile(
    r"(?:try again|retry(?: again)?) (?:in|after) (?P<delay>\d[\w.]*)(?:\s*(?P<unit>ms|milliseconds?|s|sec|seconds?|m|min|minutes?)\b)?",
    re.IGNORECASE,
)

_UPSTREAM_WORDS = re.compile(
    r"\blitellm\.\w+|\b\w+(?:Exception|Error) - |provider returned error|\bupstream\b|\bunderlying provider\b|\bprovider error\b",
    re.IGNORECASE,
)
"""Words with which a proxy passes on the error of the service behind it."""

_WRONG_KEY_WORDS = re.compile(
    r"api[ _-]?key (?:is )?(?:not valid|invalid|expired|not found)|(?:invalid|incorrect|wrong)[ _]api[ _-]?key|API_KEY_INVALID",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFailure:
    """
    An error that the provider reports.

    Attributes:
        status: The HTTP status, or the one that the error contains.
        message: The provider's words without keys; empty if it has none.
        code: The provider's code or type, such as `insufficient_quota`; empty if it has none.
        param: The field of the request that the error names; empty if it names none.
        retry_after_s: The delay in the body of the error; None if it names none.
    """

    status: int
    message: str
    code: str = ""
    param: str = ""
    retry_after_s: float | None = None

    @property
    def is_of_upstream(self) -> bool:
        """True if a proxy passes on the error of the service behind it."""
        return _UPSTREAM_WORDS.search(self.message) is not None

    @property
    def names_wrong_key(self) -> bool:
        """True if the words say that a key is invalid, whatever the status."""
        return _WRONG_KEY_WORDS.search(f"{self.message} {self.code}") is not None


def parse_failure(status: int, body: bytes, key: Secret | None) -> ProviderFailure:
    """Return the error in the *body* of a response with an error *status*, in any of the usual forms."""
    try:
        parsed: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ProviderFailure(status=status, message=excerpt(body, key, MAX_MESSAGE_CHARS))
    failure = parse_error_value(status, parsed, key)
    return failure if failure.message or not _has_sentence(parsed) else replace(failure, message=excerpt(body, key, MAX_MESSAGE_CHARS))


def parse_error_value(status: int, value: object, key: Secret | None) -> ProviderFailure:
    """Return the error in a JSON *value*: an object, a list of them, or a text."""
    places = list(_list_places(value))
    message = redact(_find_message(value), key)
    inner = _parse_quoted_error(message)
    if inner is not None and (inner_places := list(_list_places(inner))):
        places += inner_places
    delay = _find_delay(places)
    return ProviderFailure(
        status=status,
        message=message[:MAX_MESSAGE_CHARS],
        code=_find_name(places, ("code",)) or _find_name(places, ("type", "status", "error_type")),
        param=_find_name(places, ("param",)),
        retry_after_s=_parse_words_delay(message) if delay is None else delay,
    )


def find_error_status(value: object, default: int) -> int:
    """Return the HTTP status that an error contains, as a number or as a text; *default* if it has none."""
    for place in _list_places(value):
        for name in ("code", "status", "status_code", "http_status"):
            number = place.get(name)
            if isinstance(number, str) and number.isdecimal():
                number = int(number)
            if isinstance(number, int) and 400 <= number < 600:
                return number
    return default


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


def redact_parts(text: str, key: Secret | None) -> str:
    """Return *text* also without parts of *key* and without masked keys, for the words about a wrong key."""
    text = _MASKED.sub("…", text)
    if key is None or len(value := key.reveal()) < 2 * _MIN_PART_CHARS:
        return text
    start, end = value[:_MIN_PART_CHARS], value[-_MIN_PART_CHARS:]
    return " ".join("…" if _has_part(word, start, end) else word for word in text.split(" "))


def _has_part(word: str, start: str, end: str) -> bool:
    bare = word.strip("\"'`().,:;[]{}<>")
    return bare.startswith(start) or bare.endswith(end)


def _list_places(value: object) -> Iterable[Mapping[str, object]]:
    """Yield the objects that may describe the error, the innermost `error` first."""
    if isinstance(value, list):
        for item in cast("list[object]", value)[:_MAX_LISTED_ERRORS]:
            if fields := _as_object(item):
                yield from _list_places(fields)
                return
        return
    fields = _as_object(value)
    for name in ("error", "errors", "0"):
        if inner := fields.get(name):
            yield from _list_places(inner)
    if fields:
        yield fields


def _find_message(value: object, depth: int = 0) -> str:
    """Return the words of an error: a text, those of the best field of an object, or those of the items of a list."""
    if isinstance(value, str):
        return _unwrap(value, depth) if value.strip().lower() not in _NONE_TEXTS else ""
    if depth > _MAX_DEPTH or not value:
        return ""
    if isinstance(value, list):
        parts = [_find_message(item, depth + 1) for item in cast("list[object]", value)[:_MAX_LISTED_ERRORS]]
        return "; ".join(dict.fromkeys(part for part in parts if part))
    fields = _as_object(value)
    message = next((text for name in _MESSAGE_NAMES if (text := _find_message(fields.get(name), depth + 1))), "")
    if not message:  # one proxy makes an object with the keys 0, 1, … of a list
        places = (value for value in fields.values() if not isinstance(value, str))
        message = next((text for place in places if (text := _find_message(place, depth + 1))), "")
    location = fields.get("loc")
    if message and isinstance(location, list):
        return f"{'.'.join(str(part) for part in cast('list[object]', location))}: {message}"
    details = _find_message(_as_object(fields.get("metadata")).get("raw"), depth + 1)  # the error that a proxy quotes whole
    return f"{message}: {details}" if message and details and details not in message else message or details


def _unwrap(text: str, depth: int) -> str:
    """Return the words of an error that is in a text as JSON; else the text."""
    if depth > _MAX_DEPTH or text.lstrip()[:1] not in {"{", "["}:
        return text
    try:
        return _find_message(cast("object", orjson.loads(text)), depth + 1) or text
    except orjson.JSONDecodeError:
        return text


def _has_sentence(value: object) -> bool:
    """Return whether any text in *value* has words."""
    if isinstance(value, str):
        return " " in value.strip()
    if isinstance(value, dict):
        return any(_has_sentence(item) for item in cast("dict[str, object]", value).values())
    return isinstance(value, list) and any(_has_sentence(item) for item in cast("list[object]", value))


_QUOTED_FIELD = re.compile(r"""['"](param|code|type)['"]:\s*['"]([^'"]{1,100})['"]""")


def _parse_quoted_error(message: str) -> Mapping[str, object] | None:
    """Return the param and the code of an error that a proxy quotes in its words, as JSON or as Python writes it."""
    fields = {match[1]: match[2] for match in _QUOTED_FIELD.finditer(message)}
    return fields or None


def _find_name(places: Iterable[Mapping[str, object]], names: tuple[str, ...]) -> str:
    for place in places:
        for name in names:
            value = place.get(name)
            if isinstance(value, str) and value.strip().lower() not in _NONE_TEXTS and not value.isdecimal():
                return value
    return ""


def _find_delay(places: Iterable[Mapping[str, object]]) -> float | None:
    for place in places:
        details = place.get("details")
        items = [_as_object(item) for item in cast("list[object]", details)] if isinstance(details, list) else []
        for fields in (place, _as_object(place.get("metadata")), *items):
            delays = (parse_duration(str(fields[name])) for name in _DELAY_NAMES if isinstance(fields.get(name), str | int | float))
            if (delay := next((delay for delay in delays if delay is not None), None)) is not None:
                return delay
    return None


def _parse_words_delay(message: str) -> float | None:
    """Return the delay of words such as `Please try again in 1m2.5s`."""
    words = _RETRY_WORDS.search(message)
    if words is None:
        return None
    unit = (words["unit"] or "").lower()
    suffix = "ms" if unit.startswith(("ms", "mill")) else "m" if unit.startswith("m") else "s" if unit else ""
    return parse_duration(words["delay"].rstrip(".") + suffix)


def _as_object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
