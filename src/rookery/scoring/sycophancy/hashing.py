"""The features of a sentence: hashes of its runs of one to three words."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

BUCKETS = 1 << 15
"""Number of features. Several runs of words may share one."""

MAX_WORDS = 60
"""Words of a sentence that count. Longer sentences are mostly lists or text without punctuation."""

_MASK = BUCKETS - 1
_START = crc32(b"^")


def hash_words(words: Sequence[str]) -> list[int]:
    """Return the features of a sentence. The first words have features of their own besides."""
    features = list[int]()
    before = one = _START
    for word in words[:MAX_WORDS]:
        raw = word.encode("utf-8", "replace")
        padded = b" " + raw
        features += (crc32(raw) & _MASK, crc32(padded, one) & _MASK, crc32(padded, before) & _MASK)
        before, one = crc32(padded, one), crc32(raw)
    return features
