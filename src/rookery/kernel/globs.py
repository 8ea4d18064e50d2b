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

_Check = str | re.Pattern[str]


class _Segment:
    """The part of a pattern between two stars. Each of its elements matches one character."""

    __slots__ = ("_checks", "_text", "length")

    _text: str | None
    _checks: tuple[tuple[int, _Check], ...]

    def __init__(self, pattern: str) -> None:
        self._text, self._checks, self.length = pattern, (), len(pattern)
        if "?" not in pattern and "[" not in pattern:
            return
        elements = _ELEMENT.findall(pattern)
        checks: list[tuple[int, _Check]] = [
            (offset, element if len(element) == 1 else re.compile(fnmatch.translate(element)))
            for offset, element in enumerate(elements)
            if element != "?"
        ]
        self._text, self._checks, self.length = None, tuple(checks), len(elements)

    def matches_at(self, name: str, start: int) -> bool:
        """Return whether *name* has the segment at *start*, where it has enough characters."""
        if self._text is not None:
            return name.startswith(self._text, start)
        return all(
            name[start + offset] == check if isinstance(check, str) else check.match(name[start + offset]) is not None
            for offset, check in self._checks
        )

    def find(self, name: str, start: int, end: int) -> int:
        """Return the first position from *start* on at which *name* has the segment before *end*, or -1 if no position has it."""
        if self._text is not None:
            return name.find(self._text, start, end)
        return next((at for at in range(start, end - self.length + 1) if self.matches_at(name, at)), -1)


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
        return tuple(map(_Segment, pattern.split("*")))
    segments = [""]
    for element in _ELEMENT.findall(pattern):
        if element == "*":
            segments.append("")
        else:
            segments[-1] += element
    return tuple(map(_Segment, segments))


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
