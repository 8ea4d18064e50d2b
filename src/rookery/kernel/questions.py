"""The question in a long text: a person pastes a log, a file or an article and asks about it, before or after. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import TypeVar

from rookery.kernel.tokenization import is_unspaced

T = TypeVar("T")

MAX_QUESTION_CHARS = 500
"""Length up to which a text is a question as a whole, and the maximum length of an extracted one."""

_MIN_MIXED_CHARS = 200
"""Length from which lines of other text than prose are left out."""

_EDGE_CHARS = 20_000
"""Characters at each end of a text that are read, so that a text of any length takes a few milliseconds."""

_HEAD_CHARS, _TAIL_CHARS, _QUESTION_CHARS = 150, 220, 120
"""Shares of the beginning, of the end and of a question between them in an extracted question."""

_MIN_PROSE_SHARE, _MIN_QUESTION_SHARE = 0.8, 0.5
"""The least share of letters and spaces in a line of prose, and in one that ends with a question mark. Logs and code have fewer letters."""

_MIN_WORDS, _MIN_LETTERS = 4, 8
"""The least words of a question that stands alone, such as not `Any idea?`; letters where words are not spaced."""

_HEAD_SHARE = 4
"""One part in this many of a shortened sequence is its beginning."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e", "\u1367", "\u055e")
_CLOSERS = "\"')]}>*_`\u201d\u2019\u00bb\u300d\u300f\uff09"
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026\u061f])[\"')\]\u201d\u2019\u00bb]{0,3}\s+|(?<=[\u3002\uff01\uff1f])")


def extract_question(text: str) -> str:
    """
    Return what *text* asks, in at most `MAX_QUESTION_CHARS` characters. A text of at most that length is returned unchanged.

    Lines of logs, code and data are left out if there is prose; also from a shorter text of several lines, if it has a question.
    A question in the last or the first paragraph is taken with the short paragraph at the other end. Without one, the beginning, the end
    and the last question between them are taken.
    """
    text = text.strip()
    is_short = len(text) <= MAX_QUESTION_CHARS
    if is_short and (len(text) < _MIN_MIXED_CHARS or "\n" not in text):
        return text
    paragraphs = [sentences for sentences in map(_split_sentences, _iter_prose(_cut_middle(text))) if sentences]
    if is_short:
        has_question = any(_is_question(sentence) and _stands_alone(sentence) for sentences in paragraphs for sentence in sentences)
        return " ".join(map(" ".join, paragraphs)) if has_question else text
    if not paragraphs:
        paragraphs = [[" ".join(_cut_middle(text).split())]]
    first, last = paragraphs[0], paragraphs[-1]
    questions = list(takewhile(_is_question, reversed(last)))[::-1]
    if any(map(_stands_alone, questions)):
        head = "" if first is last else _get_short(first)
        return _join(head, _take_tail(last[: len(last) - len(questions)], _HEAD_CHARS), _take_tail(questions, _TAIL_CHARS - 30))
    if first is not last and _get_short(first) and any(_is_question(sentence) and _stands_alone(sentence) for sentence in first):
        return _join(_get_short(first), _get_short(last))
    sentences = [sentence for paragraph in paragraphs for sentence in paragraph]
    between = [sentence for sentence in sentences[1:-1] if _is_question(sentence) and _stands_alone(sentence)]
    head, middle, tail = _take_head(sentences, _HEAD_CHARS), _take_tail(between[-1:], _QUESTION_CHARS), _take_tail(sentences, _TAIL_CHARS)
    return _join(head, "" if middle in head or middle in tail else middle, "" if tail in head else tail)


def keep_ends(items: Sequence[T], limit: int) -> list[T]:
    """Return at most *limit* of *items* in order: those at the beginning and, mostly, those at the end, where questions stand."""
    if len(items) <= limit:
        return list(items)
    head = limit // _HEAD_SHARE
    return [*items[:head], *items[len(items) - (limit - head) :]]


def _cut_middle(text: str) -> str:
    return text if len(text) <= 2 * _EDGE_CHARS else f"{text[:_EDGE_CHARS]}\n\n{text[-_EDGE_CHARS:]}"


def _iter_prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose, each as one line. Blank lines and lines of other text are between them."""
    lines = list[str]()
    for line in (*text.splitlines(), ""):
        stripped = line.strip()
        if _is_prose(stripped):
            lines.append(stripped)
        elif lines:
            yield " ".join(lines)
            lines = []


def _is_prose(line: str) -> bool:
    if not line:
        return False
    share = sum(char.isalpha() or char.isspace() for char in line) / len(line)
    if _is_question(line):
        return share >= _MIN_QUESTION_SHARE
    return share >= _MIN_PROSE_SHARE and (len(line.split()) > 2 or _stands_alone(line))


def _split_sentences(paragraph: str) -> list[str]:
    return [sentence for part in _SENTENCE_END.split(paragraph) if (sentence := part.strip())]


def _is_question(sentence: str) -> bool:
    return sentence.rstrip(_CLOSERS).endswith(_QUESTION_MARKS)


def _stands_alone(sentence: str) -> bool:
    return len(sentence.split()) >= _MIN_WORDS or sum(map(is_unspaced, sentence)) >= _MIN_LETTERS


def _get_short(sentences: Sequence[str]) -> str:
    """Return a short paragraph, or an empty text for a long one, which is rather quoted than written for the question."""
    text = " ".join(sentences)
    return text if len(text) <= _HEAD_CHARS else ""


def _take_head(sentences: Sequence[str], limit: int) -> str:
    """Return the first *limit* characters, without a word that is cut."""
    text = " ".join(sentences)
    return text if len(text) <= limit else text[:limit].rpartition(" ")[0] or text[:limit]


def _take_tail(sentences: Sequence[str], limit: int) -> str:
    """Return the last *limit* characters, without a word that is cut."""
    text = " ".join(sentences)
    return text if len(text) <= limit else text[-limit:].partition(" ")[2] or text[-limit:]


def _join(*parts: str) -> str:
    return " ".join(filter(None, parts))
