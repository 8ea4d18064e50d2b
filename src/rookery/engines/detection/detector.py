"""AI detection with a trained model: from a text to its score, label, segments and signals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

import numpy as np

from rookery.engines.detection.features import (
    Document,
    Window,
    count_document_words,
    describe,
    describe_window,
    locate_patterns,
    measure_style,
)
from rookery.engines.detection.model import Calibration, TrainedModel
from rookery.scoring.detection import (
    MIN_SCORED_WORDS,
    MIN_VERDICT_WORDS,
    DetectionLabel,
    DetectionModel,
    DetectionReason,
    DetectionResult,
    DetectionSegment,
    DetectionSignal,
    find_band,
)
from rookery.scoring.plain_text import PlainText, extract_plain_text

PART_LENGTH = 150
"""Pieces of one part of a long text. Its score is the mean of those of its parts, because training windows have up to 250 words."""

_SEGMENT_LENGTH = 70
_MAX_SEGMENTS = 200
MIN_MIXED_WORDS = 200
MIN_MIXED_SEGMENTS = 2
_MIN_MIXED_SHARE = 0.25
_EXPLAINED_PIECES = 600
"""Pieces of a text whose signals are computed; those of the rest are alike."""

_MAX_SIGNALS = 5
"""Maximum signals for each direction."""

_MAX_SIGNAL_CHARS = 60
_MIN_SIGNAL = 0.005
_CONFIDENCE_WORDS = 100
"""Words at which the confidence is half of its maximum."""

_MIN_NEARNESS = 0.3


class _Scores(NamedTuple):
    document: float
    segments: list[float]
    distance: float


class Detector:
    """A `scoring.ports.AiDetector` over a trained model. It has no state, so threads may share it."""

    def __init__(self, model: TrainedModel) -> None:
        self._model = model
        self.model = DetectionModel(name=model.name, version=model.version)

    def detect_many(self, texts: Sequence[str]) -> list[DetectionResult]:
        return [self.detect(text) for text in texts]

    def detect(self, text: str) -> DetectionResult:
        return self.detect_prose(extract_plain_text(text))

    def detect_prose(self, plain: PlainText, *, explain: bool = True) -> DetectionResult:
        document = describe(plain.text)
        band = find_band(plain.words)
        problem = plain.problem or ("too_short" if band is None or count_document_words(document) < MIN_SCORED_WORDS else None)
        if band is None or problem:
            return self._without_score(plain, problem or "too_short")
        boundaries = split_evenly(len(document), _SEGMENT_LENGTH, _MAX_SEGMENTS)
        scores = _Scores(
            document=self.score_document(document),
            segments=[self._score(document, first, last) for first, last in boundaries],
            distance=self._model.measure_distance(measure_style(document.tokens)),
        )
        calibration = self._model.bands[band]
        label, reason = self._label(plain.words, scores, calibration)
        return DetectionResult(
            score=calibration.to_probability(scores.document),
            label=label,
            reason=reason,
            confidence=self._measure_confidence(plain.words, scores.distance),
            expected_false_positive_rate=calibration.estimate_false_positives(scores.document),
            words=plain.words,
            band=band,
            segments=tuple(self._present_segments(plain, document, boundaries, scores.segments)),
            signals=self._explain(plain.text, document) if explain else (),
            model=self.model,
        )

    def score_document(self, document: Document) -> float:
        """Return the raw score of a text: the mean of the scores of its parts."""
        return fmean(self._score(document, first, last) for first, last in split_evenly(len(document), PART_LENGTH))

    def _score(self, document: Document, first: int, last: int) -> float:
        return self._model.score(describe_window(document, first, last))

    def _without_score(self, plain: PlainText, reason: DetectionReason) -> DetectionResult:
        return DetectionResult(
            score=None,
            label="uncertain",
            reason=reason,
            confidence=0.0,
            expected_false_positive_rate=None,
            words=plain.words,
            band=find_band(plain.words),
            segments=(),
            signals=(),
            model=self.model,
        )

    def _label(self, words: int, scores: _Scores, calibration: Calibration) -> tuple[DetectionLabel, DetectionReason | None]:
        """Return the label, and the reason if it is `uncertain`."""
        if scores.distance > self._model.far:
            return "uncertain", "far_from_training"
        if words < MIN_VERDICT_WORDS:
            return ("human", None) if scores.document < calibration.human else ("uncertain", "short")
        suspect = sum(score > self._model.window_suspect for score in scores.segments)
        is_ai = scores.document > calibration.ai
        if is_ai and 2 * suspect < len(scores.segments):
            return "uncertain", "windows_differ"
        if words >= MIN_MIXED_WORDS and self._is_mixed(scores.segments, calibration):
            return "mixed", None
        if is_ai:
            return "ai", None
        return ("human", None) if scores.document < calibration.human else ("uncertain", "borderline")

    def _is_mixed(self, segments: list[float], calibration: Calibration) -> bool:
        """Return whether a quarter of the segments have a score that human texts hardly ever have, and a quarter one that is usual."""
        strict = sum(score > self._model.window_strict for score in segments)
        usual = sum(score < calibration.human for score in segments)
        return strict >= MIN_MIXED_SEGMENTS and min(strict, usual) >= _MIN_MIXED_SHARE * len(segments)

    def _measure_confidence(self, words: int, distance: float) -> float:
        near, far = self._model.near, self._model.far
        nearness = 1 - (1 - _MIN_NEARNESS) * min(1.0, max(0.0, (distance - near) / (far - near)))
        return nearness * words / (words + _CONFIDENCE_WORDS)

    def _present_segments(
        self, plain: PlainText, document: Document, boundaries: list[tuple[int, int]], scores: list[float]
    ) -> Iterator[DetectionSegment]:
        calibration = self._model.bands["60-80"]
        for (first, last), score in zip(boundaries, scores, strict=True):
            start, end = plain.locate(document.spans[first][0], document.spans[last - 1][1])
            yield DetectionSegment(start=start, end=end, score=calibration.to_probability(score))

    def _explain(self, text: str, document: Document) -> tuple[DetectionSignal, ...]:
        """Return the words and phrases with the largest contributions to the score."""
        last = min(len(document), _EXPLAINED_PIECES)
        window = describe_window(document, 0, last)
        values = dict[str, float]()
        for name, value in (*self._weigh_words(document, window, last), *self._weigh_phrases(text, document, window, last)):
            shown_name = " ".join(name.split()).strip(_OUTER_MARKS)[:_MAX_SIGNAL_CHARS]
            if shown_name:
                values[shown_name] = values.get(shown_name, 0.0) + value
        signals = [
            DetectionSignal(name=name, value=value, direction="ai" if value > 0 else "human")
            for name, value in _take_extremes(values, _MAX_SIGNALS)
            if abs(value) >= _MIN_SIGNAL
        ]
        return tuple(sorted(signals, key=lambda signal: (-abs(signal.value), signal.name)))

    def _weigh_words(self, document: Document, window: Window, last: int) -> list[tuple[str, float]]:
        """Return the largest contributions of words by their letters."""
        parts = document.parts[: document.part_ends[last]]
        places = np.searchsorted(window.part_buckets, parts)
        counts = np.bincount(places, minlength=len(window.part_buckets))
        weights = self._model.part_weights[window.part_buckets] * window.part_values * (self._model.part_scale / counts)
        sums = np.zeros(len(parts) + 1)
        np.cumsum(weights[places], out=sums[1:])
        sums = sums[document.part_ends[: last + 1]]
        contributions = dict[str, float]()
        for word, value in zip(document.words, (sums[1:] - sums[:-1]).tolist(), strict=False):
            contributions[word] = contributions.get(word, 0.0) + value
        return _take_extremes(contributions, 2 * _MAX_SIGNALS)

    def _weigh_phrases(self, text: str, document: Document, window: Window, last: int) -> list[tuple[str, float]]:
        """Return the largest contributions of sequences of tokens, by the first place where each occurs."""
        weights = self._model.pattern_weights[window.pattern_buckets] * window.pattern_values * self._model.pattern_scale
        order = np.argsort(weights, kind="stable")
        extremes = np.unique(np.concatenate([order[: 2 * _MAX_SIGNALS], order[-2 * _MAX_SIGNALS :]]))
        values = dict(zip(window.pattern_buckets[extremes].tolist(), weights[extremes].tolist(), strict=True))
        return [
            (text[document.spans[first][0] : document.spans[final][1]], values[bucket])
            for bucket, (first, final) in locate_patterns(document, last, list(values)).items()
        ]


_OUTER_MARKS = ".,;:!?()[]\"'“”‘’…-–—*_"


def split_evenly(length: int, target: int, most: int | None = None) -> list[tuple[int, int]]:
    """Return the boundaries of parts of about *target* pieces each, of nearly equal length, at most *most*."""
    count = max(1, round(length / target))
    if most is not None:
        count = min(count, most)
    edges = [length * number // count for number in range(count + 1)]
    return list(pairwise(edges))


def _take_extremes(values: dict[str, float], count: int) -> list[tuple[str, float]]:
    """Return the *count* smallest and the *count* largest values with their names; all of them if they are fewer."""
    ordered = sorted(values.items(), key=itemgetter(1, 0))
    return ordered if len(ordered) <= 2 * count else [*ordered[:count], *ordered[-count:]]
