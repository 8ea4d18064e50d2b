"""The short form of the soak test: three processes on PostgreSQL and Valkey under load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S

pytestmark = [pytest.mark.external_service]


def test_nothing_is_lost_or_doubled_under_load_of_several_processes() -> None:
    """Every memory is indexed once, limits are exact, no task is claimed twice, and each webhook arrives once."""
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", "0.5", "--processes", "3", "--rate", "0.4"]
    soak = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=4 * HANG_S, check=False)

    assert soak.returncode == 0, soak.stdout + soak.stderr
    figures = json.loads(soak.stdout)
    assert figures["records"]["memories"] > 0
    assert figures["requests"]["task"] > 0
