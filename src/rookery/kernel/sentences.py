"""Sentences of messages: texts of other programs, numbers with their nouns (`1 subscriber`, `2 subscribers`), nearest known names."""

from __future__ import annotations

import re
from collections.abc import Iterable


def end_sentence(text: str) -> str:
    """Return *text* with a full stop, unless it ends a sentence already."""
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def choose_noun(count: float, noun: str, plural: str | None = None) -> str:
    """Return *noun* if *count* is one, else *plural*, which adds an `s` by default."""
    return noun if count == 1 else plural or f"{noun}s"


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return *count*, with commas between thousands, and its noun."""
    return f"{count:,} {choose_noun(count, noun, plural)}"


_MAX_LENGTH = 64
"""Longest name with a suggestion. Comparing longer names costs too much."""
_MIN_PREFIX = 3
_SEPARATOR = re.compile(r"[.:]")
_PREFIX_DISTANCE = 1

_SYNONYMS = (
    frozenset({"limit", "per_page", "page_size", "top_k", "max_memories"}),
    frozenset({"state", "status"}),
    frozenset({"q", "query"}),
    frozenset({"ips", "ip_list"}),
    frozenset({"text", "content", "message"}),
    frozenset({"name", "title"}),
    frozenset({"scope", "memory_scope"}),
    frozenset({"scopes", "permissions"}),
    frozenset({"key", "token", "secret"}),
)
"""Names of the same thing in different places of the API, or in other APIs."""


def find_nearest(name: str, known_names: Iterable[str]) -> str | None:
    """
    Return the known name that was probably meant; None if none is near.

    A name is near if at most a third of its characters, but at least one, must change to get the other; if one is a prefix of the
    other; or if both are synonyms.
    """
    candidates = list(known_names)
    normalized = _normalize(name)
    if not normalized or len(normalized) > _MAX_LENGTH:
        return None
    distances = [
        (distance, candidate) for candidate in candidates if (distance := _name_distance(normalized, _normalize(candidate))) is not None
    ]
    if distances:
        return min(distances, key=lambda pair: pair[0])[1]
    synonyms = {synonym for group in _SYNONYMS if normalized in group for synonym in group}
    return next((candidate for candidate in candidates if candidate in synonyms), None)


def suggest(name: str, known_names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` to append to a message, or an empty text if no name is near."""
    nearest = find_nearest(name, known_names)
    return f"; did you mean {nearest!r}?" if nearest is not None else ""


def _normalize(name: str) -> str:
    return name.strip().casefold().replace("-", "_")


def _name_distance(name: str, other: str) -> int | None:
    """Return the distance of two names, None if it is too large. Names such as `brain:read` are compared part by part."""
    parts, other_parts = _SEPARATOR.split(name), _SEPARATOR.split(other)
    pairs = list(zip(parts, other_parts, strict=True)) if len(parts) == len(other_parts) else [(name, other)]
    total = 0
    for one, another in pairs:
        bound = max(1, len(one) // 3)
        distance = _PREFIX_DISTANCE if one != another and _is_prefix(one, another) else _edit_distance(one, another, bound)
        if distance and (distance > bound or distance >= len(one)):
            return None
        total += distance
    return total


def _is_prefix(one: str, other: str) -> bool:
    return min(len(one), len(other)) >= _MIN_PREFIX and (one.startswith(other) or other.startswith(one))


def _edit_distance(one: str, other: str, bound: int) -> int:
    """Return the number of insertions, deletions, replacements and swaps between two texts; above *bound*, any larger number."""
    if abs(len(one) - len(other)) > bound:
        return bound + 1
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, char in enumerate(one, 1):
        two_before, before, row = before, row, [i]
        for j, other_char in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (char != other_char))
            if i > 1 and j > 1 and char == other[j - 2] and one[i - 2] == other_char:
                cost = min(cost, two_before[j - 2] + 1)
            row.append(cost)
        if min(row) > bound:
            return bound + 1
    return row[-1]
