"""
Places vectors on a plane so that similar ones are near each other, and groups what lies together; implements `ProjectVectors`.

The layout follows UMAP (McInnes, Healy and Melville 2018, arXiv:1802.03426), simplified: each vector is pulled towards its nearest
neighbours and pushed away from random others, starting from the first two principal components. The seed is fixed, so that the same
vectors have the same map.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rookery.memory.models import Vector
from rookery.memory.ports import MapProjection

Floats = npt.NDArray[np.float32]
Longs = npt.NDArray[np.int64]

_SEED = 7
_NEIGHBOURS = 12
_EPOCHS = 150
_NEGATIVE_SAMPLES = 4
_A, _B = 1.577, 0.895
"""The curve of UMAP for a minimum distance of 0.1."""

_MAX_STEP, _PULL_DIVISOR, _PUSH_DIVISOR = 4.0, 6.0, 1.5
"""All pairs move in one step, unlike in UMAP, so each moves less. The divisors were chosen by looking at maps."""

_BLOCK_ROWS = 512
_MAX_CLUSTERS = 14
_POINTS_PER_CLUSTER = 12
_CLUSTER_ROUNDS = 25
_MAX_COORDINATE = 32_767
_SHOWN_SHARE = 99.0
"""Percentile of the distances from the centre that fills nine tenths of the map; points beyond it are moved to its edge."""


def project_vectors(items: Sequence[Sequence[Vector]]) -> MapProjection:
    """Return the place and the cluster of each item, given by the vectors of its chunks. Deterministic. 5,000 items take some seconds."""
    if not items:
        return MapProjection(coordinates=(), clusters=())
    vectors = np.stack([np.mean([np.frombuffer(vector, "<f4") for vector in chunks], axis=0) for chunks in items])
    places = _lay_out(_normalize(vectors.astype(np.float32)))
    coordinates = _scale(places)
    clusters = _find_clusters(coordinates.astype(np.float32))
    return MapProjection(
        coordinates=tuple((int(x), int(y)) for x, y in coordinates.tolist()), clusters=tuple(int(number) for number in clusters.tolist())
    )


def _normalize(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-9)


def _lay_out(vectors: Floats) -> Floats:
    count = len(vectors)
    places = _find_principal_components(vectors)
    if count <= 3:
        return places
    sources, targets = _find_neighbours(vectors, min(_NEIGHBOURS, count - 1))
    random = np.random.default_rng(_SEED)
    for epoch in range(_EPOCHS):
        rate = 1.0 - epoch / _EPOCHS
        places += rate * _pull(places, sources, targets)
        for _ in range(_NEGATIVE_SAMPLES):
            places += rate * _push(places, sources, random.integers(0, count, len(sources)))
    return places


def _find_principal_components(vectors: Floats) -> Floats:
    """Return the first two principal components, scaled to a standard deviation of 5, with a little noise so that doubles can part."""
    centered = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh((centered.T @ centered).astype(np.float64))
    places = (centered @ axes[:, ::-1][:, :2].astype(np.float32)).astype(np.float32)
    if places.shape[1] < 2:
        places = np.pad(places, ((0, 0), (0, 2 - places.shape[1])))
    spread = max(float(places.std()), 1e-6)
    noise = np.random.default_rng(_SEED).normal(0, 0.01, places.shape).astype(np.float32)
    return places * np.float32(5.0 / spread) + noise


def _find_neighbours(vectors: Floats, number: int) -> tuple[Longs, Longs]:
    """Return the pairs of each vector and its *number* most similar ones."""
    targets = np.empty((len(vectors), number), np.int64)
    for start in range(0, len(vectors), _BLOCK_ROWS):
        block = vectors[start : start + _BLOCK_ROWS]
        similarities = block @ vectors.T
        similarities[np.arange(len(block)), np.arange(start, start + len(block))] = -2.0
        targets[start : start + len(block)] = np.argpartition(-similarities, number - 1, axis=1)[:, :number]
    return np.repeat(np.arange(len(vectors)), number), targets.ravel()


def _pull(places: Floats, sources: Longs, targets: Longs) -> Floats:
    difference = places[sources] - places[targets]
    square = np.maximum((difference * difference).sum(axis=1), 1e-6)
    factor = -2.0 * _A * _B * square ** (_B - 1.0) / (1.0 + _A * square**_B)
    step = np.clip(factor[:, None] * difference, -_MAX_STEP, _MAX_STEP) / _PULL_DIVISOR
    return _add_up(step, sources, len(places)) - _add_up(step, targets, len(places))


def _push(places: Floats, sources: Longs, others: Longs) -> Floats:
    difference = places[sources] - places[others]
    square = (difference * difference).sum(axis=1)
    factor = 2.0 * _B / ((0.001 + square) * (1.0 + _A * square**_B))
    step = np.clip(factor[:, None] * difference, -_MAX_STEP, _MAX_STEP) / _PUSH_DIVISOR
    return _add_up(step, sources, len(places))


def _add_up(steps: Floats, rows: Longs, count: int) -> Floats:
    return np.stack([np.bincount(rows, steps[:, axis], count) for axis in (0, 1)], axis=1).astype(np.float32)


def _scale(places: Floats) -> npt.NDArray[np.int16]:
    """
    Return the places as coordinates.

    Each is the mean of its distance from the centre and of its rank on the axis. The ranks spread points that would lie on each other;
    they keep the order on each axis.
    """
    if len(places) == 1:
        return np.zeros((1, 2), np.int16)
    centered = places - np.median(places, axis=0)
    radius = max(float(np.percentile(np.abs(centered), _SHOWN_SHARE)), 1e-6)
    linear = np.clip(centered * (0.9 / radius), -1.0, 1.0)
    ranks = places.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
    even = (2.0 * ranks / (len(places) - 1) - 1.0) * 0.95
    return ((linear + even) / 2 * _MAX_COORDINATE).astype(np.int16)


def _find_clusters(places: Floats) -> Longs:
    """Return the cluster of each place, by k-means, from the largest one on."""
    number = max(1, min(_MAX_CLUSTERS, len(places) // _POINTS_PER_CLUSTER))
    centers = places[[0]]
    while len(centers) < number:  # each further centre is the place farthest from all others
        distances = ((places[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2).min(axis=1)
        centers = np.concatenate([centers, places[[int(distances.argmax())]]])
    nearest = np.zeros(len(places), np.int64)
    for _ in range(_CLUSTER_ROUNDS):
        nearest = ((places[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2).argmin(axis=1)
        centers = np.stack([places[nearest == row].mean(axis=0) if (nearest == row).any() else centers[row] for row in range(number)])
    counts = np.bincount(nearest, minlength=number)
    order = np.empty(number, np.int64)
    order[np.argsort(-counts, kind="stable")] = np.arange(number)
    return order[nearest]
