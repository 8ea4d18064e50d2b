"""The words of documents and queries, which all full-text engines share. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rookery.kernel.questions import keep_ends
from rookery.kernel.tokenization import split_words, stem
from rookery.memory.models import IndexDocument, TextQuery

_MAX_WORDS = 256
_MAX_PAIRED_WORDS = 32

_MAX_WORD_LENGTH = 200
"""Maximum letters of a stem. Lucene's analyzer `whitespace` splits longer ones at 255; a lexeme of PostgreSQL has at most 2,046 bytes."""

CONTEXT_WEIGHT = 0.5
"""Weight of a word in type, tags, org or project, relative to a word in the text."""

_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such "
    "that the their then there these they this to was will with".split()
)
"""English stop words, as in Lucene and Elasticsearch. A word in half of all documents is slow to score and has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StemmedQuery:
    """
    A query as stems, for engines that index the stems of `stem_text`.

    Attributes:
        words: The stems of each word; those of a word of several parts must be adjacent.
        stem_terms: For some of *words*, terms of other languages, each of which matches like the word.
        phrases: Stems that must be adjacent in the content. All phrases must match; without any, one of *words* must match.
        pairs: Adjacent stems that raise the score.
        excluded: Adjacent stems that must not be in the content.
    """

    words: Mapping[str, Sequence[str]]
    stem_terms: Mapping[str, Sequence[str]]
    phrases: Sequence[Sequence[str]]
    pairs: Sequence[Sequence[str]]
    excluded: Sequence[Sequence[str]]


def stem_query(query: TextQuery) -> StemmedQuery | None:
    """Return the stems of *query*; None if nothing can match."""
    words = {word: stems for word in select_words(query) if (stems := stem_text(word))}
    phrases = [stem_text(phrase) for phrase in query.phrases]
    if not (phrases or words) or not all(phrases):
        return None
    return StemmedQuery(
        words=words,
        stem_terms={word: query.stem_terms[word] for word in words if word in query.stem_terms},
        phrases=phrases,
        pairs=[[*words[first], *words[second]] for first, second in pair_words(list(words), query)],
        excluded=[stems for phrase in query.none_of if (stems := stem_text(phrase))],
    )


def stem_text(text: str) -> list[str]:
    """Return the stems of the words of *text*, in order."""
    return [stem(word)[:_MAX_WORD_LENGTH] for word in split_words(text)]


def select_words(query: TextQuery) -> list[str]:
    """Return the words of *query* without duplicates and stop words, or with stop words if nothing else is left and there is no phrase."""
    distinct = list(dict.fromkeys(query.any_of))
    significant = distinct if query.keeps_stop_words else [word for word in distinct if word.casefold() not in _STOP_WORDS]
    return keep_ends(significant if significant or query.phrases else distinct, _MAX_WORDS)


def pair_words(words: Sequence[str], query: TextQuery) -> list[tuple[str, str]]:
    """
    Return the pairs of adjacent *words*, which are scored like words.

    A pair is a stronger signal than both words apart: 0.5 to 2 points of MRR by session in LoCoMo (development half).
    """
    return [
        (first, second)
        for first, second in pairwise(keep_ends(words, _MAX_PAIRED_WORDS))
        if not (_is_function_word(first, query) and _is_function_word(second, query))
    ]


def describe_context(document: IndexDocument) -> str:
    """Return words that describe the document. They are indexed with it, but never returned."""
    return " ".join(part for part in (document.type, *document.tags, document.org, document.project) if part)


def inverse_frequency(count: int, total: int) -> float:
    """Return the inverse document frequency (bm25) of a word that *count* of *total* documents have."""
    return math.log(1 + (total - min(count, total) + 0.5) / (count + 0.5))


def _is_function_word(word: str, query: TextQuery) -> bool:
    """Return whether *word* is a function word of another language than English, such as both words of 'de la'."""
    return query.keeps_stop_words and word.isalpha() and word not in query.stem_terms
