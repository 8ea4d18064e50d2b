"""Thresholds, probabilities and distances of a fitted model, from scores of texts that were left out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rookery.engines.detection.model import standardize
from training.ai_detection.evaluation import LONE_SOURCE, MIN_SCORED_WORDS, fit_logistic
from training.ai_detection.fitting import BAND_EDGES, Dataset, FloatArray, Mask

BANDS = ("60-80", "80-120", "120-200", "200+")

_GROUP_MIN_TEXTS = 40
_GROUP_RATE = {0.01: 0.02, 0.05: 0.08}
"""Rate of human texts above a threshold that no group may exceed, by the rate over all groups."""

_TABLE_RATES = (0.9, 0.7, 0.5, 0.4, 0.3, 0.2, 0.15, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005)
_CENTERS = 24
_NEAR_QUANTILE, _FAR_QUANTILE = 0.95, 0.999


def choose_reference(data: Dataset, by_source: FloatArray, by_document: FloatArray) -> FloatArray:
    """Return the scores that thresholds come from: sources left out, and documents left out for the source without a second of its kind."""
    return np.where(data.source == LONE_SOURCE, by_document, by_source)


def weigh_groups(groups: npt.NDArray[np.str_]) -> FloatArray:
    """Return weights with which all groups count the same."""
    names, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
    return (1 / counts[places] / len(names)).astype(np.float32)


def find_quantile(scores: FloatArray, weights: FloatArray, rate: float) -> float:
    """Return the score that *rate* of the weighted texts exceed."""
    order = np.argsort(scores)
    return float(np.interp(1 - rate, np.cumsum(weights[order]) / weights.sum(), scores[order]))


def find_threshold(data: Dataset, reference: FloatArray, by_document: FloatArray, rows: Mask, rate: float) -> float:
    """Return the score that *rate* of human texts exceed, and that no group exceeds much more often."""
    human = rows & ~data.is_ai
    threshold = find_quantile(reference[human], weigh_groups(data.group[human]), rate)
    for group in np.unique(data.group[human]):
        members = human & (data.group == group)
        if members.sum() >= _GROUP_MIN_TEXTS:
            threshold = max(threshold, float(np.quantile(by_document[members], 1 - _GROUP_RATE[rate])))
    return threshold


def calibrate(data: Dataset, by_source: FloatArray, by_document: FloatArray) -> dict[str, dict[str, object]]:
    """Return the calibration of each length band."""
    reference = choose_reference(data, by_source, by_document)
    bands = dict[str, dict[str, object]]()
    longer_ai = longer_suspect = -np.inf
    for number in reversed(range(len(BANDS))):
        rows = (data.band == number) & (data.words >= MIN_SCORED_WORDS) & ~np.isnan(reference)
        human, ai = rows & ~data.is_ai, rows & data.is_ai & ~data.is_base
        # A shorter text never has the lower threshold.
        longer_ai = max(longer_ai, find_threshold(data, reference, by_document, rows, 0.01))
        longer_suspect = max(longer_suspect, find_threshold(data, reference, by_document, rows, 0.05))
        weights = np.zeros(len(data), dtype=np.float32)
        weights[human], weights[ai] = weigh_groups(data.group[human]), weigh_groups(data.group[ai])
        slope, intercept = fit_logistic(reference[human | ai], data.is_ai[human | ai], weights[human | ai])
        table = [(round(find_quantile(reference[human], weights[human], rate), 5), rate) for rate in _TABLE_RATES]
        usual = find_quantile(reference[human], weights[human], 0.2)
        bands[BANDS[number]] = {
            "slope": round(slope, 5),
            "intercept": round(intercept, 5),
            "ai": round(float(longer_ai), 5),
            "suspect": round(float(longer_suspect), 5),
            "human": round(min(usual, -intercept / slope), 5),
            "false_positives": sorted(dict(table).items()),
        }
    return dict(reversed(bands.items()))


def find_window_thresholds(data: Dataset, by_source: FloatArray, by_document: FloatArray) -> tuple[float, float]:
    """Return the scores that 5 % and 0.5 % of short human windows exceed."""
    reference = choose_reference(data, by_source, by_document)
    rows = (data.words >= MIN_SCORED_WORDS) & (data.words < BAND_EDGES[1]) & ~data.is_ai & ~np.isnan(reference)
    weights = weigh_groups(data.group[rows])
    return find_quantile(reference[rows], weights, 0.05), find_quantile(reference[rows], weights, 0.005)


def describe_style(data: Dataset, rows: Mask, *, seed: int = 0) -> dict[str, object]:
    """Return groups of training texts by their style, and the distances that count as near and as far."""
    mean, deviation = data.style[rows].mean(0), data.style[rows].std(0) + 1e-4
    values = standardize(data.style[rows], mean, deviation)
    centers = _find_centers(values, seed)
    distances = measure_distances(values, centers)
    return {
        "mean": [round(float(value), 6) for value in mean],
        "deviation": [round(float(value), 6) for value in deviation],
        "centers": [[round(float(value), 4) for value in center] for center in centers],
        "near": round(float(np.quantile(distances, _NEAR_QUANTILE)), 4),
        "far": round(float(np.quantile(distances, _FAR_QUANTILE)), 4),
    }


def measure_distances(values: FloatArray, centers: FloatArray) -> FloatArray:
    """Return the distance of each text from the nearest of *centers*."""
    return np.sqrt(((values[:, None] - centers[None]) ** 2).mean(2)).min(1)


def _find_centers(values: FloatArray, seed: int) -> FloatArray:
    """Return the centers of groups (k-means)."""
    centers = values[np.random.default_rng(seed).choice(len(values), min(_CENTERS, len(values)), replace=False)].copy()
    for _ in range(20):
        nearest = (((values**2).sum(1)[:, None] - 2 * values @ centers.T) + (centers**2).sum(1)).argmin(1)
        for number in range(len(centers)):
            if (nearest == number).any():
                centers[number] = values[nearest == number].mean(0)
    return centers
