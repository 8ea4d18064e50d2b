"""Verification of IVF files: a file must match the `vectors.db` beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.engines.conftest import EAST, NORTH, find_ids, make_embedded, remove
from tests.engines.ivf import OpenIndex, build_ivf_file


def flip_header_byte(path: Path) -> None:
    """Change a byte of the header."""
    with path.open("r+b") as file:
        file.seek(60)
        byte = file.read(1)
        file.seek(60)
        file.write(bytes([byte[0] ^ 1]))


def truncate(path: Path) -> None:
    """Cut off the end of the file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)


def overwrite_vectors(path: Path) -> None:
    """Overwrite the vectors of the last rows, at the end of the file."""
    with path.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(np.full(1024, 0.5, dtype="<f4").tobytes())


def empty(path: Path) -> None:
    """Remove all content."""
    path.write_bytes(b"")


def write_invalid_group(path: Path) -> None:
    """Write rows with invalid group numbers."""
    content = path.read_bytes()
    header = orjson.loads(content[56 : 56 + int.from_bytes(content[16:24], "little")])
    with path.open("r+b") as file:
        file.seek(header["arrays"]["group"][2])
        file.write(b"\x7f")


@pytest.mark.parametrize("damage_file", [flip_header_byte, write_invalid_group, truncate, overwrite_vectors, empty])
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
    """A rebuilt store counts its changes from the beginning (spec 4.4)."""
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
