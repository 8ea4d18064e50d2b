"""Deleted vectors and the IVF files that contain them."""

from __future__ import annotations

import os
from pathlib import Path

from rookery.engines.vectors.search import IndexLimits
from rookery.memory.ports import ModelVersion
from tests.conftest import eventually
from tests.engines.conftest import EAST, NORTH, compute_similarities, find_ids, make_embedded
from tests.engines.ivf import OpenIndex, build_ivf_file, open_index


async def test_a_deleted_memory_is_removed_from_the_ivf_file(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The file is rebuilt within a day, also without any search."""
    await open_vectors().put([make_embedded(f"m{number}") for number in range(9)])
    path = build_ivf_file(tmp_path)
    os.utime(path, (0, 0))
    index = open_vectors()
    await index.drop(1, ["m3"])

    await index.start()

    await eventually(lambda: not path.exists())
    assert [b"m3" in (lists / "ids.npy").read_bytes() for lists in (tmp_path / "vectors.lists").glob("*.lists")] == [False]
    assert await find_ids(index) == ["m0", "m1", "m2", "m4", "m5", "m6", "m7", "m8"]


async def test_a_deleted_memory_has_no_similarity(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A lookup by id does not find a deleted memory in the IVF file."""
    index = open_vectors()
    await index.put([make_embedded("deleted", EAST), make_embedded("remaining", EAST), make_embedded("deleted elsewhere", EAST)])
    build_ivf_file(tmp_path)
    listed_index = open_vectors()
    ids = ["deleted", "remaining", "deleted elsewhere"]
    assert await compute_similarities(listed_index, EAST, ids) == dict.fromkeys(ids, 1.0)

    await listed_index.drop(1, ["deleted"])
    await index.drop(1, ["deleted elsewhere"])

    assert await compute_similarities(listed_index, EAST, ids) == {"remaining": 1.0}
    assert await compute_similarities(listed_index, EAST, ["deleted"]) == {}
    assert await compute_similarities(open_vectors(), EAST, ids) == {"remaining": 1.0}


async def test_an_instance_that_missed_deletions_reloads_the_index(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Tombstones are kept for a limited time; older lists must not return deleted memories."""
    index = open_vectors(IndexLimits(max_tombstones=2))
    ids = [f"m{number}" for number in range(10)]
    await index.put([make_embedded(memory_id) for memory_id in ids])
    build_ivf_file(tmp_path)
    second_index = open_vectors()
    assert await find_ids(second_index) == ids

    for memory_id in ids[:6]:
        await index.drop(1, [memory_id])

    assert await find_ids(second_index) == await find_ids(open_vectors()) == ids[6:]


async def test_the_ivf_file_of_an_emptied_workspace_is_deleted(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Deleted memories are removed from all stores."""
    index = open_vectors()
    await index.put([make_embedded("a"), make_embedded("b"), make_embedded("c", workspace_id=2)])
    emptied_file, other_file = build_ivf_file(tmp_path), build_ivf_file(tmp_path, workspace_id=2)

    await index.drop(1, ["a"])
    assert emptied_file.exists()
    await index.drop(1, ["b"])

    assert not emptied_file.exists()
    assert other_file.exists()


async def test_a_dropped_version_leaves_no_ivf_file_and_can_be_written_again(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The index of a workspace in memory is loaded again, without the mapped lists."""
    index = open_vectors()
    await index.put([make_embedded("a", EAST), make_embedded("b", EAST), make_embedded("c", EAST, workspace_id=2)])
    path, other_path = build_ivf_file(tmp_path), build_ivf_file(tmp_path, workspace_id=2)
    index = open_vectors()
    assert (await find_ids(index), index.listed_rows) == (["a", "b"], 2)

    await index.drop_version(1, ModelVersion(model="small/1", dimension=4))
    await index.put([make_embedded("b", NORTH)])

    assert (await find_ids(index), index.listed_rows, index.loaded_rows) == (["b"], 0, 1)
    assert (path.exists(), other_path.exists()) == (False, True)


async def test_the_ivf_file_of_a_previous_model_is_deleted(tmp_path: Path) -> None:
    """Vectors of the previous model are deleted when the new model is active."""
    old_index, new_index = open_index(tmp_path), open_index(tmp_path, model="small/2")
    await old_index.put([make_embedded("a", EAST)])
    path = build_ivf_file(tmp_path)
    await new_index.put([make_embedded("a", NORTH)])
    new_file = build_ivf_file(tmp_path, model="small/2")
    assert await find_ids(old_index) == await find_ids(new_index) == ["a"]

    await new_index.drop_version(1, ModelVersion(model="small/1", dimension=4))

    assert not path.exists()
    assert new_file.exists()
    await old_index.close()
    await new_index.close()
