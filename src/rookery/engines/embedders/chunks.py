"""Where a long text is cut into overlapping chunks (D-55), and which chunks are computed together. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GUESSED = re.compile(r"[^\W_]{1,4}|[^\s]", re.ASCII)
"""
What is about a token to a model whose tokenizer we do not have: four letters or digits of a word, or one other character, as of a script
without spaces. More than the tokens of English, of code or of Chinese in vocabularies of 30,000 and up: what fits so, fits.
"""

_SLACK = 8
"""Tokens a chunk may have above an even share, so that cutting earlier, between words, does not leave a tiny last chunk."""

_BATCH_TEXTS = 8
_BATCH_TOKENS = 512
"""A sub-batch's size, padding included: more costs no less per text (measured), and writers take turns after each."""


def cut(offsets: Sequence[tuple[int, int]], *, size: int, overlap: int) -> list[tuple[int, int]]:
    """
    Return the chunks of a text as ranges of its tokens, in order; at least one, which is empty if there is no token.

    Chunks are about equally long, and begin and end between words unless one word alone is too long for that.

    Args:
        offsets: For each token where it begins and ends in the text.
        size: The most tokens a chunk may have; at least five times *overlap*.
        overlap: About how many tokens a chunk has in common with the one before it; never none.
    """
    total = len(offsets)
    if total <= size:
        return [(0, total)]
    pieces = -(-(total - overlap) // (size - overlap))
    share = min(size, -(-(total + (pieces - 1) * overlap) // pieces) + _SLACK)
    ranges: list[tuple[int, int]] = []
    first = 0
    while first + share < total:
        last = _between_words(offsets, first + share, at_least=first + share - overlap)
        ranges.append((first, last))
        first = _between_words(offsets, last - overlap, at_least=last - 2 * overlap)
    return [*ranges, (first, total)]


def guessed(text: str) -> list[tuple[int, int]]:
    """Return about where the tokens of *text* begin and end, not fewer than there are in most models."""
    return [match.span() for match in _GUESSED.finditer(text)]


def batches(lengths: Sequence[int]) -> list[list[int]]:
    """Return all indexes of *lengths* in sub-batches of similar lengths, so that little of a sub-batch is padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        # Sorted: this row is the longest so far, all of the group are padded to it.
        if groups and len(groups[-1]) < _BATCH_TEXTS and lengths[index] * (len(groups[-1]) + 1) <= _BATCH_TOKENS:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _between_words(offsets: Sequence[tuple[int, int]], index: int, *, at_least: int) -> int:
    """Return the last place up to *index* where a token is parted from the one before it; *index* if there is none."""
    places = range(index, at_least - 1, -1)
    return next((place for place in places if offsets[place][0] > offsets[place - 1][1]), index)
