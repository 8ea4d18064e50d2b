"""English words as every search of ours compares them: their stems, and those that say nothing. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Protocol, cast

import Stemmer

STOP_WORDS = frozenset(
    """
    a about also am an and any are as at be because been being between both but by can could did do does doing done for from
    further had has have having he her here hers him his how i if in into is it its just let may me might must my no nor not
    now of on or our ours please shall she should so some such tell than that the their theirs them then there these they
    this those to too us very was we were what when where which while who whom whose why will with would you your yours s t
    d ll m re ve
    """.split()
)
"""
English words that say nothing of what a question is about.

Words such as after, all, first, more, once or until are none: without them recall of single turns was measurably worse.
"""


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


_stemmer = cast("_Stemmer", Stemmer.Stemmer("porter"))  # pyright: ignore[reportUnknownMemberType] - it has no types


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return what different forms of an English word share, without case and accents, as the text indexes have it."""
    folded = word.casefold()
    if not folded.isascii():
        folded = "".join(char for char in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(char))
    return _stemmer.stemWord(folded)
