"""
Series: memories of the same words but for numbers and dates, such as "The deploy of 2026-11-21 went well." Pure.

The first of a series in a result takes its place by its own score, the others lower ones: five times the same note is no better an answer
than one, and hides the memory beside them that matters. Nothing is left out for it, as long as there is room.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from rookery.kernel.tokenization import fold_text
from rookery.memory.models import Memory
from rookery.memory.statements import DATE_WORDS

T = TypeVar("T")

REPEATED_SHARE = 0.5
"""The share of its score by which a further memory of a series is ranked."""

_NUMBER = re.compile(r"\d+(?:[.,:/\-]\d+)*")
_CLOSING_MARKS = ".,;:!?)]"


class Series(NamedTuple):
    """
    The series of a memory in one result.

    Attributes:
        pattern: Its words without case, with a mark in place of each number, day and month.
        asked_values: The numbers and dates of the question that it has. A memory that has what was asked for repeats no other one.
    """

    pattern: str
    asked_values: frozenset[str]


def find_values(text: str) -> frozenset[str]:
    """Return the numbers, days and months of *text*."""
    low_text = text.casefold()
    return frozenset(_NUMBER.findall(low_text)) | {word.strip(_CLOSING_MARKS) for word in low_text.split() if _is_date_word(word)}


def find_series(content: str, asked_values: frozenset[str]) -> Series:
    """Return the series of a memory with *content* in the result of a question with *asked_values*."""
    words = ("#" if _is_date_word(word) else word for word in _NUMBER.sub("#", content.casefold()).split())
    return Series(" ".join(words), asked_values & find_values(content) if asked_values else asked_values)


def find_repeated(items: Sequence[T], get_series: Callable[[T], Series | None]) -> list[bool]:
    """Return for each of *items*, best first, whether a better one is of the same series. Without a series, None, it is not."""
    better_series = set[Series]()
    is_repeated = list[bool]()
    for item in items:
        series = get_series(item)
        is_repeated.append(series in better_series)
        if series is not None:
            better_series.add(series)
    return is_repeated


def select_distinct(memories: Sequence[Memory], limit: int) -> list[Memory]:
    """Return *limit* of *memories* in their order: the first of each series before any further one."""
    is_repeated = find_repeated(memories, lambda memory: find_series(memory.content, frozenset()))
    order = sorted(range(len(memories)), key=lambda index: is_repeated[index])
    return [memories[index] for index in sorted(order[:limit])]


def _is_date_word(word: str) -> bool:
    """Return whether *word*, without case, is the name of a day or a month."""
    name = word.strip(_CLOSING_MARKS)
    return name in DATE_WORDS or (not name.isascii() and fold_text(name) in DATE_WORDS)
