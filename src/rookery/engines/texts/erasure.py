"""
What the full-text index keeps of what was taken out of it, and how it goes.

FTS5 notes a deletion in a new segment, and leaves the words in the old one until the two are merged, which may take years; tantivy
does likewise. SQLite 3.42 has an option that takes them out at once, but a file written so cannot be read by an older one, and
backups travel. Merging all segments does the same everywhere, in steps between which others write.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import cast

import orjson

_PAGES_PER_STEP = 256
"""A step writes about a megabyte: some ten milliseconds, for which others wait to write."""

_MAX_STEPS = 1_000_000
_MIN_CHANGED_ROWS = 2
"""A step that changed fewer rows did nothing."""

_MERGE = "INSERT INTO fts (fts, rank) VALUES ('merge', ?)"
_HAS_DELETED = "SELECT EXISTS (SELECT 1 FROM gone)"


def merge_segments(run_in_transaction: Callable[[Callable[[sqlite3.Connection], int]], int]) -> None:
    """Merge all present segments into one without the words of deleted rows; *run_in_transaction* runs each step in a transaction."""
    run_in_transaction(lambda connection: _merge_step(connection, -_PAGES_PER_STEP))
    for _ in range(_MAX_STEPS):
        if run_in_transaction(lambda connection: _merge_step(connection, _PAGES_PER_STEP)) < _MIN_CHANGED_ROWS:
            return


def delete_stale_caches(folder: Path, connection: sqlite3.Connection) -> bool:
    """Delete the caches in *folder* that have words of what is gone; who has one open answers from SQLite, and builds it anew."""
    has_gone = bool(connection.execute(_HAS_DELETED).fetchone()[0])
    found = [each for each in folder.glob("*") if each.is_dir() and (has_gone or _has_deletions(each))]
    for each in found:
        shutil.rmtree(each, ignore_errors=True)
    return bool(found)


def _merge_step(connection: sqlite3.Connection, pages: int) -> int:
    before = connection.total_changes
    connection.execute(_MERGE, (pages,))
    return connection.total_changes - before


def _has_deletions(folder: Path) -> bool:
    """Tell whether a segment counts rows that were taken out of it; one that cannot be read is taken to have some."""
    try:
        meta = cast("dict[str, list[dict[str, object]]]", orjson.loads((folder / "meta.json").read_bytes()))
        return any(segment["deletes"] is not None for segment in meta["segments"])
    except (OSError, ValueError, KeyError, TypeError):
        return True
