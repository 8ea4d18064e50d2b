"""
Arguments that models and clients send as text although they are a list, an object, a number or a boolean. No I/O.

Only a text with one meaning is read. `pier, crane` is a list of two words; in `Build it, and test it` the comma may belong to a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import cast

import orjson

UNREADABLE = object()
"""The text has no certain meaning for the expected types."""

UNSET_TEXTS = frozenset({"null", "none", "undefined"})
"""Texts that stand for an argument that is not set, where its type is not a text. They are no words of a list."""

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?")
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_JSON_STARTS = ("[", "{", '"')


def read_text(text: str, types: Collection[str], *, takes_words: bool) -> object:
    """
    Return the value that *text* stands for, or `UNREADABLE`.

    Args:
        text: The text as it was sent.
        types: The types of JSON Schema that are accepted.
        takes_words: The items of a list are texts, and *text* may be words, with commas between them, instead of JSON.
    """
    text = text.strip()
    if "boolean" in types and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if "integer" in types and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    if "object" in types and isinstance(value := _parse_json(text), dict):
        return cast("dict[str, object]", value)
    return _read_list(text, takes_words=takes_words) if "array" in types else UNREADABLE


def _read_list(text: str, *, takes_words: bool) -> object:
    value = _parse_json(text)
    if isinstance(value, list):
        return cast("list[object]", value)
    if not takes_words or not text or "\n" in text or text.lower() in UNSET_TEXTS:
        return UNREADABLE
    if text.startswith(_JSON_STARTS):
        return [value] if isinstance(value, str) else UNREADABLE
    parts = [part.strip() for part in text.split(",")]
    return parts if len(parts) == 1 or all(part and len(part.split()) == 1 for part in parts) else UNREADABLE


def _parse_json(text: str) -> object:
    if not text.startswith(_JSON_STARTS):
        return UNREADABLE
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        return UNREADABLE
