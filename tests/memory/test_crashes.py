"""Responses of a server that was killed and restarted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import lend_model
from tests.memory.crash_run import CrashRun

KILLS = 2

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc"),
]


async def test_after_kill_9_archived_superseded_and_deleted_memories_stay_hidden(tmp_path: Path, model_folder: Path) -> None:
    """Each hit is read from its record, so that old index entries are not returned after a crash."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    crash_run = CrashRun(seed=14)

    for number in range(KILLS):
        crash_run.run_round(folder, number)

    assert (crash_run.failures, crash_run.checks > 1_000) == ([], True)
