"""The page of figures is made of the results beside it, and its commands exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from benchmarks.table import README, format_json, load_results, render_figure
from tests.deadlines import HANG_S
from tests.documentation import ROOT

MAX_LINES = 120
MAX_CELL = 220

RESULTS = load_results()


def test_the_page_is_made_of_the_results() -> None:
    """A page that was edited by hand, or is older than a result, fails."""
    command = [sys.executable, "-m", "benchmarks.table", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=HANG_S)

    assert check.returncode == 0, check.stderr


def test_the_page_is_one_short_table() -> None:
    """A reader sees every figure at once; more values are in the results."""
    lines = README.read_text(encoding="utf-8").splitlines()
    cells = [cell.strip() for line in lines if line.startswith("| ") for cell in line.strip("|").split(" | ")]

    assert len(lines) <= MAX_LINES
    assert sum(line.startswith("|---") for line in lines) == 1
    assert [cell for cell in cells if len(cell) > MAX_CELL] == []


@pytest.mark.parametrize("name", list(RESULTS))
def test_every_command_is_that_of_its_file_and_exists(name: str) -> None:
    """A module that was renamed or removed leaves no figure that nobody can measure again."""
    commands = {entry["command"] for part in ("rows", "runs") for entry in RESULTS[name][part]} - {None}

    assert commands != set()
    for command in commands:
        words = shlex.split(command)
        if words[0] == "make":
            targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            tests = [Path(word) for argument in words[2:] for word in argument.split() if word.endswith(".py")]
            assert words[1] in targets
            assert [path for path in tests if not (ROOT / path).exists()] == []
            assert name in {words[1], *(path.stem for path in tests)}
        else:
            module = words[words.index("-m") + 1]
            assert importlib.util.find_spec(module) is not None, command
            assert module == ("benchmarks" if name == "__main__" else f"benchmarks.{name}")


@pytest.mark.parametrize("name", list(RESULTS))
def test_every_run_has_a_date_and_a_machine(name: str) -> None:
    """A figure can be compared only if it is clear when and where it was measured, and in which unit."""
    assert RESULTS[name]["unit"]
    for run in RESULTS[name]["runs"]:
        assert date.fromisoformat(run["date"])
        assert run["machine"]
        assert run["values"]
        assert re.fullmatch(r"[0-9a-f]{8}", run["commit"] or "0" * 8)


def test_a_row_shows_the_newest_run_that_has_its_values() -> None:
    """A run of another command, or without the value, changes nothing; numbers keep their digits."""
    row = {"command": "python -m it", "figure": "{a~1b/ms} ms, {runs| to } of {count}"}
    runs = [
        {"command": "python -m it", "values": {"a/b": {"ms": "1.50"}, "runs": [1, 2], "count": 10_000}},
        {"command": "python -m it", "values": {"a/b": {"ms": "2.50"}, "runs": [1, 2], "count": 12_000}},
        {"command": "python -m it --more", "values": {"a/b": {"ms": 3}, "runs": [1], "count": 1}},
        {"command": "python -m it", "values": {"count": 1}},
    ]

    assert render_figure(row, runs) == "2.50 ms, 1 to 2 of 12,000"
    with pytest.raises(LookupError, match="no run of python -m it"):
        render_figure(row, runs[2:])


@pytest.mark.parametrize("name", list(RESULTS))
def test_results_are_written_as_they_are_stored(name: str) -> None:
    """A recorded run changes no line of the runs before it."""
    assert (ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8") == format_json(RESULTS[name]) + "\n"
