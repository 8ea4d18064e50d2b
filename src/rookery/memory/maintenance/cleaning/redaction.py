"""Redaction: the marks that replace personal data, and their insertion into a text."""

from __future__ import annotations

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


_MAX_PASSES = 50
"""Maximum passes over a text; more than two are seldom needed. Each pass leaves fewer letters outside marks."""

PiiFinder = Callable[[str], Iterable[PiiMatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedText:
    """A redacted text, and the number of marks inserted by kind."""

    text: str
    counts: Mapping[PiiKind, int]


def redaction_mark(kind: PiiKind) -> str:
    """Return the mark of *kind*."""
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
