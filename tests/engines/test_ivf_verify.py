"""When lists are believed: they are a cache, and must be of the `vectors.db` beside them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.engines.conftest import EAST, NORTH, found, remove, vectored
from tests.engines.ivf import OpenIndex, build_ivf_file


def wrong_bytes(path: Path) -> None:
    """Change a byte of what the file says of itself."""
    with path.open("r+b") as file:
        file.seek(60)
        byte = file.read(1)
        file.seek(60)
        file.write(bytes([byte[0] ^ 1]))


def cut_short(path: Path) -> None:
    """Lose the end of the file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 4096)


def other_vectors(path: Path) -> None:
    """Have the vectors of something else: the last rows' are at the end."""
    with path.open("r+b") as file:
        file.seek(-4096, 2)
        file.write(np.full(1024, 0.5, dtype="<f4").tobytes())


def emptied(path: Path) -> None:
    """Lose it all."""
    path.write_bytes(b"")


def wrong_column(path: Path) -> None:
    """Write rows with invalid group numbers."""
    whole = path.read_bytes()
    header = orjson.loads(whole[56 : 56 + int.from_bytes(whole[16:24], "little")])
    with path.open("r+b") as file:
        file.seek(header["arrays"]["group"][2])
        file.write(b"\x7f")


@pytest.mark.parametrize("harm", [wrong_bytes, wrong_column, cut_short, other_vectors, emptied])
async def test_a_file_that_is_not_right_is_left_aside(open_vectors: OpenIndex, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """The lists are a cache: whatever happens to them, answers come from the database."""
    index = open_vectors()
    await index.put([vectored("east", EAST), vectored("north", NORTH)])
    path = build_ivf_file(tmp_path)
    harm(path)

    index = open_vectors()
    assert await found(index, NORTH) == ["north", "east"]
    assert index.listed_rows == 0
    assert not path.exists()


async def test_lists_of_a_database_that_is_gone_are_left_aside(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Derived stores may be deleted and rebuilt by brain:reindex (spec 4.4): numbers of changes begin again then."""
    index = open_vectors()
    await index.put([vectored("a", EAST), vectored("b", NORTH)])
    build_ivf_file(tmp_path)
    await index.close()
    remove(tmp_path / "vectors.db", with_journal=True)

    index = open_vectors()
    assert await found(index) == []
    await index.put([vectored("c", EAST), vectored("d", NORTH), vectored("e", NORTH)])
    build_ivf_file(tmp_path)
    assert await found(open_vectors()) == ["c", "d", "e"]


async def test_lists_of_a_database_that_was_put_back_as_it_once_was_are_left_aside(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Changes have the same numbers then, and are others: what came since must not be taken for what the lists know."""
    index = open_vectors()
    await index.put([vectored("a", EAST), vectored("b", NORTH)])
    await index.close()
    shutil.copy(tmp_path / "vectors.db", tmp_path / "kept")
    index = open_vectors()
    await index.put([vectored("later", EAST), vectored("theirs", EAST, workspace_id=2)])
    path = build_ivf_file(tmp_path)
    await index.close()
    remove(tmp_path / "vectors.db", with_journal=True)
    shutil.move(tmp_path / "kept", tmp_path / "vectors.db")

    await open_vectors().put([vectored("theirs", EAST, workspace_id=2), vectored("new", EAST)])

    assert await found(open_vectors()) == ["a", "new", "b"]
    assert not path.exists()
