"""A command line with one workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.access.commands.line import Line


@pytest.fixture
def line(data_dir: Path) -> Line:
    """A command line with one workspace, `nest`."""
    line = Line(data_dir)
    line.json("workspace", "create", "nest")
    return line


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what is printed take its output for a terminal of 240 characters."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "240")
