"""`python -m benchmarks.personal_data`: precision and recall of the marks, by kind; `--mistakes` names what went wrong."""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

from benchmarks.personal_data.measures import measure
from benchmarks.personal_data.sample import SAMPLE, UNSEEN, read

ROUNDS = 10


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mistakes", action="store_true")
    names_mistakes = bool(parser.parse_args().mistakes)
    for title, file in (("sample", SAMPLE), ("unseen", UNSEEN)):
        lines = read(file)
        measured = measure(lines)
        table = Table("kind", "labels", "precision", "recall", title=f"{title}, {len(lines)} lines")
        for kind, figures in measured.figures.items():
            table.add_row(kind, str(figures.labels), f"{figures.precision:.3f}", f"{figures.recall:.3f}")
        Console().print(table)
        if names_mistakes:
            print(*measured.mistakes, sep="\n")
    lines = read(SAMPLE)
    started_s = time.perf_counter()
    for _ in range(ROUNDS):
        measure(lines)
    print(f"{(time.perf_counter() - started_s) / ROUNDS / len(lines) * 1e6:.0f} µs a line")


if __name__ == "__main__":
    main()
