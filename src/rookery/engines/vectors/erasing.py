"""What the lists beside `vectors.db` keep of memories that are gone, and how it goes: they are deleted, to be built anew when needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rookery.engines.vectors.file import VectorFile
from rookery.engines.vectors.sealed import SUFFIX, Sealed, Unusable, there, workspaces
from rookery.memory.ports import Generation


def forget_lists(file: VectorFile, folder: Path, generation: Generation) -> int:
    """Delete the lists that have vectors of what was dropped or replaced, and return how many; who has one open goes on with it."""
    gone = 0
    for workspace_id in sorted(workspaces(folder)):
        ours = {path for _, path in there(folder, workspace_id=workspace_id, generation=generation)}
        for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
            # Of another model nothing is asked here, and nothing lost: they are a cache.
            if path not in ours or _has_gone(file, path, workspace_id, generation):
                path.unlink(missing_ok=True)
                gone += 1
    return gone


def _has_gone(file: VectorFile, path: Path, workspace_id: int, generation: Generation) -> bool:
    try:
        sealed = Sealed(path, workspace_id=workspace_id, generation=generation)
    except Unusable:
        return True
    return not np.isin(sealed.columns.change, file.living(workspace_id, upto=sealed.upto)).all()
