"""Where a long text is cut into overlapping chunks (D-55), and which chunks are computed together. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_APPROXIMATE_TOKEN = re.compile(r"[^\W_]{1,4}|[^\s]", re.ASCII)
"""
What is about a token to a model whose tokenizer we do not have: four letters or digits of a word, or one other character, as of a script
without spaces. More than the tokens of English, of code or of Chinese in vocabularies of 30,000 and up: what fits so, fits.
"""

_SLACK_TOKENS = 8
"""Tokens a chunk may have above an even share, so that cutting earlier, between words, does not leave a tiny last chunk."""

_MAX_BATCH_TEXTS = 8
_MAX_BATCH_TOKENS = 512
"""A sub-batch's size, padding included: more costs no less per text (measured), and writers take turns after each."""


def split_tokens(offsets: Sequence[tuple[int, int]], *, max_tokens: int, overlap_tokens: int) -> list[tuple[int, int]]:
    """
    Return the chunks of a text as ranges of its tokens, in order; at least one, which is empty if there is no token.

    Chunks are about equally long, and begin and end between words unless one word alone is too long for that.

    Args:
        offsets: For each token where it begins and ends in the text.
        max_tokens: The most tokens a chunk may have; at least five times *overlap_tokens*.
        overlap_tokens: About how many tokens a chunk has in common with the one before it; never none.
    """
    total = len(offsets)
    if total <= max_tokens:
        return [(0, total)]
    pieces = -(-(total - overlap_tokens) // (max_tokens - overlap_tokens))
    share = min(max_tokens, -(-(total + (pieces - 1) * overlap_tokens) // pieces) + _SLACK_TOKENS)
    ranges: list[tuple[int, int]] = []
    first = 0
    while first + share < total:
        last = _find_word_boundary(offsets, first + share, min_index=first + share - overlap_tokens)
        ranges.append((first, last))
        first = _find_word_boundary(offsets, last - overlap_tokens, min_index=last - 2 * overlap_tokens)
    return [*ranges, (first, total)]


def approximate_tokens(text: str) -> list[tuple[int, int]]:
    """Return about where the tokens of *text* begin and end, not fewer than there are in most models."""
    return [match.span() for match in _APPROXIMATE_TOKEN.finditer(text)]


def group_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Return all indexes of *lengths* in sub-batches of similar lengths, so that little of a sub-batch is padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        # Sorted: this row is the longest so far, all of the group are padded to it.
        if groups and len(groups[-1]) < _MAX_BATCH_TEXTS and lengths[index] * (len(groups[-1]) + 1) <= _MAX_BATCH_TOKENS:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _find_word_boundary(offsets: Sequence[tuple[int, int]], index: int, *, min_index: int) -> int:
    """Return the last place up to *index* where a token is parted from the one before it; *index* if there is none."""
    places = range(index, min_index - 1, -1)
    return next((place for place in places if offsets[place][0] > offsets[place - 1][1]), index)
