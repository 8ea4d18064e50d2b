"""Paired bootstrap intervals of the difference between two runs over the same questions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RESAMPLES = 2000
_SEED = 1


def bootstrap_interval(differences: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of *differences*, one for each question, and the bounds that hold 95 % of the resampled means."""
    values = np.asarray(differences, dtype=np.float64)
    picks = np.random.default_rng(_SEED).integers(0, len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), (0.025, 0.975))
    return float(values.mean()), float(low), float(high)
