"""A large workspace without its IVF file: no call waits for it, and answers are correct until it exists."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rookery.engines.vectors import ivf_build
from tests.conftest import eventually
from tests.engines.conftest import EAST, NORTH, everywhere, found, vectored
from tests.engines.ivf import OpenIndex, build_ivf_file

IDS = [f"m{number:02}" for number in range(40)]


@pytest.fixture(autouse=True)
async def large(open_vectors: OpenIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a workspace of 40 memories, which counts as large here, that no process has loaded."""
    for module in ("embedded", "workspace_index"):
        monkeypatch.setattr(f"rookery.engines.vectors.{module}.MAX_EXACT_FLOATS", 30 * 4)
    monkeypatch.setattr("rookery.engines.vectors.warmup.MAX_WAIT_S", 0.1)
    monkeypatch.setattr("rookery.engines.vectors.embedded._BUILD_POLL_INTERVAL_S", 0.01)
    await open_vectors().put([vectored(memory_id, EAST) for memory_id in IDS] + [vectored("small", NORTH, workspace_id=2)])


async def test_a_large_workspace_is_not_ready_before_its_lists_are(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Issue 5: no caller waits while a million vectors are loaded; the first search starts a build process."""
    index = open_vectors()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert (index.loaded_rows, index.listed_rows) == (0, 0)
        assert await index.is_ready(2)
        assert await index.is_ready(3)

    await eventually(lambda: index.is_ready(1), within_s=30)
    assert (index.loaded_rows, index.listed_rows) == (40, 40)
    assert await found(index, limit=100) == IDS


async def test_who_asks_before_it_is_ready_is_answered_truly(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The port: a query sees every write that returned before it, however long that takes."""
    index = open_vectors()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert await found(index, limit=100) == IDS
        assert await index.is_ready(1)
        await index.put([vectored("new", EAST)])

    await eventually(lambda: index.listed_rows > 0)
    assert await found(index, limit=100) == [*IDS, "new"]


async def test_lists_that_are_there_are_opened_while_the_first_question_waits(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """After a restart recall is by meaning at once."""
    build_ivf_file(tmp_path)
    index = open_vectors()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert index.listed_rows == 40
    assert [near.memory_id for near in await index.search(EAST, access_filter=everywhere(1), limit=100)] == IDS


async def test_lists_that_are_damaged_are_built_anew_before_it_is_ready(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The IVF file is a cache: the result is the same as without it."""
    path = build_ivf_file(tmp_path)
    path.write_bytes(b"")
    index = open_vectors()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert index.listed_rows == 40
    assert await found(index, limit=100) == IDS


async def test_where_lists_cannot_be_built_all_is_read(open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room on the disk, no more processes: search goes on, exact and slower."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    index = open_vectors()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert (index.loaded_rows, index.listed_rows) == (40, 0)
    assert await found(index, limit=100) == IDS


async def test_what_is_got_ready_ends_with_the_index(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A server that is told to stop does not wait for lists."""
    index = open_vectors()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)

        await asyncio.wait_for(index.close(), 30)

    assert index.loaded_rows == 0


async def test_a_start_gets_large_workspaces_ready(open_vectors: OpenIndex) -> None:
    """IVF files are built without a search."""
    index = open_vectors()

    await index.start()

    await eventually(lambda: index.listed_rows == 40)
    assert await index.is_ready(1)
