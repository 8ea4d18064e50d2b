"""A command line on an empty data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.commands.command_line import CommandLine


@pytest.fixture
def cli(data_dir: Path) -> CommandLine:
    """A command line on an empty data folder."""
    return CommandLine(data_dir)
