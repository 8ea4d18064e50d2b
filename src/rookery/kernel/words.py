"""Words as every search of ours compares them: without case and accents, English ones by their stems, Chinese and such by pairs. Pure."""

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
English words that say nothing of what a question is about.

Words such as after, all, first, more, once or until are none: without them recall of single turns was measurably worse.
"""


_LONGEST_WORD = 6
"""A run of so many letters of a script without spaces is taken for one word; a longer one for several."""

_VOICED = "\u3099\u309a"
"""The marks that make another letter of a Japanese one."""

_UNSPACED = (
    "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3031-\u3035\u3041-\u3098\u309d-\u30ff\u31f0-\u31ff\uac00-\ud7af"  # kana, Hangul
    "\uff66-\uff9f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
)
"""Of a regular expression: letters of scripts that write no spaces between words, or (Korean) join particles to them."""

_RUN = re.compile(f"[{_UNSPACED}]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_LAST_MARK = 0xFFFF
"""Beyond it are those of dead scripts, and an expression that names any is ten times slower."""


class Part(NamedTuple):
    """A word of a text as it is compared, or a pair of letters of a script without spaces, and where it stands."""

    start: int
    end: int
    stem: str


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802 - the library's name


_stemmer = cast("_Stemmer", Stemmer.Stemmer("porter"))  # pyright: ignore[reportUnknownMemberType] - it has no types


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return what different forms of an English word share, without case and accents, as the text indexes have it."""
    return _stemmer.stemWord(folded(word))


def folded(text: str) -> str:
    """Return *text* without case, accents and other marks, in letters of the usual width: as it is compared."""
    low = text.casefold()
    if low.isascii():
        return low
    return unicodedata.normalize("NFC", _mark().sub("", unicodedata.normalize("NFKD", low)))


def indexed(text: str) -> str:
    """
    Return what a text index that knows of no script without spaces is to be given of *text*.

    Of a run of letters of such a script it gets each two that stand side by side, as in a question, and at the end each one alone.
    """
    if text.isascii():
        return text
    plain = folded(text)
    runs = _RUN.findall(plain)
    if not runs:
        return plain
    spaced = _RUN.sub(lambda run: f" {' '.join(_paired(run.group()))} ", plain)
    letters = dict.fromkeys(letter for run in runs for letter in run if len(run) > 1)
    return f"{spaced} {' '.join(letters)}"


def words_in(text: str) -> list[str]:
    """Return the words of *text*, in order; of scripts without spaces whole runs of letters."""
    return (_PLAIN_WORD if text.isascii() else _marked_word()).findall(text)


def sought(word: str) -> list[str]:
    """Return what to look for in what `indexed` gave, for a word of `words_in`: mostly itself."""
    plain = folded(word)
    if plain.isascii():
        return [plain]
    return [part for piece in _pieces(plain) for part in (_paired(piece) if _RUN.match(piece) else _PLAIN_WORD.findall(piece))]


def is_one(word: str) -> bool:
    """Tell whether a word of `words_in` is one word, as far as its length tells: a long run of Chinese letters is a sentence."""
    return word.isascii() or all(len(run) <= _LONGEST_WORD for run in _RUN.findall(folded(word)))


def taken_apart(text: str) -> list[Part]:
    """Return the words of *text*, in order, as they are compared, with their places in it."""
    if not _RUN.search(text):
        return [Part(word.start(), word.end(), stem(word.group())) for word in _words(text)]
    return [part for word in _words(text) for part in _parts(word)]


def singles(text: str) -> list[Part]:
    """Return each letter of scripts without spaces in *text*, with its place in it."""
    if not _RUN.search(text):
        return []
    return [letter for word in _words(text) for letter in _letters(word) if is_unspaced(letter.stem)]


@lru_cache(maxsize=16_384)
def is_unspaced(letters: str) -> bool:
    """Tell whether all of *letters* are of scripts without spaces."""
    return _RUN.fullmatch(letters) is not None


def _words(text: str) -> Iterator[re.Match[str]]:
    return (_PLAIN_WORD if text.isascii() else _marked_word()).finditer(text)


def _parts(word: re.Match[str]) -> Iterator[Part]:
    text = word.group()
    if not _RUN.search(text):
        yield Part(word.start(), word.end(), stem(text))
        return
    plain = _letter_by_letter(text)
    if plain is not None:
        at = word.start()
        for piece in _pieces(plain):
            if _RUN.match(piece) and len(piece) > 1:
                yield from map(Part, range(at, at + len(piece) - 1), range(at + 2, at + len(piece) + 1), _paired(piece))
            else:
                yield Part(at, at + len(piece), stem(piece))
            at += len(piece)
        return
    for is_run, letters in groupby(_letters(word), key=lambda letter: is_unspaced(letter.stem)):
        found = list(letters)
        if not is_run:
            yield Part(found[0].start, found[-1].end, stem("".join(each.stem for each in found)))
        elif len(found) == 1:
            yield found[0]
        else:
            yield from (Part(one.start, other.end, one.stem + other.stem) for one, other in pairwise(found))


def _letters(word: re.Match[str]) -> Iterator[Part]:
    """Yield the letters of *word*, each with its marks."""
    text, start = word.group(), word.start()
    plain = _letter_by_letter(text)
    if plain is not None:
        yield from (Part(start + at, start + at + 1, letter) for at, letter in enumerate(plain))
        return
    for letter in _letter().finditer(text):
        yield Part(start + letter.start(), start + letter.end(), _folded_letter(letter.group()))


def _letter_by_letter(word: str) -> str | None:
    """Return *word* folded, if each of its letters became one."""
    plain = folded(word)
    return plain if len(plain) == len(word) and not _mark().search(word) and not any(each in word for each in _VOICED) else None


@lru_cache(maxsize=16_384)
def _folded_letter(letter: str) -> str:
    return folded(letter)


def _pieces(plain: str) -> Iterator[str]:
    end = 0
    for run in _RUN.finditer(plain):
        if run.start() > end:
            yield plain[end : run.start()]
        yield run.group()
        end = run.end()
    if end < len(plain):
        yield plain[end:]


def _paired(run: str) -> list[str]:
    return [one + other for one, other in pairwise(run)] or [run]


@cache
def _marks() -> str:
    """Return all marks but those of Japanese, which make another letter of one."""
    return "".join(char for char in map(chr, range(_LAST_MARK)) if unicodedata.category(char).startswith("M") and char not in _VOICED)


@cache
def _mark() -> re.Pattern[str]:
    return re.compile(f"[{_marks()}]+")


@cache
def _letter() -> re.Pattern[str]:
    return re.compile(f".[{_marks()}{_VOICED}]*")


@cache
def _marked_word() -> re.Pattern[str]:
    return re.compile(rf"[^\W_](?:[^\W_]|[{_marks()}{_VOICED}])*")
