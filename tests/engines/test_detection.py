"""AI detection with the shipped model: its rules, and that code and weights belong together."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.engines import detection
from rookery.engines.detection import LazyDetector, features
from rookery.engines.detection.detector import Detector, split_evenly
from rookery.engines.detection.model import WEIGHTS_FILE, TrainedModel
from rookery.scoring.detection import MIN_SCORED_WORDS, MIN_VERDICT_WORDS, DetectionResult, find_band
from rookery.scoring.plain_text import count_words
from tests.engines.detection_texts import AUSTEN, LINCOLN, MODEL_ESSAY

pytestmark = pytest.mark.embedded_store

MAX_PACKAGE_BYTES = 2_000_000

WORDS = (
    sorted(features.FUNCTION_WORDS) + "house river engine walked slowly bright, paper. Station; (quiet) twelve 42 \u201cyes\u201d".split()
)


@pytest.fixture(scope="module")
def detector() -> LazyDetector:
    """The shipped model."""
    return detection.open()


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    """The shipped weights."""
    return TrainedModel.load(detection.MODEL_FOLDER)


@pytest.mark.parametrize(("text", "score", "label"), [(LINCOLN, 0.3435, "human"), (AUSTEN, 0.3118, "human"), (MODEL_ESSAY, 0.9757, "ai")])
def test_code_and_weights_belong_together(detector: LazyDetector, text: str, score: float, label: str) -> None:
    """A change of the features without a new training changes these scores. They are equal on all platforms."""
    result = detector.detect(text)
    assert result.score == pytest.approx(score, abs=0.002)
    assert result.label == label


def test_hashes_are_equal_on_all_platforms() -> None:
    """Buckets come from CRC-32 and integer arithmetic, never from `hash()`, which differs in each process."""
    document = features.describe("It is a truth; it is.")
    window = features.describe_window(document, 0, len(document))
    assert window.part_buckets[:4].tolist() == [4373, 9766, 11881, 13072]
    assert window.pattern_buckets[:4].tolist() == [5695, 6478, 13298, 23551]
    assert float(window.part_values @ window.part_values) == pytest.approx(1)


def test_the_model_is_small(model: TrainedModel) -> None:
    """The package data is at most 2 MB; the weights are mapped, not read."""
    assert sum(path.stat().st_size for path in detection.MODEL_FOLDER.iterdir()) <= MAX_PACKAGE_BYTES
    assert not model.part_weights.flags.owndata
    assert not model.part_weights.flags.writeable


def test_opening_loads_nothing() -> None:
    """The server's start does not wait for the model; the first text loads it."""
    code = (
        "import sys; from rookery.engines import detection; detector = detection.open(); "
        "assert not detector.is_loaded; assert 'numpy' not in sys.modules; detector.detect('x'); assert detector.is_loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_load_it_once() -> None:
    """Many threads may send the first text at the same time."""
    barrier = threading.Barrier(8)
    loads = list[int]()

    def load() -> Detector:
        loads.append(1)
        return Detector(TrainedModel.load(detection.MODEL_FOLDER))

    lazy = LazyDetector(load)
    results = list[DetectionResult]()

    def score() -> None:
        barrier.wait()
        results.append(lazy.detect(LINCOLN))

    threads = [threading.Thread(target=score) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1
    assert len(set(results)) == 1


def test_weights_of_another_size_are_rejected(tmp_path: Path) -> None:
    """Weights of another version of the features raise an error and give no wrong score."""
    for path in detection.MODEL_FOLDER.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    np.save(tmp_path / WEIGHTS_FILE, np.zeros(5, dtype=np.int8))
    with pytest.raises(ValueError, match="8-bit integers are needed"):
        detection.open(tmp_path).detect(LINCOLN)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("A short note.", "too_short"),
        ("\x00\x01\x02\x03" * 400, "binary"),
        ("def main():\n    return [x for x in range(10)]\n" * 20, "code"),
        ("> " + LINCOLN.replace("\n", "\n> "), "quoted"),
        ("Wir saßen auf der Mauer und zählten die Möwen, bis es dunkel wurde und das Schiff nicht mehr kam. " * 6, "language"),
        (" ".join(LINCOLN.split()[:55]), "too_short"),
    ],
)
def test_a_text_without_a_score_has_a_reason(detector: LazyDetector, text: str, reason: str) -> None:
    """No score under 60 words; other languages, code, quotations and binary data are `uncertain`, with the reason."""
    result = detector.detect(text)
    assert (result.score, result.label, result.reason, result.confidence) == (None, "uncertain", reason, 0.0)
    assert result.expected_false_positive_rate is None
    assert (result.segments, result.signals) == ((), ())


def test_a_short_text_is_never_called_ai(detector: LazyDetector) -> None:
    """Under 120 words the label is never above `uncertain`, whatever the score."""
    words = MODEL_ESSAY.split()
    for length in range(MIN_SCORED_WORDS, MIN_VERDICT_WORDS - 2, 7):
        result = detector.detect(" ".join(words[:length]))
        assert result.label == "uncertain"
        assert result.reason == "short"
        assert result.score is not None
        assert result.band in {"60-80", "80-120"}


def test_confidence_falls_with_the_length(detector: LazyDetector) -> None:
    """Fewer words, less confidence."""
    words = (LINCOLN + " " + AUSTEN).split()
    confidences = [detector.detect(" ".join(words[:length])).confidence for length in (70, 150, 400)]
    assert confidences == sorted(confidences)
    assert len(set(confidences)) == 3


def test_an_unknown_kind_of_text_is_uncertain(detector: LazyDetector) -> None:
    """A text unlike all of the training gets no verdict, and a lower confidence."""
    strange = "Yes! No! We? You? Oh! " * 40
    result = detector.detect(strange)
    assert (result.label, result.reason) == ("uncertain", "far_from_training")
    assert result.score is not None
    assert result.confidence < detector.detect(LINCOLN).confidence


def test_markup_does_not_change_the_score(detector: LazyDetector) -> None:
    """Markdown, HTML and typographic quotes come from programs, not from authors."""
    plain = detector.detect(AUSTEN)
    for changed in (
        AUSTEN.replace("truth", "**truth**").replace("Bennet", "*Bennet*"),
        "".join(f"<p>{line}</p>" for line in AUSTEN.split("\n\n")),
        AUSTEN.replace('"', "\u201d"),
        AUSTEN.replace(" ", "\u00a0", 30),
    ):
        result = detector.detect(changed)
        assert result.score == pytest.approx(plain.score, abs=1e-6)
        assert result.words == plain.words


def test_segments_cover_the_prose_in_order(detector: LazyDetector) -> None:
    """Windows for highlighting are in the text as it was given, in order, and miss no word."""
    source = f"# Title\n\n{LINCOLN}\n\n```\ncode\n```\n**{AUSTEN}**\n"
    result = detector.detect(source)
    assert len(result.segments) >= 5
    assert all(one.end <= other.start for one, other in zip(result.segments, result.segments[1:], strict=False))
    segments_text = " ".join(source[segment.start : segment.end] for segment in result.segments)
    assert count_words(segments_text.replace("code", "")) == result.words
    assert all(0 <= segment.score <= 1 for segment in result.segments)


def test_signals_speak_for_both_sides_in_words_of_the_text(detector: LazyDetector) -> None:
    """The signals that spoke for and against, strongest first."""
    result = detector.detect(MODEL_ESSAY)
    assert {signal.direction for signal in result.signals} == {"ai", "human"}
    strengths = [abs(signal.value) for signal in result.signals]
    assert strengths == sorted(strengths, reverse=True)
    text = " ".join(MODEL_ESSAY.lower().split())
    assert all(signal.name.strip('"').lower() in text for signal in result.signals)


def test_a_text_with_parts_of_both_kinds_is_mixed(detector: LazyDetector) -> None:
    """A model's essay after human prose makes the text `mixed`, and its segments have the higher scores."""
    result = detector.detect(f"{AUSTEN}\n\n{MODEL_ESSAY}")
    assert result.label == "mixed"
    middle = len(AUSTEN)
    human = [segment.score for segment in result.segments if segment.end <= middle]
    ai = [segment.score for segment in result.segments if segment.start >= middle]
    assert max(human) < min(ai)


def test_many_texts_have_the_results_of_single_ones(detector: LazyDetector) -> None:
    """A batch gives the same results in the same order."""
    texts = [LINCOLN, "", MODEL_ESSAY, AUSTEN]
    assert detector.detect_many(texts) == [detector.detect(text) for text in texts]


def test_a_higher_score_has_fewer_false_positives(model: TrainedModel) -> None:
    """A verdict carries the false-positive rate of its score, which falls as the score rises."""
    for calibration in model.bands.values():
        scores = np.linspace(calibration.scores[0] - 1, calibration.scores[-1] + 1, 50).tolist()
        rates = [calibration.estimate_false_positives(score) for score in scores]
        assert rates == sorted(rates, reverse=True)
        probabilities = [calibration.to_probability(score) for score in scores]
        assert probabilities == sorted(probabilities)
        assert calibration.human < calibration.suspect < calibration.ai
        assert calibration.estimate_false_positives(calibration.ai) <= 0.011


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400))
def test_any_text_is_accepted(text: str) -> None:
    """Nothing raises for any text, also not for lone surrogates and unassigned characters."""
    shipped = Detector(TrainedModel.load(detection.MODEL_FOLDER))
    for source in (text, f"{LINCOLN} {text} {LINCOLN}", text * 50, f"{LINCOLN} \ud800{text}"):
        check_rules(shipped.detect(source))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=40, max_size=300))
def test_results_keep_the_rules(words: list[str]) -> None:
    """The rules of labels and scores hold for any English words."""
    shipped = Detector(TrainedModel.load(detection.MODEL_FOLDER))
    check_rules(shipped.detect(" ".join(words)))


def check_rules(result: DetectionResult) -> None:
    """Assert what holds for each result."""
    assert result.band == find_band(result.words)
    assert 0 <= result.confidence <= 1
    if result.score is None:
        assert (result.label, result.segments) == ("uncertain", ())
        assert result.reason is not None
        return
    assert 0 <= result.score <= 1
    assert result.words >= MIN_SCORED_WORDS
    assert result.expected_false_positive_rate is not None
    assert 0 < result.expected_false_positive_rate <= 1
    assert (result.reason is not None) == (result.label == "uncertain")
    if result.words < MIN_VERDICT_WORDS:
        assert result.label in {"human", "uncertain"}
    if result.label == "ai":
        assert result.expected_false_positive_rate <= 0.011


def test_a_word_is_hashed_once(detector: LazyDetector) -> None:
    """At least 500 texts a second. The features of a word are computed once and cached, which is most of the work."""
    features.describe_piece.cache_clear()
    detector.detect(MODEL_ESSAY)
    misses = features.describe_piece.cache_info().misses
    detector.detect_many([MODEL_ESSAY] * 5)
    information = features.describe_piece.cache_info()
    assert information.misses == misses == len(set(MODEL_ESSAY.split()))
    assert information.maxsize is not None
    assert information.maxsize <= 20_000


def test_a_text_without_spaces_is_read_to_a_limit(detector: LazyDetector) -> None:
    """A long line without spaces takes no more memory or time than a word."""
    result = detector.detect(f"{LINCOLN} {'a-b' * 400}")
    assert result.score == pytest.approx(detector.detect(f"{LINCOLN} {'a-b' * 100}").score)


@pytest.mark.parametrize(("length", "target", "most"), [(1, 70, None), (70, 70, None), (500, 70, 3), (16_000, 150, None), (36, 70, 200)])
def test_parts_are_even_and_cover_everything(length: int, target: int, most: int | None) -> None:
    """Windows cover the text without gaps or overlaps, and differ in length by at most one."""
    parts = split_evenly(length, target, most)
    assert [first for first, _ in parts] == [0, *[last for _, last in parts[:-1]]]
    assert parts[-1][1] == length
    lengths = [last - first for first, last in parts]
    assert max(lengths) - min(lengths) <= 1
    assert most is None or len(parts) <= most
