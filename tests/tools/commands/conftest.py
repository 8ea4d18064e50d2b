"""A command line with nothing set up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.commands.line import Line


@pytest.fixture
def line(data_dir: Path) -> Line:
    """A command line on an empty data folder."""
    return Line(data_dir)
