"""The inputs of an embedder: overlapping chunks of long texts, batches of chunks, and a cache of queries."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from rookery.memory.models import Vector

_APPROXIMATE_TOKEN = re.compile(r"[^\W_]{1,4}|[^\s]", re.ASCII)
"""Approximation of a token for models whose tokenizer is not available: up to four letters or digits of a word, or one other character, as
in scripts without spaces.

It matches more often than there are tokens of English, code or Chinese in vocabularies of 30,000 and up, so a chunk that fits by this count
fits the model.
"""

_SLACK_TOKENS = 8
"""Tokens that a chunk may have above an even share. A cut before the limit, between words, then leaves no tiny last chunk."""

_MAX_BATCH_TEXTS = 8
_MAX_BATCH_TOKENS = 512
"""Maximum tokens of a batch, padding included. Larger batches cost the same per text (measured), and writers take turns between batches."""

MAX_CACHED_QUERIES = 4096
"""Cached vectors; 1.5 KB each at 384 dimensions."""

MAX_QUERY_CHARS = 4000
"""Maximum characters of a query; the rest is cut off. 256 tokens of English have about 1,100."""


def split_tokens(offsets: Sequence[tuple[int, int]], *, max_tokens: int, overlap_tokens: int) -> list[tuple[int, int]]:
    """
    Return the chunks of a text as (first, last) ranges of its tokens, in order.

    Chunks have about equal lengths. They begin and end between words, unless one word alone is too long. A text without tokens has one
    empty chunk.

    Args:
        offsets: (start, end) of each token in the text.
        max_tokens: Maximum tokens of a chunk; at least five times *overlap_tokens*.
        overlap_tokens: Approximate number of tokens that a chunk shares with the previous one; at least 1.
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
    """Return approximate (start, end) offsets of the tokens of *text*; for most models not fewer than the real ones."""
    return [match.span() for match in _APPROXIMATE_TOKEN.finditer(text)]


def group_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Return all indexes of *lengths* in batches of similar lengths, which need little padding."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
        # Sorted order: this row is the longest so far, and the whole group is padded to it.
        if groups and len(groups[-1]) < _MAX_BATCH_TEXTS and lengths[index] * (len(groups[-1]) + 1) <= _MAX_BATCH_TOKENS:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _find_word_boundary(offsets: Sequence[tuple[int, int]], index: int, *, min_index: int) -> int:
    """Return the last index from *min_index* to *index* where a token starts after a gap; *index* if there is no gap."""
    candidates = range(index, min_index - 1, -1)
    return next((candidate for candidate in candidates if offsets[candidate][0] > offsets[candidate - 1][1]), index)


class QueryCache:
    """
    An LRU cache in front of *embed*.

    If *embed* returns a future, its work has begun before `get` waits for the first time. A coroutine begins in the next turn of the loop.
    """

    def __init__(self, embed: Callable[[str], Awaitable[Vector]], *, max_entries: int = MAX_CACHED_QUERIES) -> None:
        self._embed = embed
        self._max_entries = max_entries
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._pending: dict[str, asyncio.Future[Vector]] = {}

    async def get(self, text: str) -> Vector:
        """Return the vector of a query. An error of *embed* is raised to all waiting callers."""
        query = text.strip()[:MAX_QUERY_CHARS]
        vector = self._vectors.get(query)
        if vector is not None:
            self._vectors.move_to_end(query)
            return vector
        future = self._pending.get(query)
        if future is None:
            future = self._pending[query] = asyncio.ensure_future(self._embed(query))
            future.add_done_callback(partial(self._store, query))
        # A cancelled caller does not cancel the work for the others.
        return await asyncio.shield(future)

    def clear(self) -> None:
        """Remove all vectors."""
        self._vectors.clear()

    def _store(self, query: str, future: asyncio.Future[Vector]) -> None:
        """Keep the result of *future*. Its error is read here, because all callers may have been cancelled."""
        del self._pending[query]
        if future.cancelled() or future.exception() is not None:
            return
        self._vectors[query] = future.result()
        if len(self._vectors) > self._max_entries:
            self._vectors.popitem(last=False)
