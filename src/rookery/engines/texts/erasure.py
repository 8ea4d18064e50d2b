"""
Erase deleted texts from the full-text index.

FTS5 records a deletion in a new segment and keeps the words in the old one until both are merged, which may take years; tantivy does the
same. SQLite 3.42 has an option that removes the words at once, but older versions cannot read such a file, and backups move between
versions. Merging all segments works with every version, in steps between which other writers run.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import cast

import orjson

_PAGES_PER_STEP = 256
"""Pages per merge step. A step writes about a megabyte and blocks other writers for some ten milliseconds."""

_MAX_STEPS = 1_000_000
_MIN_CHANGED_ROWS = 2
"""Rows that a useful step changes at least."""

_MERGE = "INSERT INTO fts (fts, rank) VALUES ('merge', ?)"
_HAS_DELETED = "SELECT EXISTS (SELECT 1 FROM gone)"


def merge_segments(run_in_transaction: Callable[[Callable[[sqlite3.Connection], int]], int]) -> None:
    """Merge all segments into one without the words of deleted rows. *run_in_transaction* runs each step in a transaction."""
    run_in_transaction(lambda connection: _merge_step(connection, -_PAGES_PER_STEP))
    for _ in range(_MAX_STEPS):
        if run_in_transaction(lambda connection: _merge_step(connection, _PAGES_PER_STEP)) < _MIN_CHANGED_ROWS:
            return


def delete_stale_caches(folder: Path, connection: sqlite3.Connection) -> bool:
    """
    Delete caches in *folder* that contain words of deleted rows, and return whether there were any.

    A process with such a cache open uses SQLite until the cache is built again.
    """
    has_gone = bool(connection.execute(_HAS_DELETED).fetchone()[0])
    stale = [path for path in folder.glob("*") if path.is_dir() and (has_gone or _has_deletions(path))]
    for path in stale:
        shutil.rmtree(path, ignore_errors=True)
    return bool(stale)


def _merge_step(connection: sqlite3.Connection, pages: int) -> int:
    before = connection.total_changes
    connection.execute(_MERGE, (pages,))
    return connection.total_changes - before


def _has_deletions(folder: Path) -> bool:
    """Return whether a segment has deleted rows. True also if the metadata cannot be read."""
    try:
        meta = cast("dict[str, list[dict[str, object]]]", orjson.loads((folder / "meta.json").read_bytes()))
        return any(segment["deletes"] is not None for segment in meta["segments"])
    except (OSError, ValueError, KeyError, TypeError):
        return True
