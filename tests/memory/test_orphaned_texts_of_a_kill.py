"""Texts that a server leaves in the full-text index when it is killed while it stores memories."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from rookery.doctor import examine
from rookery.kernel.config import Settings
from rookery.wiring import build_platform
from tests.conftest import eventually, lend_model
from tests.processes import Server, run_rookery, run_server

WRITERS = 8

pytestmark = [
    pytest.mark.embedded_store,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc"),
]


@contextmanager
def _locked_records(folder: Path) -> Generator[None]:
    """Let no other process commit a record. What a request writes beside its record is written."""
    with closing(sqlite3.connect(folder / "records.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def _count_texts(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "texts.db")) as connection:
        [count] = connection.execute("SELECT count(*) FROM document").fetchone()
        return int(count)


def _remember(server: Server, content: str) -> int | None:
    """Store a memory and return the status; None if the server ends before it answers."""
    body = {"type": "fact", "org": "crash", "content": content}
    with httpx2.Client(base_url=server.url, headers=dict(server.client.headers)) as client:
        try:
            return client.post("/v1/brain/remember", json=body, timeout=None).status_code
        except httpx2.TransportError:
            return None


async def _grade_indexes(folder: Path) -> list[str]:
    """Return the grades that `rookery doctor --deep` gives the indexes of a server that may run."""
    rookery = build_platform(Settings(data_dir=folder))
    async with rookery.open_for_command():
        return [finding.grade for finding in await examine(rookery, deep=True) if finding.about == "indexes"]


async def test_after_kill_9_under_writes_a_restart_leaves_no_text_without_a_memory(tmp_path: Path, model_folder: Path) -> None:
    """Before, texts of records that were not committed stayed for ever. Until the restart, the doctor counts them and says what to do."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    with run_server(folder) as server, ThreadPoolExecutor(WRITERS) as threads:
        stored = [_remember(server, f"The stored heron {number}.") for number in range(3)]
        await eventually(lambda: _count_texts(folder) == len(stored))
        with _locked_records(folder):
            writes = [threads.submit(_remember, server, f"The secret heron {number}.") for number in range(WRITERS)]
            await eventually(lambda: _count_texts(folder) == len(stored) + WRITERS)
            server.kill()
        killed = [write.result() for write in writes]

    report = run_rookery("doctor", "--deep", data_dir=folder)
    with run_server(folder) as server:
        await eventually(lambda: _count_texts(folder) == len(stored))
        hits = server.client.get("/v1/brain/search?q=heron").json()["hits"]
        grades = await _grade_indexes(folder)

    assert (stored, killed) == ([201] * 3, [None] * WRITERS)
    assert f"the full-text index contains {WRITERS} texts without a memory, which a killed process left" in report.stdout
    assert "rookery brain:forget --traces" in report.stdout
    assert report.returncode == 1
    assert sorted(hit["content"] for hit in hits) == [f"The stored heron {number}." for number in range(3)]
    assert grades == ["ok"]
