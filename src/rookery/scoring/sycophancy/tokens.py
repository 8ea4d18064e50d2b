"""Sentences and words of a text, with their offsets. Everything is linear in the length of the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FOLDING = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u201c": '"', "\u201d": '"', **dict.fromkeys("123456789", "0")})
_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?|0+|[!?]")
_GAP = re.compile(r"(?<=[.!?…\"')\]*_])[ \t]+|\n\s*")
_CLOSING = "\"')]*_"
_TERMINATORS = ".!?…"
_MAX_CLOSING = 4
"""Maximum quotes and brackets between the end of a sentence and the space after it."""

_ABBREVIATIONS = frozenset(("e.g.", "i.e.", "etc.", "dr.", "mr.", "mrs.", "ms.", "vs.", "st.", "prof.", "no.", "fig.", "approx.", "cf."))
_MAX_ABBREVIATION_CHARS = 8

_ENDINGS = {"re": "are", "m": "am", "ve": "have", "ll": "will", "d": "would", "s": "is"}
_IRREGULAR = {
    "can't": ("can", "not"),
    "won't": ("will", "not"),
    "shan't": ("shall", "not"),
    "cannot": ("can", "not"),
    "let's": ("let", "us"),
}
_CONTRACTED_IS = frozenset(("it", "that", "he", "she", "there", "this", "what", "who", "where", "how", "here", "everything", "nothing"))
"""Words after which `'s` stands for `is`. After other words it marks a possessor and is dropped."""


class Sentence(NamedTuple):
    """
    A sentence or a line of a text.

    Attributes:
        start: The offset of its first character in the text.
        end: The offset after its last character.
        words: Its words in lower case, with `!` and `?`. A contraction such as *you're* is two words. Digits are `0`.
    """

    start: int
    end: int
    words: list[str]


def fold(text: str) -> str:
    """Return *text* in lower case with plain quotes and with 0 for each digit. Each character keeps its offset."""
    text = text.translate(_FOLDING)
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def split_sentences(folded: str) -> list[Sentence]:
    """Return the sentences with words of a text from `fold`, in order."""
    sentences = list[Sentence]()
    for start, end in _iter_ranges(folded):
        part = folded[start:end]
        words = _split_words(part)
        if words and (len(words) > 1 or words[0][0].isalpha()):
            sentences.append(Sentence(start + len(part) - len(part.lstrip()), start + len(part.rstrip()), words))
    return sentences


def locate_words(folded: str, sentence: Sentence, first: int, last: int) -> tuple[int, int]:
    """Return the offsets of the words from number *first* to number *last* of a sentence of *folded*."""
    number, start = 0, sentence.start
    for match in _WORD.finditer(folded, sentence.start, sentence.end):
        if number <= first:
            start = match.start()
        number += len(_expand(match[0]))
        if number > last:
            return start, match.end()
    return start, sentence.end


def _iter_ranges(folded: str) -> Iterator[tuple[int, int]]:
    start = 0
    for gap in _GAP.finditer(folded):
        if "\n" in gap[0] or _ends_sentence(folded, start, gap.start()):
            yield start, gap.start()
            start = gap.end()
    yield start, len(folded)


def _ends_sentence(folded: str, start: int, end: int) -> bool:
    position = end - 1
    for _ in range(_MAX_CLOSING):
        if position > start and folded[position] in _CLOSING:
            position -= 1
    if folded[position] not in _TERMINATORS:
        return False
    if folded[position] == ".":
        tail = folded[max(start, position + 1 - _MAX_ABBREVIATION_CHARS) : position + 1]
        return tail.rpartition(" ")[2] not in _ABBREVIATIONS
    return True


def _split_words(part: str) -> list[str]:
    words = _WORD.findall(part)
    return [piece for word in words for piece in _expand(word)] if "'" in part or "cannot" in part else words


def _expand(word: str) -> tuple[str, ...]:
    """Return the words of a contraction, or *word* itself."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    stem, apostrophe, ending = word.partition("'")
    if not apostrophe:
        return (word,)
    if ending == "t" and stem.endswith("n"):
        return (stem[:-1], "not")
    if ending == "s" and stem not in _CONTRACTED_IS:
        return (stem,)
    return (stem, _ENDINGS.get(ending, ending))
