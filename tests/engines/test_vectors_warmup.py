"""A large workspace without its IVF file: no call waits for it, and results are correct until it exists."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rookery.engines.vectors import ivf_build
from rookery.engines.vectors.search import IndexLimits
from rookery.memory.visibility import build_vector_filter
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.engines.conftest import EAST, NORTH, find_ids, make_embedded, make_filter
from tests.engines.ivf import OpenIndex, build_ivf_file

LIMITS = IndexLimits(max_exact_floats=30 * 4, max_warmup_s=0.1, build_poll_s=0.01)
IDS = [f"m{number:02}" for number in range(40)]


@pytest.fixture(autouse=True)
async def large(open_vectors: OpenIndex) -> None:
    """Create a workspace of 40 memories, which counts as large here, that no process has loaded."""
    await open_vectors().put([make_embedded(memory_id, EAST) for memory_id in IDS] + [make_embedded("small", NORTH, workspace_id=2)])


async def test_a_large_workspace_is_not_ready_before_its_ivf_file(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """No caller waits while a million vectors are loaded; the first search starts a build process."""
    index = open_vectors(LIMITS)
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert (index.loaded_rows, index.listed_rows) == (0, 0)
        assert await index.is_ready(2)
        assert await index.is_ready(3)

    await eventually(lambda: index.is_ready(1))
    assert (index.loaded_rows, index.listed_rows) == (40, 40)
    assert await find_ids(index, limit=100) == IDS


async def test_a_search_before_the_workspace_is_ready_is_correct(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A query finds every write that returned before it, even if it takes longer."""
    index = open_vectors(LIMITS)
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert await find_ids(index, limit=100) == IDS
        assert await index.is_ready(1)
        await index.put([make_embedded("new", EAST)])

    await eventually(lambda: index.listed_rows > 0)
    assert await find_ids(index, limit=100) == [*IDS, "new"]


async def test_an_existing_ivf_file_is_opened_by_the_first_query(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Semantic recall works immediately after a restart."""
    build_ivf_file(tmp_path)
    index = open_vectors(LIMITS)

    await eventually(lambda: index.is_ready(1))

    assert index.listed_rows == 40
    assert [hit.memory_id for hit in await index.search(EAST, where=build_vector_filter(make_filter(1)), limit=100)] == IDS


async def test_a_damaged_ivf_file_is_rebuilt_before_the_workspace_is_ready(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The IVF file is a cache: the result is the same as without it."""
    path = build_ivf_file(tmp_path)
    (path / "meta.json").write_bytes(b"")
    index = open_vectors(LIMITS)

    await eventually(lambda: index.is_ready(1))

    assert index.listed_rows == 40
    assert await find_ids(index, limit=100) == IDS


async def test_all_vectors_are_loaded_if_the_ivf_file_cannot_be_built(
    open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Search stays exact, but slower, without disk space or processes."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    index = open_vectors(LIMITS)

    await eventually(lambda: index.is_ready(1))

    assert (index.loaded_rows, index.listed_rows) == (40, 0)
    assert await find_ids(index, limit=100) == IDS


async def test_closing_the_index_ends_the_warm_up(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A server that stops does not wait for the IVF file."""
    index = open_vectors(LIMITS)
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)

        await asyncio.wait_for(index.close(), HANG_S)

    assert index.loaded_rows == 0


async def test_a_start_warms_up_large_workspaces(open_vectors: OpenIndex) -> None:
    """IVF files are built without a search."""
    index = open_vectors(LIMITS)

    await index.start()

    await eventually(lambda: index.listed_rows == 40)
    assert await index.is_ready(1)
