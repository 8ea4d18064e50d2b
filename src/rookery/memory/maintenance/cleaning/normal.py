"""One form for what looks the same: letters, white space, tags."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_UNSEEN = re.compile("[\u200b\u2060\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]")
"""Of no width, or of no meaning in a text; joiners stay: some scripts and signs are written with them."""

_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_AT_ENDS = re.compile(r"[ \t]+$", re.MULTILINE)
_INSIDE = re.compile(r"(?<=[^\s|])[ \t]{2,}(?=[^\s|])")
_EMPTY_LINES = re.compile(r"\n{3,}")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")
_INDENT = re.compile(r"^(?: {4}|\t)")


def normal_text(text: str) -> str:
    """
    Return *text* in NFC with plain white space; nothing left of it: as it was.

    Indentation, tables and blocks of code keep theirs: there it says something.
    """
    text = _BREAKS.sub("\n", unicodedata.normalize("NFC", _UNSEEN.sub("", text)))
    text = _AT_ENDS.sub("", _SPACES.sub(" ", text))
    lines, is_code = list[str](), False
    for line in text.split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        lines.append(line if is_code or _INDENT.match(line) else _INSIDE.sub(" ", line))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n").rstrip()


def normal_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* in NFC and lower case, trimmed, without a leading #, empty ones and repeats, in their order."""
    plain = (" ".join(normal_text(tag).lstrip("#").split()).lower() for tag in tags)
    return tuple(dict.fromkeys(tag for tag in plain if tag))
