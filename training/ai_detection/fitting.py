"""Fit of the linear model: logistic regression whose human registers have the same mean score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize

from rookery.engines.detection.features import PART_BUCKETS, PATTERN_BUCKETS, describe, describe_window, measure_style
from training.ai_detection.texts import Sample

FloatArray = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

BAND_EDGES = (80, 120, 200)


@dataclass(frozen=True, slots=True)
class Recipe:
    """
    The settings of the fit.

    Attributes:
        penalty: Weight of the squared weights.
        mean_penalty: Weight of the variance of the mean scores of the human groups, so that a register alone says nothing.
        variance_penalty: Weight of the variance of human scores.
        part_share: Size of the letter features beside the patterns.
        ai_ratio: Maximum weight of AI texts for one of human texts, in each register and length band.
        human_ratio: The reverse.
        base_weight: Weight of a text by a base model.
        human_only: Maximum weight of the human texts of a register without AI texts.
        min_documents: Windows in which a bucket must occur.
        min_evidence: Difference of the class means, in standard errors, that counts as a direction.
        iterations: Maximum steps of the optimizer.
    """

    penalty: float = 3e-3
    mean_penalty: float = 5.0
    variance_penalty: float = 3.0
    part_share: float = 1.0
    ai_ratio: float = 1.6
    human_ratio: float = 1.6
    base_weight: float = 0.2
    human_only: float = 150.0
    min_documents: int = 10
    min_evidence: float = 0.5
    iterations: int = 60


class Weights(NamedTuple):
    """A fitted model, before its weights become 8-bit integers."""

    parts: FloatArray
    patterns: FloatArray
    bias: float


class Dataset:
    """The features and labels of all samples."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        documents = [describe(sample.text) for sample in samples]
        windows = [describe_window(document, 0, len(document)) for document in documents]
        self.parts = _to_matrix(((window.part_buckets, window.part_values) for window in windows), PART_BUCKETS)
        self.patterns = _to_matrix(((window.pattern_buckets, window.pattern_values) for window in windows), PATTERN_BUCKETS)
        self.style = np.array([measure_style(document.tokens) for document in documents], dtype=np.float32)
        self.is_ai = np.array([sample.label == 1 for sample in samples])
        self.is_base = np.array([sample.is_base for sample in samples])
        self.register = np.array([sample.register for sample in samples])
        self.source = np.array([sample.source for sample in samples])
        self.group = np.array([sample.group for sample in samples])
        self.generator = np.array([sample.generator for sample in samples])
        self.document = np.array([sample.document for sample in samples])
        self.words = np.array([sample.words for sample in samples])
        self.band = np.digitize(self.words, BAND_EDGES)

    def __len__(self) -> int:
        return len(self.samples)


def _to_matrix(rows: Iterable[tuple[npt.NDArray[np.uint32], FloatArray]], width: int) -> sp.csr_matrix:
    buckets, values, ends = [], [], [0]
    for row_buckets, row_values in rows:
        buckets.append(row_buckets)
        values.append(row_values)
        ends.append(ends[-1] + len(row_buckets))
    return sp.csr_matrix((np.concatenate(values), np.concatenate(buckets).astype(np.int32), np.array(ends)), shape=(len(ends) - 1, width))


def score(weights: Weights, data: Dataset, rows: npt.NDArray[np.intp]) -> FloatArray:
    """Return the raw scores of *rows*."""
    return data.parts[rows] @ weights.parts + data.patterns[rows] @ weights.patterns + weights.bias


def weigh_samples(data: Dataset, mask: Mask, recipe: Recipe) -> FloatArray:
    """
    Return the weight of each sample of *mask*.

    In each register and length band, the classes have about the same weight, so that neither register nor length shows the class.
    """
    weights = np.where(data.is_base & data.is_ai, recipe.base_weight, 1.0) * mask
    # The only AI texts of the encyclopedia are those of base models.
    weights[data.is_base & (data.register == "encyclopedia") & mask] = 1.0
    for register in np.unique(data.register[mask]):
        in_register = (data.register == register) & mask
        has_ai = weights[in_register & data.is_ai].sum() > 15
        for band in range(len(BAND_EDGES) + 1):
            rows = in_register & (data.band == band)
            human, ai = weights[rows & ~data.is_ai].sum(), weights[rows & data.is_ai].sum()
            if not has_ai:
                if human:
                    weights[rows] *= min(1.0, recipe.human_only / 4 / human)
                continue
            if not human or not ai:
                weights[rows] = 0
                continue
            ai_target = min(ai, recipe.ai_ratio * human)
            weights[rows & data.is_ai] *= ai_target / ai
            weights[rows & ~data.is_ai] *= min(human, max(recipe.human_ratio * ai_target, 1.0)) / human
    weights[data.is_ai] *= 0.5 / weights[data.is_ai].sum()
    weights[~data.is_ai] *= 0.5 / weights[~data.is_ai].sum()
    return weights.astype(np.float32)


def measure_agreement(data: Dataset, matrix: sp.csr_matrix, mask: Mask, recipe: Recipe) -> FloatArray:
    """
    Return how far the sources agree on the direction of each bucket, from 0 to 1.

    A bucket that speaks for a model in one source and for a person in another belongs to a topic or a prompt.
    """
    squares = matrix.multiply(matrix).tocsr()
    votes = []
    for register, source in sorted({(sample.register, sample.source) for sample in data.samples}):
        here = mask & (data.register == register)
        ai = np.flatnonzero(here & (data.source == source) & data.is_ai & ~data.is_base)
        # The human texts of evobench are few, and those of fdg are of the same kind.
        human = np.flatnonzero(here & ~data.is_ai & (True if source == "evobench" else data.source == source))
        if len(ai) < 20 or len(human) < 20:
            continue
        means = [np.asarray(matrix[rows].mean(0)).ravel() for rows in (human, ai)]
        errors = [(np.asarray(squares[rows].mean(0)).ravel() - mean**2) / len(rows) for rows, mean in zip((human, ai), means, strict=True)]
        difference = (means[1] - means[0]) / np.sqrt(errors[0] + errors[1] + 1e-9)
        votes.append(np.sign(difference) * (np.abs(difference) > recipe.min_evidence))
    agreement = np.abs(np.mean(votes, axis=0)) * (np.asarray((matrix[np.flatnonzero(mask)] > 0).sum(0)).ravel() >= recipe.min_documents)
    return (agreement / np.sqrt(np.mean(agreement[agreement > 0] ** 2))).astype(np.float32)


def fit(data: Dataset, mask: Mask, recipe: Recipe) -> Weights:
    """Return the weights for the samples of *mask*."""
    sample_weights = weigh_samples(data, mask, recipe)
    rows = np.flatnonzero(mask & ((sample_weights > 0) | ~data.is_ai))
    blocks, columns = [], []
    for matrix, share in ((data.parts, recipe.part_share), (data.patterns, 1.0)):
        scale = share * measure_agreement(data, matrix, mask, recipe)
        used = np.flatnonzero(scale)
        blocks.append((matrix[rows][:, used] @ sp.diags(scale[used])).tocsr().astype(np.float32))
        columns.append((used, scale))
    features = sp.hstack(blocks).tocsr()
    transposed = features.T.tocsr()
    targets = np.where(data.is_ai[rows], 1.0, -1.0).astype(np.float32)
    costs = sample_weights[rows]
    groups = _average_groups(data.group[rows], ~data.is_ai[rows])
    human = groups.mean(axis=0)

    def evaluate(point: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        weights, bias = point[:-1].astype(np.float32), np.float32(point[-1])
        scores = features @ weights + bias
        margins = targets * scores
        loss = float((costs * np.logaddexp(0, -margins)).sum()) + recipe.penalty / 2 * float(weights @ weights)
        slopes = -costs * targets / (1 + np.exp(margins))
        deviations = scores - human @ scores
        loss += recipe.variance_penalty / 2 * float((human * deviations**2).sum())
        slopes = slopes + recipe.variance_penalty * human * deviations
        means = groups @ scores
        means = means - means.mean()
        loss += recipe.mean_penalty / 2 * float((means**2).mean())
        slopes = slopes + recipe.mean_penalty / len(means) * (means @ groups)
        return loss, np.concatenate([transposed @ slopes + recipe.penalty * weights, [slopes.sum()]]).astype(np.float64)

    options = {"maxiter": recipe.iterations, "maxcor": 10, "ftol": 1e-6, "gtol": 1e-6}
    point = minimize(evaluate, np.zeros(features.shape[1] + 1), jac=True, method="L-BFGS-B", options=options).x
    weights, first = [], 0
    for used, scale in columns:
        full = np.zeros(len(scale), dtype=np.float32)
        full[used] = point[first : first + len(used)] * scale[used]
        weights.append(full)
        first += len(used)
    return Weights(weights[0], weights[1], float(point[-1]))


def _average_groups(groups: npt.NDArray[np.str_], is_human: Mask) -> FloatArray:
    """Return one row per group of human texts, which averages them."""
    rows = []
    for group in np.unique(groups[is_human]):
        members = is_human & (groups == group)
        if members.sum() >= 15:
            rows.append(members / members.sum())
    return np.array(rows, dtype=np.float32)
