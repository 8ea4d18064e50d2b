"""
Comparison of statements by their words: whether two texts say the same, or the same of something else. Pure.

Vectors do not tell: "Customer 701 pays 23 euros a month for the standard plan." and the same of customer 700 and 20 euros have a cosine
similarity of 0.93 with all-MiniLM-L6-v2 (measured). So a difference in a number, a date, a name, an identifier or a negation counts as
another statement, in any language. In doubt statements differ: a memory too many costs less than a fact too few.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import lru_cache
from itertools import groupby, pairwise, zip_longest
from typing import NamedTuple

from rookery.kernel.languages import is_function_word
from rookery.kernel.tokenization import fold_text, is_unspaced, stem

_SENTENCE_END = re.compile(r"(?<=[.!?।։])\s+|(?<=[。！？])\s*")  # noqa: RUF001 - these scripts have these signs
_OPENING_MARKS = "\"'`´‘’“”„‚«»‹›()[]{}*,;:!?¿¡…।։。、，；：！？·"  # noqa: RUF001 - see above
_CLOSING_MARKS = _OPENING_MARKS + "."
"""
Marks around a word that do not change it.

Signs such as `-`, `<`, `%` and `€` are not among them, nor is a dot before a word, as in `.env`.
"""

_DASHES = "-‐‑–—"  # noqa: RUF001 - see above
_WORD_SEPARATORS = re.compile(f"[{_DASHES}'’]+")
_CONTRACTED_NOT = re.compile(r"n['’ʼ`´]t$", re.IGNORECASE)  # noqa: RUF001 - see above
_DENYING_SIGN = re.compile(r"!+(?=\w)")
_COMMAND_OPTION = re.compile(r"--?[^\W\d]")
_FEET_OR_INCHES = re.compile(r"[^'\"’”]*\d['\"’”]")
_FILE_PATTERN = re.compile(r"[^*]*[./][^*]*\*|\*[^*]*[./][^*]*")
_NUMERAL = re.compile(r"\d")
_MAX_UNIT_LETTERS = 3
_HALVES_OF_THE_DAY = frozenset(("am", "pm"))

_QUESTION_MARKS = "?？՞؟"  # noqa: RUF001 - see above
_STATEMENT_MARKS = ".!։।。！…"  # noqa: RUF001 - see above
_QUOTATION_MARKS = "\"'’”»`)*_"
_SPACE_AND_END_MARKS = _STATEMENT_MARKS + _QUESTION_MARKS + " \t\r\f\v\u00a0"
_TITLE = re.compile(r"(?:^|[\s(])(?:dr|hr|mlle|mme|mr|mrs|ms|prof|sr|sra|st|[^\W\d])\.$", re.IGNORECASE)
_NUMBERING = re.compile(r"(?:^|[\s(])(?:abs|art|fig|no|nr|num|núm|pp?|vol)\.$", re.IGNORECASE)
_ORDINAL = re.compile(r"(?:^|[\s(])\d{1,4}\.$")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_CACHE_SIZE, _MAX_CACHED_CHARS = 4096, 500
_MAX_SHOWN_CHARS = 40

_NEGATIONS = frozenset(
    fold_text(word)
    for word in """
    aint arent cant couldnt didnt doesnt dont hadnt hasnt havent isnt mustnt neednt shouldnt wasnt werent wont wouldnt
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


_FILLERS = frozenset("a also am an and are be being do does doing is it its of please so that the there very".split())
"""English words that may be missing from one of two equal statements. Others without a topic, such as "from" and "may", may not."""


class Difference(StrEnum):
    """In what two statements differ. The values are for people."""

    VALUE = "a number, date or identifier"
    NEGATION = "a negation"
    NAME = "a name"
    QUESTION = "a question mark"
    WORD = "a word"
    ORDER = "the order of their words"
    METADATA = "metadata"
    TAG = "a tag"


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


class _Piece(NamedTuple):
    """A sentence of a text: *key* is compared, *line* is the number of its line."""

    key: str
    sentence: str
    line: int


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, a value or a negation of a statement: *text* is compared, *word* is shown."""

    text: str
    kind: Difference
    word: str
    is_capitalized: bool = False


def split_sentences(line: str) -> list[str]:
    """Return the sentences of one line. A title or a numeral that belongs to the next word, as in "Dr. Lee" and "3. Mai", ends none."""
    sentences, start = list[str](), 0
    for end in _SENTENCE_END.finditer(line):
        if not _continues(line[start : end.start()], line[end.end() :]):
            sentences.append(line[start : end.start()])
            start = end.end()
    return [*sentences, line[start:]]


def list_sentences(text: str) -> list[str]:
    """Return the sentences of *text* in the form in which equal ones are equal."""
    return _keys(_split_pieces(text))


def extract_new_sentences(content: str, other: str) -> str:
    """
    Return the sentences of *other* that *content* lacks, line by line. White space and the case of words are ignored.

    If the order of the sentences of *other* matters, as below headings, it is all of *other*, or what follows the whole of *content*.
    """
    pieces, other_pieces = _split_pieces(content), _split_pieces(other)
    if _is_ordered(other_pieces):
        if _contains(pieces, other_pieces):
            return ""
        is_longer = _keys(other_pieces[: len(pieces)]) == _keys(pieces)
        return _join_pieces(other_pieces[len(pieces) :] if is_longer else other_pieces)
    old_keys = set(_keys(pieces))
    return _join_pieces(
        [piece for piece in {piece.key: piece for piece in reversed(other_pieces)}.values() if piece.key not in old_keys][::-1]
    )


def find_distinction(content: str, other: str) -> Distinction | None:
    """
    Return how two texts differ, or None if all that one of them states is also stated by the other.

    A text that has all sentences of the other does not differ from it, and sentences that both have are left out. The rest may differ in
    the case and the form of words, in words without a topic, and in words behind the whole of the other statement. Sentences whose meaning
    depends on those before them, such as lines below a heading and answers, must also have the same order.
    """
    pieces, other_pieces = _split_pieces(content), _split_pieces(other)
    if not (_is_ordered(pieces) or _is_ordered(other_pieces)):
        keys, other_keys = set(_keys(pieces)), set(_keys(other_pieces))
        return _compare(
            [piece for piece in pieces if piece.key not in other_keys], [piece for piece in other_pieces if piece.key not in keys]
        )
    if _contains(pieces, other_pieces) or _contains(other_pieces, pieces):
        return None
    rest, other_rest = _remove_common(pieces, other_pieces)
    if rest and other_rest:
        return _compare(rest, other_rest)
    return _compare(pieces, other_pieces) or Distinction(Difference.ORDER, pieces[0].sentence, other_pieces[0].sentence)


def _compare(pieces: Sequence[_Piece], other_pieces: Sequence[_Piece]) -> Distinction | None:
    left, right = _tokenize(pieces), _tokenize(other_pieces)
    if not left or not right:
        return None
    for kind in (Difference.VALUE, Difference.NEGATION, Difference.QUESTION):
        if (distinction := _compare_in_order(left, right, kind)) is not None:
            return distinction
    return _compare_names(left, right) or _compare_words(left, right)


def _continues(before: str, after: str) -> bool:
    """Return whether the mark at the end of *before* does not end its sentence."""
    if _TITLE.search(before) and before[-2].isalpha():
        return after[:1].isupper()
    if _NUMBERING.search(before):
        return after[:1].isdecimal()
    word = _FIRST_WORD.match(after)
    return word is not None and _ORDINAL.search(before) is not None and (word[0].islower() or fold_text(word[0]) in DATE_WORDS)


def _split_pieces(text: str) -> Sequence[_Piece]:
    """Return the sentences of *text*. A consolidation compares each text with many others."""
    return (_split_cached if len(text) <= _MAX_CACHED_CHARS else _split_text)(text)


def _split_text(text: str) -> Sequence[_Piece]:
    pieces = list[_Piece]()
    for number, line in enumerate(text.splitlines()):
        for sentence in split_sentences(line):
            if key := _normalize_sentence(sentence):
                pieces.append(_Piece(key, sentence, number))
    return pieces


_split_cached = lru_cache(maxsize=_CACHE_SIZE)(_split_text)


def _normalize_sentence(sentence: str) -> str:
    """Return *sentence* without the case of its words, surplus white space and the mark at its end. Identifiers keep their case."""
    words = sentence.rstrip(_SPACE_AND_END_MARKS).split()
    low_words = (word if has_case else _lower(word) for word, has_case in zip(words, _mark_case(words), strict=True))
    return " ".join(low_words) + ("?" if words and _is_question(sentence) else "")


def _lower(word: str) -> str:
    """Return *word* in small letters, whichever way its accents are coded. They tell words apart, such as "schon" and "schön"."""
    low = word.lower()
    return low if low.isascii() else unicodedata.normalize("NFKC", low)


def _mark_case(words: Sequence[str]) -> list[bool]:
    """Return for each of the words of a sentence whether its case belongs to it: values, units of numbers as "Mb", and acronyms."""
    is_mixed = any(letter.islower() for word in words for letter in word)
    return [
        _is_value(_strip_marks(word)) or _is_unit(word, words[number - 1] if number else "") or (is_mixed and _is_acronym(word))
        for number, word in enumerate(words)
    ]


def _strip_marks(word: str) -> str:
    return word.lstrip(_OPENING_MARKS).rstrip(_CLOSING_MARKS)


def _is_unit(word: str, number: str) -> bool:
    letters = word.strip(_CLOSING_MARKS)
    is_short = len(letters) <= _MAX_UNIT_LETTERS and letters.isalpha() and letters.lower() != letters
    return is_short and letters.lower() not in _HALVES_OF_THE_DAY and _NUMERAL.search(number) is not None


def _is_acronym(word: str) -> bool:
    letters = word.strip(_CLOSING_MARKS)
    return len(letters) > 1 and letters.isalpha() and letters.isupper() and letters.lower() not in _HALVES_OF_THE_DAY


def _is_question(sentence: str) -> bool:
    return any(mark in sentence[len(sentence.rstrip(_SPACE_AND_END_MARKS)) :] for mark in _QUESTION_MARKS)


def _is_ordered(pieces: Sequence[_Piece]) -> bool:
    """Return whether a piece depends on those around it: it has no mark at its end, is one word, or follows a question or a colon."""
    has_lines = len(pieces) > 1 and pieces[0].line != pieces[-1].line
    return len(pieces) > 1 and any(
        (" " not in piece.key.strip() and not is_unspaced(piece.key[:1]))
        or piece.key.endswith((":", "?"))
        or (has_lines and (number + 1 == len(pieces) or pieces[number + 1].line != piece.line) and not _has_end(piece.sentence))
        for number, piece in enumerate(pieces)
    )


def _has_end(sentence: str) -> bool:
    return sentence.rstrip().rstrip(_QUOTATION_MARKS).endswith(tuple(_STATEMENT_MARKS + _QUESTION_MARKS))


def _contains(pieces: Sequence[_Piece], others: Sequence[_Piece]) -> bool:
    """Return whether *others* are in *pieces*, one behind the other."""
    keys, other_keys = _keys(pieces), _keys(others)
    return any(keys[start : start + len(others)] == other_keys for start in range(len(pieces) - len(others) + 1))


def _remove_common(left: Sequence[_Piece], right: Sequence[_Piece]) -> tuple[list[_Piece], list[_Piece]]:
    """Return the pieces of both that the other does not have at the same place of the common order."""
    blocks = SequenceMatcher(None, _keys(left), _keys(right), autojunk=False).get_matching_blocks()
    common_left = {index for block in blocks for index in range(block.a, block.a + block.size)}
    common_right = {index for block in blocks for index in range(block.b, block.b + block.size)}
    rest = [piece for index, piece in enumerate(left) if index not in common_left]
    return rest, [piece for index, piece in enumerate(right) if index not in common_right]


def _keys(pieces: Iterable[_Piece]) -> list[str]:
    return [piece.key for piece in pieces]


def _join_pieces(pieces: Iterable[_Piece]) -> str:
    lines = (" ".join(piece.sentence for piece in line) for _, line in groupby(pieces, key=lambda piece: piece.line))
    return "\n".join(lines).strip()


def _tokenize(pieces: Iterable[_Piece]) -> list[_Token]:
    return [
        token
        for _, sentence, _ in pieces
        for token in (_tokenize_cached if len(sentence) <= _MAX_CACHED_CHARS else _tokenize_sentence)(sentence)
    ]


def _tokenize_sentence(sentence: str) -> tuple[_Token, ...]:
    words = sentence.split()
    tokens = [token for word, has_case in zip(words, _mark_case(words), strict=True) for token in _tokenize_chunk(word, has_case=has_case)]
    return (*tokens, _Token("?", Difference.QUESTION, "?")) if tokens and _is_question(sentence) else tuple(tokens)


_tokenize_cached = lru_cache(maxsize=_CACHE_SIZE)(_tokenize_sentence)


def _tokenize_chunk(chunk: str, *, has_case: bool) -> Iterable[_Token]:
    if (denying_sign := _DENYING_SIGN.match(chunk)) is not None:
        yield _Token(_NEGATION, Difference.NEGATION, chunk)
        chunk = chunk[denying_sign.end() :]
    core = _strip_marks(chunk)
    for pattern in (_COMMAND_OPTION, _FEET_OR_INCHES, _FILE_PATTERN):
        if (match := pattern.match(chunk)) is not None:
            part = core if pattern is _COMMAND_OPTION else match[0]
            yield _Token(part, Difference.VALUE, part)
            return
    if _CONTRACTED_NOT.search(core):
        verb = _CONTRACTED_NOT.sub("", core)
        yield _Token(_lower(verb), Difference.WORD, verb)
        yield _Token(_NEGATION, Difference.NEGATION, core)
        return
    for is_run, letters in groupby(core, key=lambda letter: not letter.isascii() and is_unspaced(letter)):
        part = "".join(letters)
        if is_run:
            yield from _tokenize_run(part)
        elif _is_value(part):
            yield _Token(part, Difference.VALUE, part)
        else:
            yield from _tokenize_words(part, has_case=has_case)


def _tokenize_run(run: str) -> Iterable[_Token]:
    """Return the letters of a script without spaces; its numerals are values."""
    denied = {index for match in _UNSPACED_NEGATION.finditer(run) for index in range(match.start(), match.end())}
    for index, letter in enumerate(run):
        if index in denied:
            yield _Token(_NEGATION, Difference.NEGATION, letter)
        else:
            yield _Token(letter, Difference.WORD if unicodedata.numeric(letter, None) is None else Difference.VALUE, letter)


def _tokenize_words(part: str, *, has_case: bool) -> Iterable[_Token]:
    words = _WORD_SEPARATORS.split(part)
    for number, word in enumerate(words):
        folded_word = fold_text(word)
        is_elided_not = folded_word == "n" and number < len(words) - 1  # as in French "n'est"
        if folded_word in _NEGATIONS or folded_word.startswith(_ARMENIAN_DENIAL) or is_elided_not:
            yield _Token(_NEGATION, Difference.NEGATION, word)
        elif folded_word in DATE_WORDS:
            yield _Token(folded_word, Difference.VALUE, word)
        elif has_case:
            yield _Token(word, Difference.VALUE, word)
        elif folded_word:
            yield _Token(_lower(word), Difference.WORD, word, is_capitalized=word[:1].isupper())


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
    new_word = next((word for stemmed, word in stems if stemmed not in dict(other_stems)), "")
    other_new_word = next((word for stemmed, word in other_stems if stemmed not in dict(stems)), "")
    if new_word or other_new_word:
        return Distinction(Difference.WORD, new_word, other_new_word)
    order, other_order = [stemmed for stemmed, _ in stems], [stemmed for stemmed, _ in other_stems]
    if any(order[start:] + order[:start] == other_order for start in range(len(order) or 1)):
        return None
    return _compare_sequences(left, right, Difference.ORDER)


def _list_stems(tokens: Iterable[_Token]) -> list[tuple[str, str]]:
    """Return the stems of those of *tokens* that carry a meaning, each with its word."""
    return [(stem(token.text) if token.text.isascii() else token.text, token.word) for token in tokens if token.text not in _FILLERS]


def _compare_sequences(left: Sequence[_Token], right: Sequence[_Token], kind: Difference) -> Distinction | None:
    for token, other_token in zip_longest(left, right):
        if token is None or other_token is None or token.text != other_token.text:
            return Distinction(kind, "" if token is None else token.word, "" if other_token is None else other_token.word)
    return None
