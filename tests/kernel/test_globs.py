"""Patterns of names give the results of `fnmatch`, in a time that no pattern makes long."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rookery.kernel.globs import matches
from tests.stopwatch import Stopwatch

_PIECES = [
    "a",
    "b",
    "A",
    "/",
    "-",
    ".",
    "\n",
    "é",
    "*",
    "**",
    "?",
    "[ab]",
    "[!a]",
    "[a-c]",
    "[c-a]",
    "[]a]",
    "[!]a]",
    "[",
    "]",
    "!",
    "[]",
    "[!]",
]
_names = st.lists(st.sampled_from(["a", "b", "c", "A", "/", "-", ".", "]", "[", "!", "\n", "é", "ab", "aab"]), max_size=8).map("".join)
_patterns = st.lists(st.sampled_from(_PIECES), max_size=7).map("".join)


@given(name=_names, pattern=_patterns)
@example(name="ab", pattern="[]")
@example(name="", pattern="")
@example(name="aa", pattern="a*a*a")
@example(name="time/get", pattern="time/*")
def test_the_result_is_that_of_fnmatch(name: str, pattern: str) -> None:
    """`servers/tools` patterns are those that users know from the shell."""
    assert matches(name, pattern) is fnmatchcase(name, pattern)


@pytest.mark.parametrize(("start", "piece"), [("", "*a"), ("", "*?"), ("", "*[!b]"), ("", "?"), ("", "[!b]"), ("", "*a*b"), ("*", "a?")])
def test_no_pattern_takes_long(start: str, piece: str) -> None:
    """A thousand patterns of a key, of about 256 characters each, take less than a quarter of a second."""
    patterns = [start + (piece * 256)[: 240 // len(piece) * len(piece)] + f"b*{number}" for number in range(1_000)]
    with Stopwatch() as watch:
        found = [matches("a" * 256, pattern) for pattern in patterns]

    assert not any(found)
    assert watch.reference_s < 0.25
