"""
Whether a sealed file may be believed: it must be of the `vectors.db` beside it, which may have been deleted, or put back as it once was.

Numbers of changes are given again then, to other memories, the later ones first: so it is the newest rows that tell, and
whatever lives in the database and is as old must be in the file. Some rows chosen by chance tell of damaged vectors.
"""

from __future__ import annotations

import random

import numpy as np

from rookery.engines.vectors.ivf_file import IvfFile, IvfFileError, Longs
from rookery.engines.vectors.vector_file import VectorFile

_SAMPLED_ROWS = 32
"""Rows that are compared, of the newest and of all."""


def verify_ivf_file(ivf_file: IvfFile, file: VectorFile, *, workspace_id: int, live_changes: Longs) -> None:
    """
    Do nothing if *ivf_file* is as the database has it.

    Args:
        live_changes: The changes of the database that *ivf_file* should know, in order.

    Raises:
        Unusable: It is not.
    """
    change = ivf_file.columns.change
    if not np.isin(live_changes, change).all():
        raise IvfFileError("vectors.db has what it should know, and does not")
    rows = np.flatnonzero(np.isin(change, live_changes))
    if not len(rows):
        raise IvfFileError("nothing of it is left")
    newest: list[int] = rows[np.argpartition(change[rows], -min(_SAMPLED_ROWS, len(rows)))[-_SAMPLED_ROWS:]].tolist()
    chosen: list[int] = rows[random.sample(range(len(rows)), min(_SAMPLED_ROWS, len(rows)))].tolist()
    for row in newest + chosen:
        entry = file.get_entry(workspace_id, int(change[row]))
        if entry is not None and (ivf_file.get_memory_ids([row]) != [entry[0]] or ivf_file.vectors[row].tobytes() not in entry[1]):
            raise IvfFileError("its vectors are not those of vectors.db")
