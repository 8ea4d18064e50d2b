"""Scores of texts that were left out of the fit, and figures of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from training.ai_detection.fitting import Dataset, FloatArray, Mask, Recipe, Weights, fit, score

DOCUMENT_FOLDS = 5
MIN_SCORED_WORDS = 60
MIN_FAMILY_WINDOWS = 20
LONE_SOURCE = "csabstruct"
"""The only source of published abstracts. Left out, its register is missing; its thresholds come from the split by documents."""

_DICTIONARY_BYTES = 32_000


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Scores of a model that did not see the text, its source, or its register; NaN for texts that were in no test."""

    model: FloatArray
    style: FloatArray
    compression: FloatArray


def split_sources(data: Dataset) -> dict[str, Mask]:
    """Return the test texts of each source. One source of several registers is left out in two parts."""
    folds = {source: data.source == source for source in np.unique(data.source)}
    encyclopedia = data.register == "encyclopedia"
    if encyclopedia.any():
        folds = {source: mask & ~encyclopedia for source, mask in folds.items()}
        folds["fdg squad"] = encyclopedia
    return {name: mask for name, mask in folds.items() if mask.any()}


def split_registers(data: Dataset) -> dict[str, Mask]:
    """Return the test texts of each register. Essays and exam answers are left out together."""
    names = {"essays": ("essays", "exam answers")}
    registers = [str(name) for name in np.unique(data.register) if name != "exam answers" and (data.register == name).sum() >= 200]
    return {name: np.isin(data.register, names.get(name, (name,))) for name in registers}


def split_documents(data: Dataset) -> dict[str, Mask]:
    """Return five parts of all documents."""
    fold = np.array([zlib.crc32(document.encode()) % DOCUMENT_FOLDS for document in data.document])
    return {f"documents {number}": fold == number for number in range(DOCUMENT_FOLDS)}


def score_left_out(data: Dataset, folds: Mapping[str, Mask], recipe: Recipe, *, with_baselines: bool) -> LeftOut:
    """Return the scores of each fold, by a model that saw neither its texts nor other texts of their documents."""
    results = LeftOut(*(np.full(len(data), np.nan, dtype=np.float32) for _ in range(3)))
    for name, test in folds.items():
        train = ~test & ~np.isin(data.document, np.unique(data.document[test]))
        rows = np.flatnonzero(test)
        results.model[rows] = score(fit(data, train, recipe), data, rows)
        if with_baselines:
            results.style[rows] = _score_style(data, train, rows)
            results.compression[rows] = _score_compression(data, train, rows)
        print(f"  left out: {name}, {len(rows)} windows", flush=True)
    return results


def score_families(data: Dataset, families: Mapping[str, str], recipe: Recipe) -> Iterator[tuple[str, float, float, int]]:
    """Yield for each family of generators, left out of the fit: its name, AUROC and TPR at 1 % against unseen human documents."""
    held = split_documents(data)["documents 0"]
    for name, part in families.items():
        family = np.char.find(np.char.lower(data.generator), part) >= 0
        if family.sum() < MIN_FAMILY_WINDOWS:
            continue
        weights = fit(data, ~family & ~held, recipe)
        long = data.words >= MIN_SCORED_WORDS
        registers = np.unique(data.register[family & long])
        human = score(weights, data, np.flatnonzero(held & ~data.is_ai & long & np.isin(data.register, registers)))
        ai = score(weights, data, np.flatnonzero(family & long))
        yield name, measure_auroc(human, ai), measure_tpr(human, ai, 0.01), len(ai)


def measure_auroc(human: FloatArray, ai: FloatArray) -> float:
    """Return the probability that an AI text has a higher score than a human text."""
    scores = np.concatenate([human, ai])
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[len(human) :].sum() - len(ai) * (len(ai) + 1) / 2) / (len(human) * len(ai)))


def measure_tpr(human: FloatArray, ai: FloatArray, rate: float) -> float:
    """Return the share of AI texts above the score that *rate* of these human texts exceed."""
    return float((ai > np.quantile(human, 1 - rate)).mean())


def measure_calibration_error(probabilities: FloatArray, is_ai: Mask, bins: int = 10) -> float:
    """Return the mean difference of probability and share, over bins, with both classes of equal weight."""
    weights = np.where(is_ai, 0.5 / max(1, is_ai.sum()), 0.5 / max(1, (~is_ai).sum()))
    places = np.minimum((probabilities * bins).astype(int), bins - 1)
    error = 0.0
    for place in range(bins):
        rows = places == place
        if rows.any():
            total = weights[rows].sum()
            error += total * abs(np.average(probabilities[rows], weights=weights[rows]) - weights[rows & is_ai].sum() / total)
    return float(error)


def fit_logistic(scores: FloatArray, is_ai: Mask, weights: FloatArray) -> tuple[float, float]:
    """Return slope and intercept of the logistic function from score to probability (Platt)."""
    spread = float(np.std(scores))

    def evaluate(point: npt.NDArray[np.float64]) -> float:
        margins = np.where(is_ai, 1, -1) * (point[0] * scores / spread + point[1])
        return float((weights * np.logaddexp(0, -margins)).sum() + 1e-4 * point[0] ** 2)

    slope, intercept = minimize(evaluate, np.array([1.0, 0.0]), method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-5}).x
    return float(slope / spread), float(intercept)


def measure_weights(weights: Weights) -> tuple[float, float]:
    """Return the largest absolute weight of each block."""
    return float(np.abs(weights.parts).max()), float(np.abs(weights.patterns).max())


def _score_style(data: Dataset, train: Mask, rows: npt.NDArray[np.intp]) -> FloatArray:
    """Return the scores of the first baseline: logistic regression over stylometry alone."""
    mean, deviation = data.style[train].mean(0), data.style[train].std(0) + 1e-6
    values = np.clip((data.style - mean) / deviation, -4, 4)
    features, is_ai = values[train], data.is_ai[train]
    costs = np.where(is_ai, 0.5 / is_ai.sum(), 0.5 / (~is_ai).sum())
    targets = np.where(is_ai, 1.0, -1.0)

    def evaluate(point: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        margins = targets * (features @ point[:-1] + point[-1])
        slopes = -costs * targets / (1 + np.exp(margins))
        loss = float((costs * np.logaddexp(0, -margins)).sum() + 5e-4 * point[:-1] @ point[:-1])
        return loss, np.concatenate([features.T @ slopes + 1e-3 * point[:-1], [slopes.sum()]])

    point = minimize(evaluate, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B").x
    return (values[rows] @ point[:-1] + point[-1]).astype(np.float32)


def _score_compression(data: Dataset, train: Mask, rows: npt.NDArray[np.intp]) -> FloatArray:
    """Return the scores of the second baseline: how much better a text compresses after AI texts than after human ones (as ZipPy)."""
    dictionaries = []
    for is_ai in (False, True):
        chosen = np.flatnonzero(train & (data.is_ai == is_ai) & ~data.is_base)
        chosen = chosen[:: max(1, len(chosen) // 60)]
        dictionaries.append(" ".join(data.samples[row].text for row in chosen).encode()[-_DICTIONARY_BYTES:])
    sizes = np.zeros((len(rows), 2))
    for place, row in enumerate(rows):
        text = data.samples[row].text.encode()
        for number, dictionary in enumerate(dictionaries):
            compressor = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, dictionary)
            sizes[place, number] = (len(compressor.compress(text)) + len(compressor.flush())) / len(text)
    return (sizes[:, 0] - sizes[:, 1]).astype(np.float32)
