"""The labelled lines of `sample.txt` and `unseen.txt`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SAMPLE, UNSEEN = (Path(__file__).with_name(f"{name}.txt") for name in ("sample", "unseen"))

_LABEL = re.compile(r"⟦([a-z-]+):([^⟧]*)⟧")
_COMMENT = "¦"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A line without its labels, and the expected finds: kind, start, stop."""

    number: int
    text: str
    labels: frozenset[tuple[str, int, int]]


def read(file: Path) -> list[Labelled]:
    """Return the lines without comments, numbered from 1."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [_parse_line(number, line.replace(_COMMENT, "")) for number, line in enumerate(lines, 1)]


def _parse_line(number: int, line: str) -> Labelled:
    pieces, labels, length, place = list[str](), set[tuple[str, int, int]](), 0, 0
    for match in _LABEL.finditer(line):
        before = line[place : match.start()]
        start = length + len(before)
        length = start + len(match[2])
        labels.add((match[1], start, length))
        pieces += [before, match[2]]
        place = match.end()
    return Labelled(number=number, text="".join([*pieces, line[place:]]), labels=frozenset(labels))
