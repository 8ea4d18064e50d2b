"""Features of a text for AI detection: hashed parts of words, hashed patterns of tokens, and stylometry. The training uses them too."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.uint32]

PATTERN_BITS = 17
PART_BUCKETS = 1 << 17  # 128 Ki weights of one byte
PATTERN_BUCKETS = 1 << PATTERN_BITS

_PART_LENGTHS = (3, 4, 5)
_MAX_PATTERN_LENGTH = 4
_MAX_WORD_LENGTH = 24
_MAX_PIECE_LENGTH = 120
_CACHED_WORDS = 16_384
"""Words whose features are cached; they take about 10 MB."""

_PLAIN_CHARS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032`\u00b4", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000", " "),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", None),
        "…": "...",
        "ﬁ": "fi",
        "ﬂ": "fl",
    }
)
_PIECE = re.compile(r"\S+")
_ATTACHED = re.compile(r"[.,;:!?)\]]+|['’](?:s|t|re|ve|ll|d|m)|n['’]t")
_DOUBLED_QUOTES = re.compile(r"''|``")
_TOKEN = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*|\d+(?:[.,]\d+)*|\.{2,}|-{2,}|[^\w\s]")
_SENTENCE_ENDS = frozenset({".", "!", "?", "...", ".."})

FUNCTION_WORDS = frozenset(
    """
    a about above across after again against all almost alone along already also although always am among an and another any anyone
    anything are around as aside at away back be became because become becomes been before began behind being below beneath beside
    besides between beyond both but by can cannot could despite did do does doing done down during each either else enough especially
    even ever every everyone everything except far few finally first for former from further furthermore generally had has have having
    he hence her here hers herself him himself his how however i if in indeed instead into is it its itself just last later latter
    least less let like likely many may maybe me meanwhile might mine more moreover most much must my myself namely near nearly neither
    never nevertheless next no nobody none nor not nothing now nowhere of off often on once one ones only onto or other others otherwise
    ought our ours ourselves out over overall own per perhaps please quite rather really same second seem seemed seems several shall she
    should since so some somehow someone something sometimes somewhere soon still such than that the their theirs them themselves then
    there thereby therefore these they third this those though three through throughout thus till to together too toward towards two
    under unless unlike until up upon us usually very was we well were what whatever when whenever where whereas wherever whether which
    while who whole whom whose why will with within without would yes yet you your yours yourself
    can't couldn't didn't doesn't don't hadn't hasn't haven't he'd he'll he's i'd i'll i'm i've isn't it'd it'll it's let's shouldn't
    she'd she'll she's that's there's they'd they'll they're they've wasn't we'd we'll we're we've weren't what's who's won't wouldn't
    you'd you'll you're you've aren't
    """.split()
)
"""Words that are kept in patterns. All other words are represented by their ending and their case, so that patterns carry no topic."""

_ENDINGS = frozenset(
    """
    ations ation tional ments ities nesses ically fully ively ously tions tion sions sion ment ness ance ence able ible ship ward ized ised
    izing ings ing ity ous ive ful est ism ist ize ise ate ies ers ors ant ent ary ory ish ed ly er or al ic en es th cy ty ry le s y
    """.split()
)

_FIRST_PERSON = frozenset("i me my mine myself i'm i've i'd i'll".split())
_WE = frozenset("we us our ours ourselves we're we've we'll we'd".split())
_SECOND_PERSON = frozenset("you your yours yourself you're you've you'll you'd".split())
_THIRD_PERSON = frozenset("he she him her his hers himself herself they them their theirs themselves he's she's they're".split())
_CONNECTIVES = frozenset(
    """
    however moreover furthermore therefore thus additionally consequently meanwhile overall ultimately nevertheless nonetheless hence
    finally indeed instead similarly likewise
    """.split()
)
_AUXILIARIES = frozenset("am is are was were be been being has have had do does did will would can could may might must should".split())
_PREPOSITIONS = frozenset("of in to for on with at by from as into through during within between among across over under about".split())
_VAGUE_WORDS = frozenset(
    "perhaps maybe quite rather really very just actually probably almost pretty kind sort lot stuff thing things".split()
)

_MARKS = (",", ";", ":", "-", "--", '"', "'", "(", "!", "?", "...", "/")
_MARK_NAMES = "comma semicolon colon dash double_dash double_quote single_quote parenthesis exclamation question ellipsis slash".split()

_FLAGS = (
    *("capitalized_words", "uppercase_words", "function_words", "contractions", "adverbs_in_ly", "words_in_ing", "words_in_ed"),
    *("nominalizations", "plurals", "long_words", "short_words", "the", "and"),
    *("first_person", "we", "second_person", "third_person", "connectives", "auxiliaries", "prepositions", "vague_words"),
    "numbers",
)
STYLE_NAMES = (
    *("words_per_sentence", "sentence_length_variation", "sentence_length_difference", "short_sentences", "long_sentences"),
    *("letters_per_word", "word_length_variation", "repeated_words", "repeated_content_words", "marks_per_word"),
    *("lists_with_and", "comma_before_and", "sentences_starting_lowercase", "repeated_sentence_starts"),
    *_FLAGS,
    *(f"mark_{name}" for name in _MARK_NAMES),
)
"""The stylometric features in their order. All are rates or means, so that they do not grow with the length of a text."""


_FLAG_BITS = np.arange(len(_FLAGS), dtype=np.uint32)
_IS_WORD, _IS_END, _IS_LOWER, _IS_CONTENT, _IS_COMMA, _IS_AND = (1 << bit for bit in range(24, 30))
_IS_NUMBER = 1 << _FLAGS.index("numbers")
_NOUN_ENDINGS = ("tion", "sion", "ment", "ness", "ity", "ance", "ence")
_WORD_CLASSES = (_FIRST_PERSON, _WE, _SECOND_PERSON, _THIRD_PERSON, _CONNECTIVES, _AUXILIARIES, _PREPOSITIONS, _VAGUE_WORDS)
_MARK_NUMBERS = {mark: number for number, mark in enumerate(_MARKS, start=1)}


class Piece(NamedTuple):
    """
    The features of what stands between two spaces, which do not depend on its neighbours.

    Attributes:
        parts: Buckets of its sequences of letters, as 32-bit integers.
        tokens: One row per word or mark in it: hash without case, hash of its pattern, flags, length, number of the mark.
    """

    parts: bytes
    tokens: bytes
    part_count: int
    token_count: int


@dataclass(frozen=True, slots=True)
class Document:
    """
    The features of all pieces of a text, of which windows are slices.

    Attributes:
        spans: Start and end of each piece in the text.
        words: The pieces themselves.
        parts: The buckets of all pieces.
        part_ends: Behind each piece, the number of buckets so far; the first is 0.
        tokens: The tokens of all pieces.
        token_ends: Behind each piece, the number of tokens so far; the first is 0.
    """

    spans: list[tuple[int, int]]
    words: list[str]
    parts: IndexArray
    part_ends: IndexArray
    tokens: IndexArray
    token_ends: IndexArray

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.spans)


class Window(NamedTuple):
    """
    The features of a part of a text: distinct buckets, ascending, and the values of each kind, a vector of length 1.

    Attributes:
        pattern_buckets: Buckets of sequences of tokens.
    """

    part_buckets: IndexArray
    part_values: FloatArray
    pattern_buckets: IndexArray
    pattern_values: FloatArray


def describe(text: str) -> Document:
    """Return the features of the pieces of *text*, which is plain text."""
    spans = [match.span() for match in _PIECE.finditer(text)]
    words = [text[start:end] for start, end in spans]
    if any(map(_ATTACHED.fullmatch, words)):
        spans, words = _attach(spans, words)
    # Of a piece that is no word, such as a long line without spaces, only the start is read.
    pieces = [describe_piece(word if len(word) <= _MAX_PIECE_LENGTH else word[:_MAX_PIECE_LENGTH]) for word in words]
    part_counts = np.array([0, *[piece.part_count for piece in pieces]], dtype=np.uint32)
    token_counts = np.array([0, *[piece.token_count for piece in pieces]], dtype=np.uint32)
    return Document(
        spans,
        words,
        np.frombuffer(b"".join([piece.parts for piece in pieces]), dtype=np.uint32),
        np.cumsum(part_counts, dtype=np.uint32),
        np.frombuffer(b"".join([piece.tokens for piece in pieces]), dtype=np.uint32).reshape(-1, _TOKEN_FIELDS),
        np.cumsum(token_counts, dtype=np.uint32),
    )


def describe_window(document: Document, first: int, last: int) -> Window:
    """Return the features of the pieces from *first* to before *last*."""
    parts = document.parts[document.part_ends[first] : document.part_ends[last]]
    tokens = document.tokens[document.token_ends[first] : document.token_ends[last]]
    return Window(*_weigh(parts), *_weigh(hash_patterns(tokens[:, 1])))


def _attach(spans: list[tuple[int, int]], words: list[str]) -> tuple[list[tuple[int, int]], list[str]]:
    """Join marks that stand alone, as in tokenized text, to the word before."""
    joined_spans, joined_words = list[tuple[int, int]](), list[str]()
    for (start, end), word in zip(spans, words, strict=True):
        if joined_words and len(joined_words[-1]) <= _MAX_WORD_LENGTH and _ATTACHED.fullmatch(word):
            joined_words[-1] += word
            joined_spans[-1] = (joined_spans[-1][0], end)
        else:
            joined_words.append(word)
            joined_spans.append((start, end))
    return joined_spans, joined_words


def _weigh(buckets: IndexArray) -> tuple[IndexArray, FloatArray]:
    """Return the distinct *buckets* and their damped counts, as a vector of length 1."""
    if not len(buckets):
        return buckets, np.zeros(0, dtype=np.float32)
    ordered = np.sort(buckets)
    is_first = np.ones(len(ordered) + 1, dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:-1])
    starts = is_first.nonzero()[0]
    values = _DAMPED[np.minimum(starts[1:] - starts[:-1], len(_DAMPED) - 1)]
    starts = starts[:-1]
    return ordered[starts], (values / np.sqrt(values @ values)).astype(np.float32)


_TOKEN_FIELDS = 5
_DAMPED = np.concatenate([np.zeros(1), 1 + np.log(np.arange(1, 1_000))]).astype(np.float32)
"""The value of a bucket by its count, before it is divided by the length of the vector."""


@lru_cache(maxsize=_CACHED_WORDS)
def describe_piece(piece: str) -> Piece:
    """Return the features of *piece*. The words of a language repeat, so most calls are answered from the cache."""
    text = _DOUBLED_QUOTES.sub('"', piece.translate(_PLAIN_CHARS))
    encoded = f" {text.lower()[:_MAX_WORD_LENGTH]} ".encode(errors="replace")
    buckets = [
        crc32(encoded[start : start + length]) & (PART_BUCKETS - 1)
        for length in _PART_LENGTHS
        for start in range(max(1, len(encoded) - length + 1))
    ]
    tokens = list(map(_describe_token, _TOKEN.findall(text)))
    return Piece(
        array("I", buckets if text else ()).tobytes(),
        array("I", chain.from_iterable(tokens)).tobytes(),
        len(buckets) if text else 0,
        len(tokens),
    )


def _describe_token(token: str) -> tuple[int, int, int, int, int]:
    lower = token.lower()
    word = crc32(lower.encode(errors="replace"))
    if token[0].isdigit():
        return word, crc32(b"0"), _IS_NUMBER, len(token), 0
    if not token[0].isalpha():
        mark = token[:3] if token[0] == "." else token[:2]
        end = _IS_END if token in _SENTENCE_ENDS else 0
        return word, crc32(mark.encode(errors="replace")), end | (_IS_COMMA if mark == "," else 0), len(token), _MARK_NUMBERS.get(mark, 0)
    is_function = lower in FUNCTION_WORDS
    is_capitalized = token[0].isupper()
    length = len(lower)
    claims = (
        is_capitalized,
        length > 1 and token.isupper(),
        is_function,
        "'" in lower and not lower.endswith("'s"),
        length > 4 and lower.endswith("ly"),
        length > 4 and lower.endswith("ing"),
        length > 3 and lower.endswith("ed"),
        length > 5 and lower.endswith(_NOUN_ENDINGS),
        not is_function and length > 3 and lower[-1] == "s" and not lower.endswith(("ss", "us", "is")),
        length > 8,
        length < 4,
        lower == "the",
        lower == "and",
        *[lower in words for words in _WORD_CLASSES],
    )
    flags = sum(1 << bit for bit, claim in enumerate(claims) if claim) | _IS_WORD
    flags |= (0 if is_capitalized else _IS_LOWER) | (0 if is_function else _IS_CONTENT) | (_IS_AND if lower in ("and", "or") else 0)
    return word, crc32(_to_pattern(lower, is_capitalized=is_capitalized).encode(errors="replace")), flags, length, 0


def _to_pattern(lower: str, *, is_capitalized: bool) -> str:
    """Return a function word itself, and for any other word its case, its ending, and whether it is long."""
    if lower in FUNCTION_WORDS:
        return lower
    ending = next((lower[-size:] for size in (6, 5, 4, 3, 2, 1) if len(lower) > size + 2 and lower[-size:] in _ENDINGS), "")
    return f"{'C' if is_capitalized else 'c'}{'+' if len(lower) > 7 else ''}~{ending}"


def hash_patterns(hashes: IndexArray) -> IndexArray:
    """Return the buckets of the sequences of up to four tokens."""
    parts = list[IndexArray]()
    mixed = np.zeros_like(hashes)
    for length in range(1, _MAX_PATTERN_LENGTH + 1):
        if length > len(hashes):
            break
        shifted = hashes[length - 1 :]
        mixed = (mixed[: len(shifted)] * np.uint32(0x9E3779B1)) ^ (shifted + np.uint32(length))
        parts.append((mixed * np.uint32(0x85EBCA6B)) >> np.uint32(32 - PATTERN_BITS))
    return np.concatenate(parts) if parts else hashes


def measure_style(tokens: IndexArray) -> FloatArray:
    """Return the values of `STYLE_NAMES`."""
    words, flags, lengths = tokens[:, 0], tokens[:, 2], tokens[:, 3].astype(np.float32)
    is_word = (flags & _IS_WORD) > 0
    word_count = int(np.count_nonzero(is_word))
    if not word_count:
        return np.zeros(len(STYLE_NAMES), dtype=np.float32)
    flag_rates = ((flags[:, None] >> _FLAG_BITS) & 1).sum(axis=0) / word_count
    mark_rates = np.bincount(tokens[:, 4], minlength=len(_MARKS) + 1)[1:] / word_count
    word_lengths = lengths[is_word]
    is_end = (flags & _IS_END) > 0
    words_before = np.cumsum(is_word)
    sentences = np.diff(words_before[is_end], prepend=0, append=word_count)
    sentences = sentences[sentences > 0].astype(np.float32)
    mean_sentence = float(sentences.mean())
    differences = np.abs(np.diff(sentences)) if len(sentences) > 1 else np.zeros(1)
    starts = np.flatnonzero(np.concatenate([[True], is_end[:-1]]) & is_word)
    start_words = words[starts]
    is_lower = (flags & _IS_LOWER) > 0
    is_comma, is_and = (flags & _IS_COMMA) > 0, (flags & _IS_AND) > 0
    comma_and = np.count_nonzero(is_comma[:-1] & is_and[1:])
    lists = np.count_nonzero(is_comma[:-4] & is_comma[2:-2] & is_and[3:-1]) + np.count_nonzero(is_comma[:-3] & is_and[2:-1])
    content = words[(flags & _IS_CONTENT) > 0]
    return np.array(
        [
            np.log(mean_sentence),
            float(sentences.std()) / mean_sentence,
            float(differences.mean()) / mean_sentence,
            np.count_nonzero(sentences < 8) / len(sentences),
            np.count_nonzero(sentences > 30) / len(sentences),
            word_lengths.mean(),
            word_lengths.std(),
            _measure_repetition(words[is_word], 50),
            _measure_repetition(content, 100),
            (len(tokens) - word_count) / word_count,
            lists / word_count,
            comma_and / word_count,
            np.count_nonzero(is_lower[starts]) / max(1, len(starts)),
            1 - len(np.unique(start_words[:12])) / max(1, len(start_words[:12])),
            *flag_rates,
            *mark_rates,
        ],
        dtype=np.float32,
    )


def _measure_repetition(words: IndexArray, distance: int) -> float:
    """Return the share of *words* that occur again within *distance* words."""
    if len(words) < 2:
        return 0.0
    order = np.argsort(words, kind="stable")
    is_same = words[order][1:] == words[order][:-1]
    return float(np.count_nonzero(is_same & (np.diff(order) <= distance))) / len(words)


def count_document_words(document: Document) -> int:
    """Return the number of words of a text."""
    return int(np.count_nonzero(document.tokens[:, 2] & _IS_WORD))


def locate_patterns(document: Document, last: int, buckets: list[int]) -> dict[int, tuple[int, int]]:
    """Return the first and the last piece of the first occurrence of each of *buckets*, in the pieces before *last*."""
    tokens = document.tokens[: document.token_ends[last]]
    hashes = hash_patterns(tokens[:, 1])
    locations = dict[int, tuple[int, int]]()
    for bucket in buckets:
        position, length = int(np.argmax(hashes == bucket)), 1
        while position >= len(tokens) - length + 1:
            position -= len(tokens) - length + 1
            length += 1
        first, final = np.searchsorted(document.token_ends, (position, position + length - 1), side="right") - 1
        locations[bucket] = int(first), int(final)
    return locations
