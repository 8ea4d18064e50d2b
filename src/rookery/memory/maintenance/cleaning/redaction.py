"""The marks that stand for what was found, and how they are put into a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class PiiKind(StrEnum):
    """What was found; the mark is its value in brackets."""

    EMAIL = "email"
    PHONE = "phone"
    CARD = "card"
    IBAN = "iban"
    IP = "ip"
    NATIONAL_ID = "national-id"
    SECRET = "secret"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True, kw_only=True)
class PiiMatch:
    """A stretch of a text that is to be replaced by the mark of its kind."""

    kind: PiiKind
    start: int
    stop: int


_MAX_PASSES = 50
"""Two are seldom needed; each leaves fewer letters that are no mark."""

PiiFinder = Callable[[str], Iterable[PiiMatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedText:
    """A text with marks, and how many of each kind were put into it."""

    text: str
    counts: Mapping[PiiKind, int]


def redaction_mark(kind: PiiKind) -> str:
    """Return what stands for a find of that kind."""
    return f"[{kind.value}]"


def find_matches(text: str, finders: Sequence[PiiFinder]) -> list[PiiMatch]:
    """Return what *finders* find in *text*, in its order; where two meet, the earlier finder's."""
    taken, finds = bytearray(len(text)), list[PiiMatch]()
    for finder in finders:
        for found in finder(text):
            if not any(taken[found.start : found.stop]):
                taken[found.start : found.stop] = b"\1" * (found.stop - found.start)
                finds.append(found)
    return sorted(finds, key=lambda found: found.start)


def redact(text: str, finders: Sequence[PiiFinder]) -> RedactedText:
    """
    Return *text* with marks in place of what *finders* find, until they find no more.

    A mark may part what hid a second find from its finder.
    """
    counts = Counter[PiiKind]()
    for _ in range(_MAX_PASSES):
        finds = find_matches(text, finders)
        if not finds:
            break
        pieces, place = list[str](), 0
        for found in finds:
            pieces += [text[place : found.start], redaction_mark(found.kind)]
            place = found.stop
            counts[found.kind] += 1
        text = "".join([*pieces, text[place:]])
    return RedactedText(text=text, counts=counts)
