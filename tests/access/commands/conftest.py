"""A command line with one workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.access.commands.command_line import CommandLine


@pytest.fixture
def cli(data_dir: Path) -> CommandLine:
    """A command line with one workspace, `nest`."""
    command_line = CommandLine(data_dir)
    command_line.run_object("workspace", "create", "nest")
    return command_line


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the output a terminal of 240 characters."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "240")
