"""Normalisation of letters, white space and tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]")
"""Characters without width or meaning in a text. Joiners stay: some scripts and emoji need them."""

_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_TRAILING_SPACE = re.compile(r"[ \t]+$", re.MULTILINE)
_INNER_SPACE = re.compile(r"(?<=[^\s|])[ \t]{2,}(?=[^\s|])")
_EMPTY_LINES = re.compile(r"\n{3,}")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")
_INDENT = re.compile(r"^(?: {4}|\t)")


def normalize_text(text: str) -> str:
    """
    Return *text* in NFC with plain white space. It may be empty.

    Indentation, tables and code blocks keep their white space.
    """
    text = _LINE_BREAKS.sub("\n", unicodedata.normalize("NFC", _INVISIBLE.sub("", text)))
    text = _TRAILING_SPACE.sub("", _SPACES.sub(" ", text))
    lines, is_code = list[str](), False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        lines.append(line if is_code or _INDENT.match(line) else _INNER_SPACE.sub(" ", line))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n").rstrip()


def clean_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* in NFC and lower case, trimmed, without a leading #, without empty ones and duplicates, in their order."""
    normalized_tags = (" ".join(normalize_text(tag).lstrip("#").split()).lower() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in normalized_tags if tag))
