"""
Comparison of statements by their words: whether two texts say the same, or the same of something else (D-52). Pure.

Vectors do not tell: "Customer 701 pays 23 euros a month for the standard plan." and the same of customer 700 and 20 euros have a cosine
similarity of 0.93 with all-MiniLM-L6-v2 (measured). So a difference in a number, a date, a name, an identifier or a negation counts as
another statement, in any language. In doubt statements differ: a memory too many costs less than a fact too few.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from rookery.kernel.languages import is_function_word
from rookery.kernel.tokenization import STOP_WORDS, fold_text, is_unspaced, stem

_SENTENCE_END = re.compile(r"(?<=[.!?।։])\s+|(?<=[。！？])\s*")  # noqa: RUF001 - these scripts have these signs
_WHITE_SPACE = re.compile(r"\s+")
_OPENING_MARKS = "\"'`´‘’“”„‚«»‹›()[]{}*,;:!?¿¡…।։。、，；：！？·"  # noqa: RUF001 - see above
_CLOSING_MARKS = _OPENING_MARKS + "."
"""
Marks around a word that do not change it.

Signs such as `-`, `<`, `%` and `€` are not among them, nor is a dot before a word, as in `.env`.
"""

_DASHES = "-‐‑–—"  # noqa: RUF001 - see above
_WORD_SEPARATORS = re.compile(f"[{_DASHES}'’]+")
_CONTRACTED_NOT = re.compile(r"n['’]t$", re.IGNORECASE)
_CACHE_SIZE, _MAX_CACHED_CHARS = 4096, 500
_MAX_SHOWN_CHARS = 40

_NEGATIONS = frozenset(
    fold_text(word)
    for word in """
    barely cannot except hardly lacks lacking neither never no nobody none nor not nothing nowhere rarely scarcely seldom unless without
    ohne nicht nichts nie niemals niemand nirgends kein keine keinem keinen keiner keines weder außer kaum
    aucun aucune jamais ne ni pas personne rien sans sauf
    jamás nada nadie ni ninguna ninguno ningún nunca salvo sin tampoco
    mai né nemmeno neppure nessun nessuna nessuno niente non nulla senza tranne
    jamais nada nem nenhum nenhuma ninguém não nunca sem exceto
    fără nici niciodată niciun nicio nimeni nimic nu
    geen niemand niets niet nooit nergens zonder behalve
    aldri aldrig ej icke ikke inga ingen inget ingenting inte intet uden utan uten undtagen unntatt utom
    eikä eivät ei emme en et ette älä älkää ilman koskaan kukaan mitään paitsi
    kivéve ne nem nélkül nincs nincsenek se sem semmi senki soha sose
    asla değil değildir hariç hiç hiçbir olmadan olmaksızın yok yoktur
    belum bukan jangan kecuali tak tanpa tidak tiada
    без кроме не нельзя нет ни никогда никто нигде ничего ничто ні ніколи немає
    δε δεν εκτός κανένα κανένας κανείς μη μην ούτε ποτέ τίποτα χωρίς όχι
    أبدا بدون دون غير كلا لا لم لما لن ليس ليست ليسوا إلا سوى
    नहीं न ना मत बिना सिवाय कभी
    ոչ ոչինչ երբեք առանց մի բացի
    அல்ல இல்லை இல்லாமல் ஒருபோதும் கூடாது வேண்டாம் தவிர
    ani bez kromě ne není nejsou nemá nic nie nigdy nikdo nikdy nikt oprócz
    """.split()  # noqa: RUF001 - Turkish and Russian have these letters
)
"""Words that deny or except, in the languages that Rookery stems or recognizes. Endings that deny, as in Turkish, are words that differ."""

_ARMENIAN_DENIAL = "չ"
"""The first letter of a denied verb in Armenian."""

_UNSPACED_NEGATION = re.compile("[不没沒無无非未勿莫別别否]|ない|なか|なし|なく|ませ|않|안|못|없|아니|지 ?마|ไม่|มิ|อย่า")
"""Denials in scripts without spaces, where they are part of a run of letters. Some letters of other words are among them."""

_NEGATION = "¬"
DATE_WORDS = frozenset(
    fold_text(word)
    for word in """
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec
    montag dienstag mittwoch donnerstag freitag samstag sonnabend sonntag januar februar märz mai juni juli oktober dezember
    lundi mardi mercredi jeudi vendredi samedi dimanche janvier février mars avril juin juillet août septembre octobre novembre décembre
    lunes martes miércoles jueves viernes sábado domingo enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre
    diciembre
    lunedì martedì mercoledì giovedì venerdì sabato domenica gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
    """.split()
)
"""Days and months, which stand for a date beside numbers."""


class Difference(StrEnum):
    """In what two statements differ. The values are for people."""

    VALUE = "a number, date or identifier"
    NEGATION = "a negation"
    NAME = "a name"
    WORD = "a word"
    ORDER = "the order of their words"


class Distinction(NamedTuple):
    """A difference between two statements, with the first word of each where they differ, or "" behind its end."""

    difference: Difference
    word: str
    other_word: str

    def reverse(self) -> Distinction:
        """Return the difference as seen from the other statement."""
        return Distinction(self.difference, self.other_word, self.word)

    def __str__(self) -> str:
        places = " and ".join(f"'{word[:_MAX_SHOWN_CHARS]}'" if word else "nothing" for word in (self.word, self.other_word))
        return f"they differ in {self.difference}: {places}"


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, a value or a negation of a statement: *text* is compared, *word* is shown."""

    text: str
    kind: Difference
    word: str
    is_capitalized: bool = False


def split_sentences(line: str) -> list[str]:
    """Return the sentences of one line."""
    return _SENTENCE_END.split(line)


def normalize_sentence(sentence: str) -> str:
    """Return *sentence* without the case of its words, surplus white space and the mark at its end. Identifiers keep their case."""
    words = _WHITE_SPACE.sub(" ", sentence).strip().rstrip(".!?").split(" ")
    return " ".join(word if _is_value(word) else word.casefold() for word in words)


def find_distinction(content: str, other: str) -> Distinction | None:
    """
    Return how two texts differ, or None if all that one of them states is also stated by the other.

    A text that has all sentences of the other does not differ from it, and sentences that both have are left out. The rest may differ in
    the case and the form of words, in words without a topic, and in words behind the whole of the other statement.
    """
    words, other_words = _split_normalized(content), _split_normalized(other)
    left = _tokenize(sentence for key, sentence in words.items() if key not in other_words)
    right = _tokenize(sentence for key, sentence in other_words.items() if key not in words)
    if not left or not right:
        return None
    for kind in (Difference.VALUE, Difference.NEGATION):
        if (distinction := _compare_in_order(left, right, kind)) is not None:
            return distinction
    return _compare_names(left, right) or _compare_words(left, right)


def _split_normalized(content: str) -> dict[str, str]:
    sentences = (sentence for line in content.splitlines() for sentence in split_sentences(line))
    return {normalized: sentence for sentence in sentences if (normalized := normalize_sentence(sentence))}


def _tokenize(sentences: Iterable[str]) -> list[_Token]:
    return [
        token
        for sentence in sentences
        for token in (_tokenize_cached if len(sentence) <= _MAX_CACHED_CHARS else _tokenize_sentence)(sentence)
    ]


def _tokenize_sentence(sentence: str) -> tuple[_Token, ...]:
    return tuple(token for chunk in sentence.split() for token in _tokenize_chunk(chunk))


_tokenize_cached = lru_cache(maxsize=_CACHE_SIZE)(_tokenize_sentence)


def _tokenize_chunk(chunk: str) -> Iterable[_Token]:
    core = chunk.lstrip(_OPENING_MARKS).rstrip(_CLOSING_MARKS)
    if _CONTRACTED_NOT.search(core):
        verb = _CONTRACTED_NOT.sub("", core)
        yield _Token(fold_text(verb), Difference.WORD, verb)
        yield _Token(_NEGATION, Difference.NEGATION, core)
        return
    for is_run, letters in groupby(core, key=lambda letter: not letter.isascii() and is_unspaced(letter)):
        part = "".join(letters)
        if is_run:
            yield from _tokenize_run(part)
        elif _is_value(part):
            yield _Token(part, Difference.VALUE, part)
        else:
            yield from _tokenize_words(part)


def _tokenize_run(run: str) -> Iterable[_Token]:
    """Return the letters of a script without spaces; its numerals are values."""
    denied = {index for match in _UNSPACED_NEGATION.finditer(run) for index in range(match.start(), match.end())}
    for index, letter in enumerate(run):
        if index in denied:
            yield _Token(_NEGATION, Difference.NEGATION, letter)
        else:
            yield _Token(letter, Difference.WORD if unicodedata.numeric(letter, None) is None else Difference.VALUE, letter)


def _tokenize_words(part: str) -> Iterable[_Token]:
    words = _WORD_SEPARATORS.split(part)
    for number, word in enumerate(words):
        folded_word = fold_text(word)
        is_elided_not = folded_word == "n" and number < len(words) - 1  # as in French "n'est"
        if folded_word in _NEGATIONS or folded_word.startswith(_ARMENIAN_DENIAL) or is_elided_not:
            yield _Token(_NEGATION, Difference.NEGATION, word)
        elif folded_word in DATE_WORDS:
            yield _Token(folded_word, Difference.VALUE, word)
        elif folded_word:
            yield _Token(folded_word, Difference.WORD, word, is_capitalized=word[:1].isupper())


def _is_value(part: str) -> bool:
    """Return whether *part* has a numeral, a sign, or a capital letter behind a small one."""
    has_sign = any(
        unicodedata.numeric(letter, None) is not None
        or not (unicodedata.category(letter)[0] in "LMC" or letter in "'’" or letter in _DASHES)
        for letter in part
    )
    return has_sign or any(first.islower() and second.isupper() for first, second in pairwise(part))


def _compare_in_order(left: Sequence[_Token], right: Sequence[_Token], kind: Difference) -> Distinction | None:
    """Compare the values, or the negations with their places among the values."""
    kinds = {Difference.VALUE, kind}
    return _compare_sequences([token for token in left if token.kind in kinds], [token for token in right if token.kind in kinds], kind)


def _compare_names(left: Sequence[_Token], right: Sequence[_Token]) -> Distinction | None:
    """Compare the capitalized words in order. A word that is also written small, or a function word that begins a sentence, is no name."""
    both = (*left, *right)
    small = {token.text for token in both if not token.is_capitalized}
    names = {token.text for token in both if token.is_capitalized and token.text not in small and not is_function_word(token.text)}
    words = [token for token in left if token.text in names or token.kind is Difference.NEGATION]
    other_words = [token for token in right if token.text in names or token.kind is Difference.NEGATION]
    return _compare_sequences(words, other_words, Difference.NAME)


def _compare_words(left: Sequence[_Token], right: Sequence[_Token]) -> Distinction | None:
    """Compare all words. Words behind the whole of the other statement are no distinction, nor is another form of a word."""
    words, other_words = [token.text for token in left], [token.text for token in right]
    if len(words) == len(other_words):
        return _compare_sequences(left, right, Difference.ORDER if sorted(words) == sorted(other_words) else Difference.WORD)
    short, long = sorted((words, other_words), key=len)
    if long[: len(short)] == short:
        return None
    stems, other_stems = _list_stems(left), _list_stems(right)
    new_words = [word for stemmed, word in stems.items() if stemmed not in other_stems]
    other_new_words = [word for stemmed, word in other_stems.items() if stemmed not in stems]
    if not new_words and not other_new_words:
        return None
    return Distinction(Difference.WORD, next(iter(new_words), ""), next(iter(other_new_words), ""))


def _list_stems(tokens: Iterable[_Token]) -> dict[str, str]:
    """Return the stems of those of *tokens* that carry a topic, each with its word."""
    return {stem(token.text): token.word for token in tokens if token.text not in STOP_WORDS}


def _compare_sequences(left: Sequence[_Token], right: Sequence[_Token], kind: Difference) -> Distinction | None:
    for token, other_token in zip_longest(left, right):
        if token is None or other_token is None or token.text != other_token.text:
            return Distinction(kind, "" if token is None else token.word, "" if other_token is None else other_token.word)
    return None
