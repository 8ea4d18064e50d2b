"""
Check that a list file belongs to the `vectors.db` beside it, which may have been deleted or restored from an older copy.

In that case change numbers are assigned again to other memories, the highest ones first. The check therefore compares the newest rows, and
all live entries of the database up to that change must be in the file. Random rows reveal damaged vectors.
"""

from __future__ import annotations

import random

import numpy as np

from rookery.engines.vectors.ivf_file import IvfFile, IvfFileError, Longs
from rookery.engines.vectors.vector_file import VectorFile

_SAMPLED_ROWS = 32
"""Compared rows among the newest, and among all."""


def verify_ivf_file(ivf_file: IvfFile, file: VectorFile, *, workspace_id: int, live_changes: Longs) -> None:
    """
    Check that *ivf_file* matches the database.

    Args:
        live_changes: The live changes of the database that the file should contain, in order.

    Raises:
        IvfFileError: It does not match.
    """
    change = ivf_file.columns.change
    if not np.isin(live_changes, change).all():
        raise IvfFileError("it lacks entries of vectors.db")
    rows = np.flatnonzero(np.isin(change, live_changes))
    if not len(rows):
        raise IvfFileError("all of its rows are deleted")
    newest: list[int] = rows[np.argpartition(change[rows], -min(_SAMPLED_ROWS, len(rows)))[-_SAMPLED_ROWS:]].tolist()
    sample: list[int] = rows[random.sample(range(len(rows)), min(_SAMPLED_ROWS, len(rows)))].tolist()
    for row in newest + sample:
        entry = file.get_entry(workspace_id, int(change[row]))
        if entry is not None and (ivf_file.get_memory_ids([row]) != [entry[0]] or ivf_file.vectors[row].tobytes() not in entry[1]):
            raise IvfFileError("its vectors differ from those of vectors.db")
