"""Erase deleted vectors from the list files beside `vectors.db`. The files are deleted and built again when needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rookery.engines.vectors.ivf_file import SUFFIX, IvfFile, IvfFileError, list_files, list_workspaces
from rookery.engines.vectors.vector_file import VectorFile
from rookery.memory.ports import ModelVersion


def delete_stale_lists(file: VectorFile, folder: Path, model_version: ModelVersion) -> int:
    """Delete the list files with deleted or replaced vectors, and return their number. Processes can still read files that are open."""
    deleted_count = 0
    for workspace_id in sorted(list_workspaces(folder)):
        current_files = {path for _, path in list_files(folder, workspace_id=workspace_id, model_version=model_version)}
        for path in folder.glob(f"{workspace_id}-*{SUFFIX}"):
            # Files of other models are deleted without a check; they are only a cache.
            if path not in current_files or _has_deleted_rows(file, path, workspace_id, model_version):
                path.unlink(missing_ok=True)
                deleted_count += 1
    return deleted_count


def _has_deleted_rows(file: VectorFile, path: Path, workspace_id: int, model_version: ModelVersion) -> bool:
    try:
        ivf_file = IvfFile(path, workspace_id=workspace_id, model_version=model_version)
    except IvfFileError:
        return True
    return not np.isin(ivf_file.columns.change, file.list_live(workspace_id, last_change=ivf_file.last_change)).all()
