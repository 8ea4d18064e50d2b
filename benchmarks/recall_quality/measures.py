"""The measures of a ranking, and their means. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

MEASURES = ("frac@1", "frac@5", "frac@10", "any@5", "any@10", "all@5", "all@10", "MRR", "nDCG@10")
"""Their names, in the order of the report; all are in 0..1."""

DEPTH = 20
"""The number of results requested; all of them count for MRR."""


def measure(ranking: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Return all `MEASURES` of one question's ranking, best first; *gold* is not empty."""
    recall_at = {k: len(set(ranking[:k]) & set(gold)) / len(gold) for k in (1, 5, 10)}
    return {
        **{f"frac@{k}": share for k, share in recall_at.items()},
        **{f"any@{k}": float(recall_at[k] > 0) for k in (5, 10)},
        **{f"all@{k}": float(recall_at[k] == 1) for k in (5, 10)},
        "MRR": next((1 / rank for rank, name in enumerate(ranking[:DEPTH], start=1) if name in gold), 0.0),
        "nDCG@10": _gain(name in gold for name in ranking[:10]) / _gain([True] * min(10, len(gold))),
    }


def means(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each measure over all questions; empty without questions."""
    return {name: sum(measures[name] for measures in measured) / len(measured) for name in MEASURES} if measured else {}


def _gain(hits: Iterable[bool]) -> float:
    return sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits, start=1) if hit)
