"""The answers of a server that was killed, after its restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import lend_model
from tests.memory.crash_run import CrashRun

KILLS = 2

pytestmark = [
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc"),
    pytest.mark.timeout(400),
]


async def test_after_kill_9_nothing_shows_what_was_archived_replaced_or_deleted(tmp_path: Path, model_folder: Path) -> None:
    """Issue 14: search found text of memories that were gone, after crashes; D-46: every hit is read from its record."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    crashing = CrashRun(seed=14)

    for number in range(KILLS):
        crashing.run_round(folder, number)

    assert (crashing.failures, crashing.checks > 1_000) == ([], True)
