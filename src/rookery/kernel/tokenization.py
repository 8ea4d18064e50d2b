"""Tokens for text search: without case and accents, stemmed in English, bigrams in scripts without spaces such as Chinese. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple, Protocol, cast

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
English words that carry no topic.

Words such as after, all, first, more, once or until are not stop words: without them, recall of single turns was measurably worse.
"""


_MAX_UNSPACED_WORD_LENGTH = 6
"""Longest run of letters that counts as one word in a script without spaces. A longer run counts as several words."""

_JAPANESE_VOICING_MARKS = "\u3099\u309a"
"""Combining marks that turn a Japanese letter into another letter."""

_UNSPACED_SCRIPTS = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3031-\u3035\u3041-\u3098\u309d-\u30ff\u31f0-\u31ff\uac00-\ud7af"  # kana, Hangul
    "\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
"""Part of a regular expression: letters of scripts without spaces between words, or with attached particles (Korean)."""

_UNSPACED_RUN = re.compile(f"[{_UNSPACED_SCRIPTS}]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_LAST_COMBINING_MARK = 0xFFFF
"""Marks beyond it belong to dead scripts, and a pattern that contains any is ten times slower."""


class WordToken(NamedTuple):
    """A stemmed word of a text, or a pair of letters of a script without spaces, with its position."""

    start: int
    end: int
    stem: str


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


_stemmer = cast("_Stemmer", Stemmer.Stemmer("porter"))  # pyright: ignore[reportUnknownMemberType] - it has no types


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of an English word, without case and accents, as in the text indexes."""
    return _stemmer.stemWord(fold_text(word))


def fold_text(text: str) -> str:
    """Return *text* without case, accents and other marks, in letters of normal width, for comparisons."""
    low = text.casefold()
    if low.isascii():
        return low
    return unicodedata.normalize("NFC", _mark_pattern().sub("", unicodedata.normalize("NFKD", low)))


def to_index_text(text: str) -> str:
    """
    Return *text* in the form for a text index that does not support scripts without spaces.

    A run of letters of such a script becomes its bigrams, as in a query, followed by its single letters.
    """
    if text.isascii():
        return text
    folded_text = fold_text(text)
    runs = _UNSPACED_RUN.findall(folded_text)
    if not runs:
        return folded_text
    spaced = _UNSPACED_RUN.sub(lambda run: f" {' '.join(_bigrams(run.group()))} ", folded_text)
    letters = dict.fromkeys(letter for run in runs for letter in run if len(run) > 1)
    return f"{spaced} {' '.join(letters)}"


def split_words(text: str) -> list[str]:
    """Return the words of *text* in order. In scripts without spaces, a word is a whole run of letters."""
    return (_PLAIN_WORD if text.isascii() else _word_pattern()).findall(text)


def to_search_terms(word: str) -> list[str]:
    """Return the terms to search in texts from `to_index_text`, for one word from `split_words`. Mostly this is the word itself."""
    folded_text = fold_text(word)
    if folded_text.isascii():
        return [folded_text]
    return [
        part
        for piece in _split_runs(folded_text)
        for part in (_bigrams(piece) if _UNSPACED_RUN.match(piece) else _PLAIN_WORD.findall(piece))
    ]


def is_single_word(word: str) -> bool:
    """Return whether a word from `split_words` is a single word, judged by its length: a long run of Chinese letters is a sentence."""
    return word.isascii() or all(len(run) <= _MAX_UNSPACED_WORD_LENGTH for run in _UNSPACED_RUN.findall(fold_text(word)))


def tokenize(text: str) -> list[WordToken]:
    """Return the tokens of *text* in order, with their positions."""
    if not _UNSPACED_RUN.search(text):
        return [WordToken(word.start(), word.end(), stem(word.group())) for word in _iter_words(text)]
    return [part for word in _iter_words(text) for part in _iter_tokens(word)]


def tokenize_unspaced_letters(text: str) -> list[WordToken]:
    """Return each letter of scripts without spaces in *text*, with its position."""
    if not _UNSPACED_RUN.search(text):
        return []
    return [letter for word in _iter_words(text) for letter in _iter_letters(word) if is_unspaced(letter.stem)]


@lru_cache(maxsize=16_384)
def is_unspaced(letters: str) -> bool:
    """Return whether all *letters* belong to scripts without spaces."""
    return _UNSPACED_RUN.fullmatch(letters) is not None


def _iter_words(text: str) -> Iterator[re.Match[str]]:
    return (_PLAIN_WORD if text.isascii() else _word_pattern()).finditer(text)


def _iter_tokens(word: re.Match[str]) -> Iterator[WordToken]:
    text = word.group()
    if not _UNSPACED_RUN.search(text):
        yield WordToken(word.start(), word.end(), stem(text))
        return
    folded_text = _fold_per_letter(text)
    if folded_text is not None:
        start = word.start()
        for piece in _split_runs(folded_text):
            if _UNSPACED_RUN.match(piece) and len(piece) > 1:
                yield from map(WordToken, range(start, start + len(piece) - 1), range(start + 2, start + len(piece) + 1), _bigrams(piece))
            else:
                yield WordToken(start, start + len(piece), stem(piece))
            start += len(piece)
        return
    for is_run, letters in groupby(_iter_letters(word), key=lambda letter: is_unspaced(letter.stem)):
        tokens = list(letters)
        if not is_run:
            yield WordToken(tokens[0].start, tokens[-1].end, stem("".join(token.stem for token in tokens)))
        elif len(tokens) == 1:
            yield tokens[0]
        else:
            yield from (WordToken(one.start, other.end, one.stem + other.stem) for one, other in pairwise(tokens))


def _iter_letters(word: re.Match[str]) -> Iterator[WordToken]:
    """Yield the letters of *word*, each with its marks."""
    text, start = word.group(), word.start()
    folded_text = _fold_per_letter(text)
    if folded_text is not None:
        yield from (WordToken(start + offset, start + offset + 1, letter) for offset, letter in enumerate(folded_text))
        return
    for letter in _letter_pattern().finditer(text):
        yield WordToken(start + letter.start(), start + letter.end(), _fold_letter(letter.group()))


def _fold_per_letter(word: str) -> str | None:
    """Return *word* folded if each letter became exactly one letter, otherwise None."""
    folded_text = fold_text(word)
    return (
        folded_text
        if len(folded_text) == len(word) and not _mark_pattern().search(word) and not any(mark in word for mark in _JAPANESE_VOICING_MARKS)
        else None
    )


@lru_cache(maxsize=16_384)
def _fold_letter(letter: str) -> str:
    return fold_text(letter)


def _split_runs(folded_text: str) -> Iterator[str]:
    end = 0
    for run in _UNSPACED_RUN.finditer(folded_text):
        if run.start() > end:
            yield folded_text[end : run.start()]
        yield run.group()
        end = run.end()
    if end < len(folded_text):
        yield folded_text[end:]


def _bigrams(run: str) -> list[str]:
    return [one + other for one, other in pairwise(run)] or [run]


@cache
def _combining_marks() -> str:
    """Return all combining marks except those that turn a Japanese letter into another letter."""
    return "".join(
        char
        for char in map(chr, range(_LAST_COMBINING_MARK))
        if unicodedata.category(char).startswith("M") and char not in _JAPANESE_VOICING_MARKS
    )


@cache
def _mark_pattern() -> re.Pattern[str]:
    return re.compile(f"[{_combining_marks()}]+")


@cache
def _letter_pattern() -> re.Pattern[str]:
    return re.compile(f".[{_combining_marks()}{_JAPANESE_VOICING_MARKS}]*")


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(rf"[^\W_](?:[^\W_]|[{_combining_marks()}{_JAPANESE_VOICING_MARKS}])*")
