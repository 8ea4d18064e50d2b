"""The redaction of personal data by marks, and the normalisation of letters, white space and tags."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class PiiKind(StrEnum):
    """The kind of personal data. Its mark is the value in brackets."""

    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    IP = "ip"
    NATIONAL_ID = "national-id"
    SECRET = "secret"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiMatch:
    """A span of a text that is to be replaced by the mark of its kind."""

    kind: PiiKind
    start: int
    stop: int


_INVISIBLE = re.compile("[\u200b\u2060\ufeff\u00ad\x00-\x08\x0e-\x1f\x7f]")
"""Characters without width or meaning in a text. Joiners stay: some scripts and emoji need them."""

_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_TRAILING_SPACE = re.compile(r"[ \t]+$", re.MULTILINE)
_INNER_SPACE = re.compile(r"(?<=[^\s|])[ \t]{2,}(?=[^\s|])")
_EMPTY_LINES = re.compile(r"\n{3,}")
_FENCE = re.compile(r"^\s{0,3}(?:```|~~~)")
_INDENT = re.compile(r"^(?: {4}|\t)")

_MAX_PASSES = 50
"""Maximum passes over a text; more than two are seldom needed. Each pass leaves fewer letters outside marks."""

PiiFinder = Callable[[str], Iterable[PiiMatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedText:
    """A redacted text, and the number of marks inserted by kind."""

    text: str
    counts: Mapping[PiiKind, int]


def redaction_mark(kind: PiiKind) -> str:
    return f"[{kind.value}]"


def find_matches(text: str, finders: Sequence[PiiFinder]) -> list[PiiMatch]:
    """Return the matches of *finders* in *text*, in its order. Where two overlap, the earlier finder wins."""
    mask, matches = bytearray(len(text)), list[PiiMatch]()
    for finder in finders:
        for match in finder(text):
            if not any(mask[match.start : match.stop]):
                mask[match.start : match.stop] = b"\1" * (match.stop - match.start)
                matches.append(match)
    return sorted(matches, key=lambda match: match.start)


def redact(text: str, finders: Sequence[PiiFinder]) -> RedactedText:
    """
    Return *text* with marks in place of all matches of *finders*.

    A mark may reveal another match, so passes are repeated until there are no more.
    """
    counts = Counter[PiiKind]()
    for _ in range(_MAX_PASSES):
        matches = find_matches(text, finders)
        if not matches:
            break
        pieces, position = list[str](), 0
        for match in matches:
            pieces += [text[position : match.start], redaction_mark(match.kind)]
            position = match.stop
            counts[match.kind] += 1
        text = "".join([*pieces, text[position:]])
    return RedactedText(text=text, counts=counts)


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
