"""Verification of IVF files: a file must match the `vectors.db` beside it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.engines.conftest import EAST, NORTH, find_ids, make_embedded, remove
from tests.engines.ivf import OpenIndex, build_ivf_file


def change_meta(lists: Path) -> None:
    """Change a byte of the description."""
    content = bytearray((lists / "meta.json").read_bytes())
    content[90] ^= 1
    (lists / "meta.json").write_bytes(content)


def truncate(lists: Path) -> None:
    """Cut off the end of the vectors."""
    with (lists / "vectors.npy").open("r+b") as file:
        file.truncate((lists / "vectors.npy").stat().st_size - 8)


def overwrite_vectors(lists: Path) -> None:
    """Overwrite the vectors of the last rows."""
    with (lists / "vectors.npy").open("r+b") as file:
        file.seek(-32, 2)
        file.write(np.full(8, 0.5, dtype="<f4").tobytes())


def empty(lists: Path) -> None:
    """Remove all content."""
    for path in lists.iterdir():
        path.write_bytes(b"")


def write_one_file(lists: Path) -> None:
    """Replace the lists with the file that an earlier version wrote."""
    shutil.rmtree(lists)
    lists.write_bytes(b"rookery lists")


def write_invalid_group(lists: Path) -> None:
    """Write rows with invalid group numbers."""
    with (lists / "group.npy").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")


def change_faiss_index(lists: Path) -> None:
    """Change a byte of the inverted lists."""
    content = bytearray((lists / "index.faiss").read_bytes())
    content[-60] ^= 1
    (lists / "index.faiss").write_bytes(content)


def truncate_faiss_index(lists: Path) -> None:
    """Cut off the end of the inverted lists."""
    (lists / "index.faiss").write_bytes((lists / "index.faiss").read_bytes()[:-100])


def remove_faiss_index(lists: Path) -> None:
    """Remove the inverted lists."""
    (lists / "index.faiss").unlink()


@pytest.mark.parametrize(
    "damage_file",
    [
        change_meta,
        write_invalid_group,
        truncate,
        overwrite_vectors,
        change_faiss_index,
        truncate_faiss_index,
        remove_faiss_index,
        empty,
        write_one_file,
    ],
)
async def test_a_damaged_file_is_ignored_and_deleted(open_vectors: OpenIndex, tmp_path: Path, damage_file: Callable[[Path], None]) -> None:
    """The file is a cache; results then come from the database."""
    index = open_vectors()
    await index.put([make_embedded("east", EAST), make_embedded("north", NORTH)])
    path = build_ivf_file(tmp_path)
    damage_file(path)

    index = open_vectors()
    assert await find_ids(index, NORTH) == ["north", "east"]
    assert index.listed_rows == 0
    assert not path.exists()


async def test_the_file_of_a_deleted_database_is_ignored(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A rebuilt store counts its changes from the beginning."""
    index = open_vectors()
    await index.put([make_embedded("a", EAST), make_embedded("b", NORTH)])
    build_ivf_file(tmp_path)
    await index.close()
    remove(tmp_path / "vectors.db", with_journal=True)

    index = open_vectors()
    assert await find_ids(index) == []
    await index.put([make_embedded("c", EAST), make_embedded("d", NORTH), make_embedded("e", NORTH)])
    build_ivf_file(tmp_path)
    assert await find_ids(open_vectors()) == ["c", "d", "e"]


async def test_the_file_of_a_restored_database_is_ignored(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """After a restore, other changes get the same numbers as those in the file."""
    index = open_vectors()
    await index.put([make_embedded("a", EAST), make_embedded("b", NORTH)])
    await index.close()
    shutil.copy(tmp_path / "vectors.db", tmp_path / "backup.db")
    index = open_vectors()
    await index.put([make_embedded("later", EAST), make_embedded("theirs", EAST, workspace_id=2)])
    path = build_ivf_file(tmp_path)
    await index.close()
    remove(tmp_path / "vectors.db", with_journal=True)
    shutil.move(tmp_path / "backup.db", tmp_path / "vectors.db")

    await open_vectors().put([make_embedded("theirs", EAST, workspace_id=2), make_embedded("new", EAST)])

    assert await find_ids(open_vectors()) == ["a", "new", "b"]
    assert not path.exists()


async def test_search_is_exact_if_faiss_cannot_be_imported(
    open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copied data folder may have an index, and the machine no faiss that it can load."""
    await open_vectors().put([make_embedded("east", EAST), make_embedded("north", NORTH)])
    build_ivf_file(tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)

    index = open_vectors()

    assert await find_ids(index, NORTH) == ["north", "east"]
    assert index.listed_rows == 0
