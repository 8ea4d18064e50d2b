"""The model card as Markdown, and the tables of an evaluation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rookery.scoring.detection import DetectionResult, find_band
from training.ai_detection.calibration import BANDS, choose_reference
from training.ai_detection.evaluation import (
    LONE_SOURCE,
    MIN_SCORED_WORDS,
    LeftOut,
    measure_auroc,
    measure_calibration_error,
    measure_tpr,
)
from training.ai_detection.fitting import Dataset, FloatArray, Mask, Recipe

TEMPLATE = Path(__file__).with_name("card.md")

_MIN_TEXTS = 20
_VERDICT_WORDS = 120

_LICENCES = {
    "csabstruct": "Apache-2.0",
    "evobench": "MIT, by its README",
    "fdg": "MIT (experiment data of fast-detect-gpt)",
    "liang": "MIT",
    "outfox": "Apache-2.0 (validation part)",
    "rex": "MIT",
    "zippy": "MIT (samples)",
}


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that the card reports."""

    data: Dataset
    by_source: LeftOut
    by_register: LeftOut
    by_document: LeftOut
    families: list[tuple[str, float, float, int]]
    settings: dict[str, object]
    recipe: Recipe
    digest: str


def write(results: Results) -> str:
    """Return the model card."""
    data = results.data
    reference = choose_reference(data, results.by_source.model, results.by_document.model)
    thresholds = {name: _thresholds(results, name) for name in ("ai", "suspect")}
    sections = {
        "digest": results.digest[:16],
        "windows": f"{len(data):,}",
        "recipe": str(results.recipe),
        "data": _data_table(data),
        "by_source": _ranking_table(data, results.by_source),
        "by_register": _ranking_table(data, results.by_register, by_source=False),
        "by_document": _ranking_table(data, results.by_document),
        "carried": _carried_table(data, results.by_source.model, thresholds),
        "carried_register": _carried_table(data, results.by_register.model, thresholds, by_source=False),
        "carried_document": _carried_table(data, results.by_document.model, thresholds),
        "bands": _band_table(results, reference, thresholds),
        "generators": _generator_table(data, results.by_document.model, thresholds["ai"]),
        "families": _table(
            ("Left out", "AI windows", "AUROC", "TPR at 1 %"),
            ((name, str(count), f"{auroc:.3f}", f"{tpr:.2f}") for name, auroc, tpr, count in results.families),
        ),
        "registers_human": _lone_table(data, results, thresholds),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, section in sections.items():
        text = text.replace(f"<!-- {name} -->", section)
    return text


def write_evaluation(rows: Sequence[dict[str, object]], scored: Sequence[DetectionResult]) -> str:
    """Return tables of labels, ranking and false positives for texts and their results."""
    groups = defaultdict[str, list[tuple[bool, DetectionResult]]](list)
    for row, result in zip(rows, scored, strict=True):
        is_ai = bool(row["label"])
        groups["all"].append((is_ai, result))
        groups[f"domain {row.get('source', '')}/{row.get('domain', '')}"].append((is_ai, result))
        groups[f"band {find_band(result.words)}"].append((is_ai, result))
        if is_ai:
            groups[f"generator {row.get('generator', '')}"].append((is_ai, result))
    names = sorted(groups, key=lambda name: (name != "all", name))
    return _table(
        ("Texts", "Class", "Number", "No score", "`human`", "`uncertain`", "`mixed`", "`ai`", "AUROC", "TPR 5 %", "TPR 1 %", "ECE"),
        (line for name in names for line in _evaluate_group(name, groups[name])),
    )


def _evaluate_group(name: str, pairs: list[tuple[bool, DetectionResult]]) -> Iterator[tuple[str, ...]]:
    scores = {
        is_ai: np.array([result.score for label, result in pairs if label == is_ai and result.score is not None]) for is_ai in (False, True)
    }
    ranking: tuple[str, ...] = ("–", "–", "–", "–")
    if min(map(len, scores.values())) >= _MIN_TEXTS:
        together = np.concatenate([scores[False], scores[True]])
        is_ai_mask = np.arange(len(together)) >= len(scores[False])
        ranking = (
            f"{measure_auroc(scores[False], scores[True]):.3f}",
            f"{measure_tpr(scores[False], scores[True], 0.05):.2f}",
            f"{measure_tpr(scores[False], scores[True], 0.01):.2f}",
            f"{measure_calibration_error(together, is_ai_mask):.2f}",
        )
    for is_ai, title in ((False, "human"), (True, "AI")):
        results = [result for label, result in pairs if label == is_ai]
        if results:
            with_score = [result for result in results if result.score is not None]
            labels = Counter(result.label for result in with_score)
            shares = tuple(f"{100 * labels[label] / max(1, len(with_score)):.1f} %" for label in ("human", "uncertain", "mixed", "ai"))
            yield name, title, str(len(results)), str(len(results) - len(with_score)), *shares, *ranking


def _table(heads: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rule = "|".join("---" for _ in heads)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)])


def _thresholds(results: Results, name: str) -> FloatArray:
    bands = results.settings["bands"]
    return np.array([bands[band][name] for band in BANDS])[results.data.band]  # type: ignore[index]


def _data_table(data: Dataset) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for source, register in sorted({(sample.source, sample.register) for sample in data.samples}):
            rows = (data.source == source) & (data.register == register)
            generators = len(np.unique(data.generator[rows & data.is_ai]))
            yield source, register, _LICENCES[source], str((rows & ~data.is_ai).sum()), str((rows & data.is_ai).sum()), str(generators)

    return _table(("Source", "Register", "Licence", "Human windows", "AI windows", "Generators"), lines())


def _cells(data: Dataset, scores: FloatArray, *, by_source: bool = True) -> Iterator[tuple[str, str, Mask]]:
    """Yield source, register and windows of each test."""
    for register, source in sorted({(sample.register, sample.source if by_source else "all") for sample in data.samples}):
        rows = (data.register == register) & ~np.isnan(scores) & (data.words >= MIN_SCORED_WORDS)
        yield source, register, rows & ((data.source == source) | (not by_source))


def _ranking_table(data: Dataset, scores: LeftOut, *, by_source: bool = True) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for source, register, rows in _cells(data, scores.model, by_source=by_source):
            human, ai = rows & ~data.is_ai, rows & data.is_ai & ~data.is_base
            kind = ""
            if ai.sum() < _MIN_TEXTS:
                ai, kind = rows & data.is_ai, " (base models)"
            if human.sum() >= _MIN_TEXTS and ai.sum() >= _MIN_TEXTS:
                figures = [_rank(values[human], values[ai]) for values in (scores.model, scores.style, scores.compression)]
                yield source, register + kind, str(human.sum()), str(ai.sum()), *figures

    return _table(("Source", "Register", "Human", "AI", "Model", "Stylometry alone", "Compression"), lines())


def _rank(human: FloatArray, ai: FloatArray) -> str:
    return f"{measure_auroc(human, ai):.3f} / {measure_tpr(human, ai, 0.05):.2f} / {measure_tpr(human, ai, 0.01):.2f}"


def _carried_table(data: Dataset, scores: FloatArray, thresholds: dict[str, FloatArray], *, by_source: bool = True) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        for source, register, rows in _cells(data, scores, by_source=by_source):
            long = rows & (data.words >= _VERDICT_WORDS)
            human, human_long = rows & ~data.is_ai & (data.words >= 80), long & ~data.is_ai
            ai = long & data.is_ai & ~data.is_base
            if human.sum() >= _MIN_TEXTS or ai.sum() >= _MIN_TEXTS:
                yield (
                    source,
                    register,
                    _share(scores > thresholds["suspect"], human),
                    _share(scores > thresholds["ai"], human),
                    _share(scores > thresholds["ai"], human_long),
                    _share(scores > thresholds["suspect"], ai),
                    _share(scores > thresholds["ai"], ai),
                )

    heads = ("Source", "Register", "Human ≥ 80 words, 5 %", "1 %", "Human ≥ 120 words, 1 %", "AI ≥ 120 words, 5 %", "1 %")
    return _table(heads, lines())


def _share(is_above: Mask, rows: Mask) -> str:
    if rows.sum() < _MIN_TEXTS:
        return "–"
    return f"{100 * is_above[rows].mean():.1f} %"


def _lone_table(data: Dataset, results: Results, thresholds: dict[str, FloatArray]) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        rows = (data.source == LONE_SOURCE) & (data.words >= 80)
        models = {"no published abstracts in the training": results.by_source, "other abstracts in it": results.by_document}
        for name, scores in ((name, left_out.model) for name, left_out in models.items()):
            yield name, _share(scores > thresholds["suspect"], rows), _share(scores > thresholds["ai"], rows)

    return _table(("Model", "Flagged at 5 %", "Flagged at 1 %"), lines())


def _band_table(results: Results, reference: FloatArray, thresholds: dict[str, FloatArray]) -> str:
    data = results.data
    bands = results.settings["bands"]

    def lines() -> Iterator[tuple[str, ...]]:
        for number, band in enumerate(BANDS):
            rows = (data.band == number) & (data.words >= MIN_SCORED_WORDS) & ~np.isnan(reference)
            human, ai = rows & ~data.is_ai, rows & data.is_ai & ~data.is_base
            both = human | ai
            logits = bands[band]["slope"] * reference[both] + bands[band]["intercept"]  # type: ignore[index]
            error = measure_calibration_error(1 / (1 + np.exp(-logits)), data.is_ai[both])
            document = results.by_document.model
            yield (
                band,
                str(human.sum()),
                str(ai.sum()),
                _rank(reference[human], reference[ai]),
                _rank(document[human], document[ai]),
                f"{error:.3f}",
                _share(reference > thresholds["ai"], human),
                _share(document > thresholds["ai"], ai),
            )

    heads = ("Words", "Human", "AI", "Source left out", "Documents left out", "Calibration error", "Human above 1 %", "AI above 1 %")
    return _table(heads, lines())


def _generator_table(data: Dataset, scores: FloatArray, threshold: FloatArray) -> str:
    def lines() -> Iterator[tuple[str, ...]]:
        long = (data.words >= _VERDICT_WORDS) & ~np.isnan(scores)
        counts = Counter(data.generator[long & data.is_ai].tolist())
        key: Callable[[str], tuple[bool, str]] = lambda name: (bool(data.is_base[data.generator == name].all()), name)  # noqa: E731
        for generator in sorted((name for name, count in counts.items() if count >= _MIN_TEXTS), key=key):
            rows = long & (data.generator == generator)
            human = long & ~data.is_ai & np.isin(data.register, np.unique(data.register[rows]))
            kind = "base or pruned" if data.is_base[rows].all() else "chat"
            yield generator, kind, str(rows.sum()), f"{measure_auroc(scores[human], scores[rows]):.3f}", _share(scores > threshold, rows)

    return _table(("Generator", "Kind", "Windows ≥ 120 words", "AUROC", "Above the 1 % threshold"), lines())
