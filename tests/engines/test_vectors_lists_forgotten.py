"""What is forgotten, and what becomes of the lists that had it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.engines.conftest import EAST, NORTH, found, vectored
from tests.engines.lists import Open, list_now, open_in


async def test_what_was_forgotten_leaves_the_lists_too(opened: Open, tmp_path: Path) -> None:
    """Spec 3.4: deleted is removed from all stores; here within a day, also if nobody asks anything."""
    await opened().put([vectored(f"m{number}") for number in range(9)])
    path = list_now(tmp_path)
    os.utime(path, (0, 0))
    index = opened()
    await index.delete(1, ["m3"])

    await index.delete_retired()

    await eventually(lambda: not path.exists())
    assert [b"m3" in each.read_bytes() for each in (tmp_path / "vectors.lists").glob("*.lists")] == [False]
    assert await found(index) == ["m0", "m1", "m2", "m4", "m5", "m6", "m7", "m8"]


async def test_what_left_the_lists_is_like_nothing_any_more(opened: Open, tmp_path: Path) -> None:
    """Spec 3.4: deleted is removed from all stores; who asks by id for what was listed once must not find it either."""
    index = opened()
    await index.put([vectored("gone", EAST), vectored("kept", EAST), vectored("lost", EAST)])
    list_now(tmp_path)
    listed = opened()
    asked = ["gone", "kept", "lost"]
    assert await listed.compute_similarities(EAST, workspace_id=1, ids=asked) == dict.fromkeys(asked, 1.0)

    await listed.delete(1, ["gone"])
    await index.delete(1, ["lost"])

    assert await listed.compute_similarities(EAST, workspace_id=1, ids=asked) == {"kept": 1.0}
    assert await listed.compute_similarities(EAST, workspace_id=1, ids=["gone"]) == {}
    assert await opened().compute_similarities(EAST, workspace_id=1, ids=asked) == {"kept": 1.0}


async def test_whoever_missed_what_was_dropped_finds_out(opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word of a drop is kept for a while only; lists that are older must not show the memory for ever."""
    monkeypatch.setattr("rookery.engines.vectors.vector_file._MAX_TOMBSTONES", 2)
    index = opened()
    ids = [f"m{number}" for number in range(10)]
    await index.put([vectored(memory_id) for memory_id in ids])
    list_now(tmp_path)
    onlooker = opened()
    assert await found(onlooker) == ids

    for memory_id in ids[:6]:
        await index.delete(1, [memory_id])

    assert await found(onlooker) == await found(opened()) == ids[6:]


async def test_lists_of_a_workspace_of_which_nothing_is_left_are_deleted(opened: Open, tmp_path: Path) -> None:
    """Spec 3.4: what is deleted leaves all stores."""
    index = opened()
    await index.put([vectored("a"), vectored("b"), vectored("c", workspace_id=2)])
    ours, theirs = list_now(tmp_path), list_now(tmp_path, workspace_id=2)

    await index.delete(1, ["a"])
    assert ours.exists()
    await index.delete(1, ["b"])

    assert not ours.exists()
    assert theirs.exists()


async def test_lists_of_a_model_that_was_switched_from_are_deleted(tmp_path: Path) -> None:
    """D-54: once the vectors of the new model answer, those of the former one are cleared away."""
    former, now = open_in(tmp_path), open_in(tmp_path, model="small/2")
    await former.put([vectored("a", EAST)])
    path = list_now(tmp_path)
    await now.put([vectored("a", NORTH)])
    kept = list_now(tmp_path, model="small/2")
    assert await found(former) == await found(now) == ["a"]

    await now.activate()
    await now.delete_retired()

    assert not path.exists()
    assert kept.exists()
    await former.close()
    await now.close()
