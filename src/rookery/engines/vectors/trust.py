"""
Whether a sealed file may be believed: it must be of the `vectors.db` beside it, which may have been deleted, or put back as it once was.

Numbers of changes are given again then, to other memories, the later ones first: so it is the newest rows that tell, and
whatever lives in the database and is as old must be in the file. Some rows chosen by chance tell of damaged vectors.
"""

from __future__ import annotations

import random

import numpy as np

from rookery.engines.vectors.file import VectorFile
from rookery.engines.vectors.sealed import Longs, Sealed, Unusable

_PROBED = 32
"""Rows that are compared, of the newest and of all."""


def compare(sealed: Sealed, file: VectorFile, *, workspace_id: int, living: Longs) -> None:
    """
    Do nothing if *sealed* is as the database has it.

    Args:
        living: The changes of the database that *sealed* should know, in order.

    Raises:
        Unusable: It is not.
    """
    change = sealed.columns.change
    if not np.isin(living, change).all():
        raise Unusable("vectors.db has what it should know, and does not")
    rows = np.flatnonzero(np.isin(change, living))
    if not len(rows):
        raise Unusable("nothing of it is left")
    newest: list[int] = rows[np.argpartition(change[rows], -min(_PROBED, len(rows)))[-_PROBED:]].tolist()
    chosen: list[int] = rows[random.sample(range(len(rows)), min(_PROBED, len(rows)))].tolist()
    for row in newest + chosen:
        entry = file.entry(workspace_id, int(change[row]))
        if entry is not None and (sealed.names([row]) != [entry[0]] or sealed.vectors[row].tobytes() not in entry[1]):
            raise Unusable("its vectors are not those of vectors.db")
