"""A large workspace whose lists are not there: nobody waits until they are, and who asks all the same is answered truly."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rookery.engines.vectors import ivf_build
from tests.conftest import eventually
from tests.engines.conftest import EAST, NORTH, everywhere, found, vectored
from tests.engines.lists import Open, list_now

IDS = [f"m{number:02}" for number in range(40)]


@pytest.fixture(autouse=True)
async def large(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a workspace of 40 memories, which is large here, and nobody who has read it."""
    for module in ("embedded", "workspace_index"):
        monkeypatch.setattr(f"rookery.engines.vectors.{module}.MAX_EXACT_FLOATS", 30 * 4)
    monkeypatch.setattr("rookery.engines.vectors.warmup.MAX_WAIT_S", 0.1)
    monkeypatch.setattr("rookery.engines.vectors.embedded._BUILD_POLL_INTERVAL_S", 0.01)
    await opened().put([vectored(memory_id, EAST) for memory_id in IDS] + [vectored("small", NORTH, workspace_id=2)])


async def test_a_large_workspace_is_not_ready_before_its_lists_are(opened: Open, tmp_path: Path) -> None:
    """Issue 5: nobody waits until a million vectors are read; lists are built by a process of its own, which the first question begins."""
    index = opened()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert (index.loaded_rows, index.listed_rows) == (0, 0)
        assert await index.is_ready(2)
        assert await index.is_ready(3)

    await eventually(lambda: index.is_ready(1), within_s=30)
    assert (index.loaded_rows, index.listed_rows) == (40, 40)
    assert await found(index, limit=100) == IDS


async def test_who_asks_before_it_is_ready_is_answered_truly(opened: Open, tmp_path: Path) -> None:
    """The port: a query sees every write that returned before it, however long that takes."""
    index = opened()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)
        assert await found(index, limit=100) == IDS
        assert await index.is_ready(1)
        await index.put([vectored("new", EAST)])

    await eventually(lambda: index.listed_rows > 0)
    assert await found(index, limit=100) == [*IDS, "new"]


async def test_lists_that_are_there_are_opened_while_the_first_question_waits(opened: Open, tmp_path: Path) -> None:
    """After a restart recall is by meaning at once."""
    list_now(tmp_path)
    index = opened()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert index.listed_rows == 40
    assert [near.memory_id for near in await index.search(EAST, access_filter=everywhere(1), limit=100)] == IDS


async def test_lists_that_are_damaged_are_built_anew_before_it_is_ready(opened: Open, tmp_path: Path) -> None:
    """As if they were not there: it is a cache."""
    path = list_now(tmp_path)
    path.write_bytes(b"")
    index = opened()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert index.listed_rows == 40
    assert await found(index, limit=100) == IDS


async def test_where_lists_cannot_be_built_all_is_read(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No room on the disk, no more processes: search goes on, exact and slower."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    index = opened()

    await eventually(lambda: index.is_ready(1), within_s=30)

    assert (index.loaded_rows, index.listed_rows) == (40, 0)
    assert await found(index, limit=100) == IDS


async def test_what_is_got_ready_ends_with_the_index(opened: Open, tmp_path: Path) -> None:
    """A server that is told to stop does not wait for lists."""
    index = opened()
    (tmp_path / "vectors.lists").mkdir()
    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        assert not await index.is_ready(1)

        await asyncio.wait_for(index.close(), 30)

    assert index.loaded_rows == 0


async def test_a_start_gets_large_workspaces_ready(opened: Open) -> None:
    """Nobody need ask for lists to be built."""
    index = opened()

    await index.start()

    await eventually(lambda: index.listed_rows == 40)
    assert await index.is_ready(1)
