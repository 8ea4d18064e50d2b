"""Files of `vectors.db` in another format."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from rookery.engines import vectors
from rookery.engines.vectors.vector_file import FORMAT_VERSION
from rookery.kernel.errors import EngineUnavailable
from tests.engines.conftest import CloseAtEnd


@pytest.mark.parametrize("version", [FORMAT_VERSION - 1, FORMAT_VERSION + 1])
async def test_a_file_of_another_format_is_not_changed(close_at_end: CloseAtEnd, tmp_path: Path, version: int) -> None:
    """A program must not use the file of another version."""
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    index = close_at_end(vectors.open("embedded:", data_dir=tmp_path, model="old/1", dimension=4))

    with pytest.raises(EngineUnavailable, match="its format is"):
        await index.count(1)
    with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        assert connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
