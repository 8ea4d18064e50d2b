"""
Vectors that stand for embedded memories where embedding them would take hours.

A mixture: 64 topics, 4,000 clusters of Zipf's sizes around them, and within a cluster a spread whose directions are of very
different width, as those of a sentence embedder are. Its neighbours are as far as those of texts embedded by the built-in model:
`python -m benchmarks.large_store_vectors` prints both profiles, of texts if a file of them is given.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

DIMENSION = 384
TOPICS = 64
CLUSTERS = 4000

_TOPIC, _CLUSTER, _SPREAD = 0.42, 0.6, 0.72
"""The share of a vector that is its topic's, its cluster's and its own: chosen for the profile of neighbours."""

_DECAY = 0.5
"""The width of the n-th direction is n to the power of minus this."""

_CHUNK = 10_000


class Mixture:
    """Memories and questions of one made-up world, the same for the same seed."""

    def __init__(self, seed: int = 1) -> None:
        self._dice = np.random.default_rng(seed)
        width = np.arange(1, DIMENSION + 1, dtype=np.float32) ** -_DECAY
        self._width: Floats = width / np.float32(np.linalg.norm(width))
        # Directions of their own for each topic would be dearer to draw; one rotation for all makes no axis special.
        self._turn: Floats = np.linalg.qr(self._dice.standard_normal((DIMENSION, DIMENSION)))[0].astype(np.float32)
        topics = self._sample(TOPICS)
        centres = _TOPIC * topics[self._dice.integers(0, TOPICS, CLUSTERS)] + _CLUSTER * self._sample(CLUSTERS)
        self._centres: Floats = centres.astype(np.float32)
        weights = 1 / np.arange(3, CLUSTERS + 3)
        self._weights = weights / weights.sum()

    def memories(self, count: int) -> Iterator[Floats]:
        """Yield *count* unit vectors, some thousands at a time."""
        for start in range(0, count, _CHUNK):
            yield self._some(min(_CHUNK, count - start), spread=_SPREAD)

    def questions(self, count: int) -> Floats:
        """Return unit vectors that lie a little farther from what answers them than memories do from each other."""
        return self._some(count, spread=_SPREAD * 1.15)

    def _some(self, count: int, *, spread: float) -> Floats:
        rows = self._centres[self._dice.choice(CLUSTERS, count, p=self._weights)] + np.float32(spread) * self._sample(count)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows @ self._turn

    def _sample(self, count: int) -> Floats:
        return self._dice.standard_normal((count, DIMENSION), dtype=np.float32) * self._width


def profile(rows: Floats, questions: Floats) -> str:
    """Return the similarities of the 1st, 10th, 100th and 1000th neighbours of *questions* among *rows*."""
    scores = np.sort(questions @ rows.T, axis=1)[:, ::-1]
    return ", ".join(f"{rank}: {np.median(scores[:, rank - 1]):.2f}" for rank in (1, 10, 100, 1000))


def main() -> None:
    """Print how near neighbours are."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("--real", type=Path, help="an .npz with rows `d` of memories and `q` of questions, embedded")
    options = arguments.parse_args()
    mixture = Mixture()
    rows = np.concatenate(list(mixture.memories(100_000)))
    questions = mixture.questions(200)
    count = 4000
    if options.real is not None:
        with np.load(options.real) as real:
            count = len(real["d"])
            print(f"texts, {count:,}: {profile(real['d'], real['q'])}")
            print(f"texts among themselves: {profile(real['d'], real['d'][:400])}")
    print(f"mixture, {count:,}: {profile(rows[:count], questions)}")
    print(f"mixture among itself: {profile(rows[:count], rows[:400])}")
    print(f"mixture, {len(rows):,}: {profile(rows, questions)}")


if __name__ == "__main__":
    main()
