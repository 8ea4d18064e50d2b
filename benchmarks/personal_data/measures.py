"""Compare found personal data with the labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.personal_data.sample import Labelled
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import find_matches

EVERYTHING = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures of one kind: labels, correct finds (kind and position), and wrong finds."""

    labels: int
    found: int
    wrong: int

    @property
    def precision(self) -> float:
        """The share of finds that are right."""
        return self.found / (self.found + self.wrong) if self.found + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The share of labels that are found."""
        return self.found / self.labels if self.labels else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Figures by kind, and what went wrong, in words."""

    figures: dict[str, Figures]
    mistakes: Sequence[str]


def measure(lines: Iterable[Labelled]) -> Report:
    """Find in *lines*; a find counts if it is exactly what is labelled."""
    finders = load_finders()
    labels, found, wrong, mistakes = Counter[str](), Counter[str](), Counter[str](), list[str]()
    for line in lines:
        finds = {(match.kind.value, match.start, match.stop) for match in find_matches(line.text, finders)}
        for kind, start, stop in sorted(line.labels | finds):
            is_label, is_find = (kind, start, stop) in line.labels, (kind, start, stop) in finds
            labels[kind] += is_label
            found[kind] += is_label and is_find
            wrong[kind] += is_find and not is_label
            if is_label != is_find:
                mistakes.append(f"{line.number} {'missed' if is_label else 'wrong'} {kind}: {line.text[start:stop]!r} in {line.text!r}")
    figures = {kind: Figures(labels=labels[kind], found=found[kind], wrong=wrong[kind]) for kind in sorted(labels)}
    figures[EVERYTHING] = Figures(labels=labels.total(), found=found.total(), wrong=wrong.total())
    return Report(figures=figures, mistakes=mistakes)
