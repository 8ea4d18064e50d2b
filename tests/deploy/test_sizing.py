"""The sizing guide: its tables are generated, and its arithmetic holds."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks import sizing
from benchmarks.sizing import AGENTS, COSTS, MEMORIES, Choices, size_load, size_storage
from tests.deadlines import HANG_S
from tests.deploy.files import ROOT

GUIDE = (ROOT / "docs" / "how-to" / "sizing.md").read_text(encoding="utf-8")
FIGURES = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "table",
    [sizing.render_costs(), sizing.render_storage(MEMORIES, Choices()), sizing.render_load(AGENTS, Choices())],
    ids=["costs", "memories", "agents"],
)
def test_the_tables_of_the_guide_are_those_of_the_command(table: str) -> None:
    """A sizing guide with the arithmetic; a table that was edited by hand, or is older than a measurement, fails."""
    assert table in GUIDE


def test_the_command_takes_other_choices() -> None:
    """A reader computes their own installation."""
    command = [sys.executable, "-m", "benchmarks.sizing", "--memories", "5000000", "--agents", "50", "--recalls-per-hour", "600"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=HANG_S)

    assert sizing.render_load([50], Choices(recalls_per_hour=600)) in run.stdout
    assert "| Memories | 5,000,000 |" in run.stdout


def test_every_cost_has_a_measurement_that_can_be_repeated() -> None:
    """Each assumption is from a measurement, whose command exists and is published with its figure."""
    for cost in COSTS.values():
        module = re.fullmatch(r"python -m ([\w.]+).*", cost.command)
        assert module is not None
        assert importlib.util.find_spec(module[1]) is not None
        assert f"`{cost.command}`" in FIGURES
        assert cost.value > 0


def test_storage_is_bytes_times_memories() -> None:
    """The arithmetic to one billion memories, done here by hand."""
    storage = size_storage(10**9, Choices(copies=3))
    bytes_each = sum(COSTS[name].value for name in ("records", "vectors", "hnsw", "texts"))

    assert storage.disk_gb_all_copies == pytest.approx(3 * bytes_each)
    assert storage.hnsw_gb == pytest.approx(COSTS["hnsw"].value)
    assert storage.installations == math.ceil(COSTS["hnsw"].value / Choices().node_memory_gb)
    assert storage.shards >= storage.texts_gb / Choices().shard_gb
    assert storage.embedding_core_hours == pytest.approx(COSTS["remember"].value * 10**6 / 3600)


def test_load_is_requests_times_cpu() -> None:
    """Ten thousand agents; twice the recalls need twice the cores, and a fuller machine fewer."""
    load = size_load(10_000, Choices(recalls_per_hour=36, memories_per_hour=0, utilisation=0.5))

    assert load.recalls_per_s == 100
    assert load.server_cores == pytest.approx(100 * COSTS["recall"].value / 1000 / 0.5)
    assert load.indexing_cores == 0
    assert load.processes == math.ceil(load.server_cores) + 1, "one worker at least"
    assert load.connections == 21 * load.processes
    choices = Choices()
    assert size_load(20, choices).server_cores == pytest.approx(2 * size_load(10, choices).server_cores)
    assert size_load(10, replace(choices, utilisation=0.9)).server_cores < size_load(10, choices).server_cores
