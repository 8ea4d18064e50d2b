"""The trained model of AI detection: 8-bit weights, mapped into memory, and the figures of its calibration."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Self, cast

import numpy as np
import numpy.typing as npt

from rookery.engines.detection.features import PART_BUCKETS, PATTERN_BUCKETS, STYLE_NAMES, FloatArray, Window
from rookery.scoring.detection import LengthBand

WEIGHTS_FILE = "weights.npy"
SETTINGS_FILE = "model.json"

_MAX_STYLE_DEVIATION = 4.0
"""Standard deviations at which a stylometric value is cut off, so that one odd value does not decide the distance."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """
    The calibration of one length band, measured on texts of sources that were left out of the training.

    Attributes:
        slope: Of the logistic function from the raw score to the probability.
        intercept: Of the same function.
        ai: Raw score above which at most 1 % of human texts lie.
        suspect: The same for 5 %.
        human: Raw score under which a text is labelled `human`.
        scores: Raw scores, ascending, at which the false-positive rate is known.
        false_positive_rates: The share of human texts that have at least each of these scores.
    """

    slope: float
    intercept: float
    ai: float
    suspect: float
    human: float
    scores: tuple[float, ...]
    false_positive_rates: tuple[float, ...]

    def to_probability(self, score: float) -> float:
        """Return the probability that a model wrote a text with this raw score, if half of all texts were written by models."""
        logit = max(-30.0, min(30.0, self.slope * score + self.intercept))
        return 1 / (1 + exp(-logit))

    def estimate_false_positives(self, score: float) -> float:
        """Return the share of human texts that have at least this raw score."""
        position = bisect_right(self.scores, score)
        if position == 0:
            return 1.0
        if position == len(self.scores):
            return self.false_positive_rates[-1]
        low, high = self.scores[position - 1], self.scores[position]
        left, right = self.false_positive_rates[position - 1], self.false_positive_rates[position]
        return left + (right - left) * (score - low) / (high - low)


class TrainedModel:
    """A linear model over the hashed features of a window, and what it needs to interpret its score."""

    def __init__(self, settings: dict[str, object], weights: npt.NDArray[np.int8]) -> None:
        """Check that *weights* have the shape that the features need."""
        if weights.shape != (PART_BUCKETS + PATTERN_BUCKETS,) or weights.dtype != np.int8:
            raise ValueError(f"the weights have the shape {weights.shape}; {PART_BUCKETS + PATTERN_BUCKETS} 8-bit integers are needed")
        self.name = str(settings["name"])
        self.version = str(settings["version"])
        mapped = weights.view(np.ndarray)  # the same memory, without the overhead of the class
        self.part_weights, self.pattern_weights = mapped[:PART_BUCKETS], mapped[PART_BUCKETS:]
        self.part_scale = _to_float(settings["part_scale"])
        self.pattern_scale = _to_float(settings["pattern_scale"])
        self._bias = _to_float(settings["bias"])
        bands = cast("dict[LengthBand, dict[str, object]]", settings["bands"])
        self.bands = {band: _read_calibration(values) for band, values in bands.items()}
        self.window_suspect = _to_float(settings["window_suspect"])
        self.window_strict = _to_float(settings["window_strict"])
        style = cast("dict[str, object]", settings["style"])
        self._style_mean, self._style_deviation = _to_array(style["mean"]), _to_array(style["deviation"])
        self._style_centers = _to_array(style["centers"])
        if self._style_centers.shape[1:] != (len(STYLE_NAMES),):
            raise ValueError(f"the centers have the shape {self._style_centers.shape}; {len(STYLE_NAMES)} values each are needed")
        self.near, self.far = _to_float(style["near"]), _to_float(style["far"])

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the model in *folder*. The weights are mapped, and read from the disk when they are used."""
        settings = cast("dict[str, object]", json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8")))
        return cls(settings, np.load(folder / WEIGHTS_FILE, mmap_mode="r"))

    def score(self, window: Window) -> float:
        """Return the raw score of *window*: its log-odds before the calibration."""
        parts = self.part_weights[window.part_buckets].astype(np.float32) @ window.part_values
        patterns = self.pattern_weights[window.pattern_buckets].astype(np.float32) @ window.pattern_values
        return float(parts) * self.part_scale + float(patterns) * self.pattern_scale + self._bias

    def measure_distance(self, style: FloatArray) -> float:
        """Return the distance of a text from the nearest group of training texts, in standard deviations per value."""
        deviations = standardize(style, self._style_mean, self._style_deviation)
        return float(np.sqrt(np.mean((self._style_centers - deviations) ** 2, axis=1)).min())


def standardize(style: FloatArray, mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return stylometric values in standard deviations, cut off at four."""
    return np.clip((style - mean) / deviation, -_MAX_STYLE_DEVIATION, _MAX_STYLE_DEVIATION)


def _read_calibration(values: dict[str, object]) -> Calibration:
    table = cast("list[tuple[float, float]]", values["false_positives"])
    return Calibration(
        slope=_to_float(values["slope"]),
        intercept=_to_float(values["intercept"]),
        ai=_to_float(values["ai"]),
        suspect=_to_float(values["suspect"]),
        human=_to_float(values["human"]),
        scores=tuple(score for score, _ in table),
        false_positive_rates=tuple(rate for _, rate in table),
    )


def _to_float(value: object) -> float:
    return float(cast("float", value))


def _to_array(value: object) -> FloatArray:
    return np.array(cast("list[float]", value), dtype=np.float32)
