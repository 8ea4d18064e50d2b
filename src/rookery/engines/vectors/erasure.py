"""What the lists beside `vectors.db` keep of memories that are gone, and how it goes: they are deleted, to be built anew when needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rookery.engines.vectors.ivf_file import SUFFIX, IvfFile, IvfFileError, list_files, list_workspaces
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.ports import ModelVersion


def delete_stale_lists(file: VectorFile, folder: Path, model_version: ModelVersion) -> int:
    """Delete the lists that have vectors of what was dropped or replaced, and return how many; who has one open goes on with it."""
    gone = 0
    for workspace_id in sorted(list_workspaces(folder)):
        ours = {path for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version)}
        for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
            # Of another model nothing is asked here, and nothing lost: they are a cache.
            if path not in ours or _has_deleted_rows(file, path, workspace_id, model_version):
                path.unlink(missing_ok=True)
                gone += 1
    return gone


def _has_deleted_rows(file: VectorFile, path: Path, workspace_id: int, model_version: ModelVersion) -> bool:
    try:
        sealed = IvfFile(path, workspace_id=workspace_id, model_version=model_version)
    except IvfFileError:
        return True
    return not np.isin(sealed.columns.change, file.list_live(workspace_id, last_change=sealed.last_change)).all()
