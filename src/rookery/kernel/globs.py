"""
Patterns of names: `*` is any text, `?` any character, `[abc]` one of these and `[!abc]` another one. Case matters. No I/O.

The result is that of `fnmatch.fnmatchcase`, which compiles a regular expression for each pattern. That takes 4 ms for a pattern of 120
stars, so a key with a thousand of them stopped the server for seconds. Here the time grows with the lengths of the pattern and of the name.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from functools import lru_cache, partial

WILDCARDS = frozenset("*?[")

_SET = re.compile(r"\[!?+\]?+[^\]]*\]")
"""A set of characters. A bracket without a closing one stands for itself."""

_ELEMENT = re.compile(rf"{_SET.pattern}|.", re.DOTALL)


class _Text:
    """A part of a pattern between two stars, without other wildcards."""

    __slots__ = ("_text", "length")

    def __init__(self, text: str) -> None:
        self._text, self.length = text, len(text)

    def matches_at(self, name: str, start: int) -> bool:
        """Return whether *name* has the segment at *start*, where it has enough characters."""
        return name.startswith(self._text, start)

    def find(self, name: str, start: int, end: int) -> int:
        """Return the first position from *start* on at which *name* has the segment before *end*, or -1 if no position has it."""
        return name.find(self._text, start, end)


_Check = str | re.Pattern[str]


class _Wildcards:
    """A segment with `?` or sets. All its positions in a name are found at once, as bits of integers."""

    __slots__ = ("_checks", "length")

    def __init__(self, text: str) -> None:
        elements = _ELEMENT.findall(text)
        self._checks: tuple[tuple[int, _Check], ...] = tuple(
            (offset, element if len(element) == 1 else _compile_set(element)) for offset, element in enumerate(elements) if element != "?"
        )
        self.length = len(elements)

    def matches_at(self, name: str, start: int) -> bool:
        """See `_Text`."""
        return all(
            name[start + offset] == check if isinstance(check, str) else check.match(name[start + offset]) is not None
            for offset, check in self._checks
        )

    def find(self, name: str, start: int, end: int) -> int:
        """See `_Text`."""
        if end - start < self.length:
            return -1
        places, starts = _get_places(name), (1 << (end - self.length + 1)) - (1 << start)
        for offset, check in self._checks:
            starts &= (places.get(check, 0) if isinstance(check, str) else _get_set_places(name, check)) >> offset
            if not starts:
                return -1
        return (starts & -starts).bit_length() - 1


_Segment = _Text | _Wildcards


def _make_segment(text: str) -> _Segment:
    return _Text(text) if WILDCARDS.isdisjoint(text) else _Wildcards(text)


@lru_cache(maxsize=4096)
def _compile_set(element: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(element))


@lru_cache(maxsize=1024)
def _get_places(name: str) -> dict[str, int]:
    """Return the positions of each character of *name*, as bits."""
    places = dict[str, int]()
    for position, char in enumerate(name):
        places[char] = places.get(char, 0) | 1 << position
    return places


@lru_cache(maxsize=4096)
def _get_set_places(name: str, members: re.Pattern[str]) -> int:
    """Return the positions of all characters of a set."""
    return sum(bits for char, bits in _get_places(name).items() if members.match(char))


def matches(name: str, pattern: str) -> bool:
    """Return whether the whole of *name* matches *pattern*."""
    return _compile(pattern)(name)


@lru_cache(maxsize=16_384)
def _compile(pattern: str) -> Callable[[str], bool]:
    if WILDCARDS.isdisjoint(pattern):
        return pattern.__eq__
    stem = pattern[:-1]
    if pattern.endswith("*") and WILDCARDS.isdisjoint(stem):
        return lambda name: name.startswith(stem)
    return partial(_match_segments, _split(pattern))


def _split(pattern: str) -> tuple[_Segment, ...]:
    if "[" not in pattern:
        return tuple(map(_make_segment, pattern.split("*")))
    segments = [""]
    for element in _ELEMENT.findall(pattern):
        if element == "*":
            segments.append("")
        else:
            segments[-1] += element
    return tuple(map(_make_segment, segments))


def _match_segments(segments: tuple[_Segment, ...], name: str) -> bool:
    first, *others = segments
    if not others:
        return len(name) == first.length and first.matches_at(name, 0)
    last = others.pop()
    start, end = first.length, len(name) - last.length
    if end < start or not first.matches_at(name, 0) or not last.matches_at(name, end):
        return False
    for segment in others:
        at = segment.find(name, start, end)
        if at < 0:
            return False
        start = at + segment.length
    return True


def count_sets(pattern: str) -> int:
    """Return the number of sets of characters in *pattern*, which take longer to match than the rest."""
    return len(_SET.findall(pattern))
