"""Parsing of queries, matching of keywords, and highlighting. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from html import escape

from rookery.kernel.languages import guess_languages, to_query_stem_terms
from rookery.kernel.questions import keep_ends
from rookery.kernel.tokenization import (
    STOP_WORDS,
    WordToken,
    is_single_word,
    is_unspaced,
    split_words,
    stem,
    to_search_terms,
    tokenize,
    tokenize_unspaced_letters,
)
from rookery.memory.models import TextQuery

MAX_WORDS = 64
"""Maximum distinct words of a query; words in the middle are ignored, because they cost time and do not improve results."""

FRAGMENT_CHARS = 320
"""Approximate length of the fragment of a long content around the first match."""

_LEAD_CHARS = 60
_QUERY_PART = re.compile(r'(?P<minus>(?<![^\s,;])-)?(?:"(?P<phrase>[^"]*)"|(?P<plain>[^\s",;]+))')


def stem_words(text: str) -> list[str]:
    """Return the stems of the words of *text*, in order."""
    return [stem(part) for word in split_words(text) for part in to_search_terms(word)]


def parse_question(question: str) -> TextQuery:
    """Return the query of a question in plain language, which has no syntax."""
    languages, may_be_english = guess_languages(question)
    parts, stem_terms = list[str](), dict[str, tuple[str, ...]]()
    for word in split_words(question):
        parts_of_word = to_search_terms(word)
        parts += parts_of_word
        if len(parts_of_word) == 1 and (terms := to_query_stem_terms(word, languages)):
            stem_terms[parts_of_word[0]] = terms
    words = _remove_stop_words(parts) if may_be_english else _unique_words(parts)
    return TextQuery(
        any_of=words,
        is_question=True,
        stem_terms={word: stem_terms[word] for word in words if word in stem_terms},
        keeps_stop_words=not may_be_english,
    )


def parse_query(query: str) -> TextQuery:
    """
    Return the query of a search text: words, "a phrase" and -excluded. Parts without a letter or digit are ignored.

    A compound such as E_CONN_RESET, main.py or dry-run is one word: its parts must be adjacent. The same holds for the letters of a
    short run of Chinese or similar scripts. A longer run is a sentence; its letters are searched in pairs.
    """
    plain_parts, phrases, excluded_parts = list[str](), list[str](), list[str]()
    for piece in _QUERY_PART.finditer(query):
        phrase = piece["phrase"]
        words_of_piece = split_words(phrase if phrase is not None else piece["plain"])
        words = [part for word in words_of_piece for part in to_search_terms(word)]
        if not words:
            continue
        # Two hyphens do not exclude: --force is the name of an option.
        is_excluded = piece["minus"] is not None and (phrase is not None or not piece["plain"].startswith("-"))
        if is_excluded:
            excluded_parts.append(" ".join(words))
        elif phrase is not None:
            phrases.append(" ".join(words))
        else:
            plain_parts.extend([" ".join(words)] if all(map(is_single_word, words_of_piece)) else words)
    _, may_be_english = guess_languages(query)
    return TextQuery(
        any_of=_remove_stop_words(plain_parts) if may_be_english else _unique_words(plain_parts),
        phrases=tuple(dict.fromkeys(phrases)),
        none_of=tuple(dict.fromkeys(excluded_parts)),
        keeps_stop_words=not may_be_english,
    )


def parse_keywords(keywords: Iterable[str]) -> TextQuery:
    """Return a query that matches any of the words of *keywords*."""
    return TextQuery(
        any_of=_unique_words([part for keyword in keywords for word in split_words(keyword) for part in to_search_terms(word)])
    )


def match_keywords(keywords: Sequence[str], *texts: str) -> tuple[str, ...]:
    """Return those of *keywords* whose stemmed words are adjacent in one of *texts*."""
    stemmed_texts = [stem_words(text) for text in texts]
    present = {word for stems in stemmed_texts for word in stems}
    return tuple(
        keyword
        for keyword in keywords
        if _contains_sequence(_stem_keyword(keyword), present, stemmed_texts) or _contains_letter(keyword, texts)
    )


def highlight(content: str, query: TextQuery) -> str:
    """Return the fragment of *content* around the first match of *query*, as HTML: matches in <mark>, all else escaped."""
    is_letter = any(len(term) == 1 for term in (*query.any_of, *query.phrases))
    spans = _find_spans(tokenize(content), tokenize_unspaced_letters(content) if is_letter else [], query)
    start, end = _select_fragment(content, spans[0][0] if spans else 0)
    parts = ["…"] if start > 0 else []
    position = start
    for left, right in spans:
        if left < start or right > end:
            continue
        parts += [escape(content[position:left]), "<mark>", escape(content[left:right]), "</mark>"]
        position = right
    parts.append(escape(content[position:end]))
    if end < len(content):
        parts.append("…")
    return "".join(parts)


def _remove_stop_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return *words* without stop words, or all of them if there are no others."""
    return _unique_words([word for word in words if word.casefold() not in STOP_WORDS] or words)


def _unique_words(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(keep_ends(list(dict.fromkeys(word.casefold() for word in words)), MAX_WORDS))


@lru_cache(maxsize=4096)
def _stem_keyword(keyword: str) -> tuple[str, ...]:
    return tuple(stem_words(keyword))


def _contains_sequence(parts: Sequence[str], present: AbstractSet[str], stemmed_texts: Sequence[Sequence[str]]) -> bool:
    if not parts or any(part not in present for part in parts):
        return False
    return len(parts) == 1 or any(_find_sequence(stems, parts) for stems in stemmed_texts)


def _contains_letter(keyword: str, texts: Sequence[str]) -> bool:
    return len(keyword) == 1 and is_unspaced(keyword) and any(keyword in text for text in texts)


def _find_sequence(stems: Sequence[str], parts: Sequence[str]) -> list[int]:
    """Return the indexes at which *parts* occur in sequence in *stems*."""
    first, length = parts[0], len(parts)
    return [index for index, word in enumerate(stems) if word == first and list(stems[index : index + length]) == list(parts)]


def _find_spans(tokens: Sequence[WordToken], letters: Sequence[WordToken], query: TextQuery) -> list[tuple[int, int]]:
    """Return the spans of the content that *query* matches, in order, without overlaps."""
    all_stems = [token.stem for token in tokens]
    present, terms, phrase_tokens = set(all_stems), set(query.any_of).union(query.phrases), set[WordToken]()
    for term in (*query.any_of, *query.phrases):
        stems = stem_words(term)
        if stems and present.issuperset(stems):
            for index in _find_sequence(all_stems, stems):
                phrase_tokens.update(tokens[index : index + len(stems)])
    phrase_tokens.update(letter for letter in letters if letter.stem in terms)
    spans = list[tuple[int, int]]()
    for start, end, _ in sorted(phrase_tokens):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _select_fragment(content: str, first: int) -> tuple[int, int]:
    """Return the start and end of the fragment around position *first*, at spaces if there are any near."""
    if len(content) <= FRAGMENT_CHARS:
        return 0, len(content)
    start = max(0, min(first - _LEAD_CHARS, len(content) - FRAGMENT_CHARS))
    if start > 0:
        space = content.find(" ", start, max(start, first))
        start = space + 1 if space >= 0 else start
    end = min(len(content), start + FRAGMENT_CHARS)
    if end < len(content):
        space = content.rfind(" ", first + 1, end)
        end = space if space > start else end
    return start, end
