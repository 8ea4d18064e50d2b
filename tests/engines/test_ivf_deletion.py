"""Deleted vectors and the IVF files that contain them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conftest import eventually
from tests.engines.conftest import EAST, NORTH, found, vectored
from tests.engines.ivf import OpenIndex, build_ivf_file, open_index


async def test_what_was_forgotten_leaves_the_lists_too(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Spec 3.4: a deleted memory is removed from all stores; here within a day, also without any search."""
    await open_vectors().put([vectored(f"m{number}") for number in range(9)])
    path = build_ivf_file(tmp_path)
    os.utime(path, (0, 0))
    index = open_vectors()
    await index.delete(1, ["m3"])

    await index.delete_retired()

    await eventually(lambda: not path.exists())
    assert [b"m3" in each.read_bytes() for each in (tmp_path / "vectors.lists").glob("*.lists")] == [False]
    assert await found(index) == ["m0", "m1", "m2", "m4", "m5", "m6", "m7", "m8"]


async def test_what_left_the_lists_is_like_nothing_any_more(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Spec 3.4: a deleted memory is removed from all stores; a lookup by id must not find it in the IVF file either."""
    index = open_vectors()
    await index.put([vectored("gone", EAST), vectored("kept", EAST), vectored("lost", EAST)])
    build_ivf_file(tmp_path)
    listed = open_vectors()
    asked = ["gone", "kept", "lost"]
    assert await listed.compute_similarities(EAST, workspace_id=1, ids=asked) == dict.fromkeys(asked, 1.0)

    await listed.delete(1, ["gone"])
    await index.delete(1, ["lost"])

    assert await listed.compute_similarities(EAST, workspace_id=1, ids=asked) == {"kept": 1.0}
    assert await listed.compute_similarities(EAST, workspace_id=1, ids=["gone"]) == {}
    assert await open_vectors().compute_similarities(EAST, workspace_id=1, ids=asked) == {"kept": 1.0}


async def test_whoever_missed_what_was_dropped_finds_out(open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word of a drop is kept for a while only; lists that are older must not show the memory for ever."""
    monkeypatch.setattr("rookery.engines.vectors.vector_file._MAX_TOMBSTONES", 2)
    index = open_vectors()
    ids = [f"m{number}" for number in range(10)]
    await index.put([vectored(memory_id) for memory_id in ids])
    build_ivf_file(tmp_path)
    onlooker = open_vectors()
    assert await found(onlooker) == ids

    for memory_id in ids[:6]:
        await index.delete(1, [memory_id])

    assert await found(onlooker) == await found(open_vectors()) == ids[6:]


async def test_lists_of_a_workspace_of_which_nothing_is_left_are_deleted(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Spec 3.4: what is deleted leaves all stores."""
    index = open_vectors()
    await index.put([vectored("a"), vectored("b"), vectored("c", workspace_id=2)])
    ours, theirs = build_ivf_file(tmp_path), build_ivf_file(tmp_path, workspace_id=2)

    await index.delete(1, ["a"])
    assert ours.exists()
    await index.delete(1, ["b"])

    assert not ours.exists()
    assert theirs.exists()


async def test_lists_of_a_model_that_was_switched_from_are_deleted(tmp_path: Path) -> None:
    """D-54: once the vectors of the new model answer, those of the former one are cleared away."""
    former, now = open_index(tmp_path), open_index(tmp_path, model="small/2")
    await former.put([vectored("a", EAST)])
    path = build_ivf_file(tmp_path)
    await now.put([vectored("a", NORTH)])
    kept = build_ivf_file(tmp_path, model="small/2")
    assert await found(former) == await found(now) == ["a"]

    await now.activate()
    await now.delete_retired()

    assert not path.exists()
    assert kept.exists()
    await former.close()
    await now.close()
