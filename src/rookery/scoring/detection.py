"""The types of AI detection: the result for a text, its segments and its signals. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DetectionLabel = Literal["human", "mixed", "ai", "uncertain"]

DetectionReason = Literal[
    "empty", "binary", "code", "quoted", "language", "too_short", "short", "far_from_training", "windows_differ", "borderline"
]
"""
The reason why a text has no score or is `uncertain`.

    empty              it has no words; no score
    binary             it has control characters or bytes that are no text; no score
    code               it is program code, data or markup, with fewer than 60 words of prose beside; no score
    quoted             it is a quotation, with fewer than 60 words beside; no score
    language           it is not in English; no score
    too_short          it has fewer than 60 words; no score
    short              it has fewer than 120 words, and its score alone would not be `human`
    far_from_training  its kind of text is unlike all texts of the training, so false positives are unknown
    windows_differ     its score is above the threshold, but fewer than half of its windows are
    borderline         its score is between those of people and of models
"""

LengthBand = Literal["60-80", "80-120", "120-200", "200+"]

MIN_SCORED_WORDS = 60
"""Minimum words of a text that gets a score."""

MIN_VERDICT_WORDS = 120
"""Minimum words of a text that may be labelled `ai` or `mixed`."""

CARD_PATH = "docs/reference/ai-detection.md"
"""The model card, relative to the root of the repository."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionSegment:
    """
    A window of a text and its own score.

    Attributes:
        start: Offset of its first character in the text as it was given.
        end: Offset behind its last character.
        score: Calibrated probability that a model wrote it, from 0 to 1.
    """

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionSignal:
    """
    A property of a text that moved its score.

    Attributes:
        name: The property: `words_per_sentence`, or a quoted word or phrase of the text.
        value: Contribution to the log-odds; positive values speak for a model.
    """

    name: str
    value: float
    direction: Literal["ai", "human"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionModel:
    """The model that computed a result; the card is the address of its figures and known failures."""

    name: str
    version: str
    card: str = CARD_PATH


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionResult:
    """
    The result of AI detection for one text.

    Attributes:
        score: Calibrated probability from 0 to 1 that a model wrote the text; None if it cannot be scored.
        reason: Why there is no score, or why the label is `uncertain`; else None.
        confidence: From 0 to 1. Falls with the length and with the distance from the training texts; 0 without a score.
        expected_false_positive_rate: The share of human texts of this length, in registers that the model was not trained on, that have
            at least this score. None without a score.
        words: Words of prose, without code, quotations and markup.
        band: The length band, whose thresholds apply; None under 60 words.
        segments: Windows in the order of the text, which together cover its prose. Empty without a score.
        signals: The strongest signals for and against, strongest first. Empty without a score.
    """

    score: float | None
    label: DetectionLabel
    reason: DetectionReason | None
    confidence: float
    expected_false_positive_rate: float | None
    words: int
    band: LengthBand | None
    segments: tuple[DetectionSegment, ...]
    signals: tuple[DetectionSignal, ...]
    model: DetectionModel


def find_band(words: int) -> LengthBand | None:
    """Return the length band of a text with *words* words, or None if it is too short."""
    if words < MIN_SCORED_WORDS:
        return None
    if words < 80:
        return "60-80"
    if words < MIN_VERDICT_WORDS:
        return "80-120"
    return "120-200" if words < 200 else "200+"
