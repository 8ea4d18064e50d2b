"""The cores that this process may use: fewer than the machine has if its affinity or its control group limits them."""

from __future__ import annotations

import math
import os
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


def count_available_cores(*, cgroups: Path = _CGROUPS, own_cgroups: Path = _OWN_CGROUPS) -> int:
    """
    Return the number of cores that this process may use, at least 1. A part of a core counts as one.

    Args:
        cgroups: The folder of the control groups, of version 2 or 1.
        own_cgroups: The file that names the control groups of this process.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_read_quota(folder) for folder in _list_folders(cgroups, own_cgroups)]
    return max(1, min([cores, *(math.ceil(quota) for quota in quotas if quota is not None)]))


def _list_folders(cgroups: Path, own_cgroups: Path) -> list[Path]:
    """Return the folders of the process's control group and of those that contain it. Each may limit it."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:
        return []
    folders = dict.fromkeys([cgroups, cgroups / "cpu"])
    for line in lines:
        _, controllers, path = line.split(":", 2)
        root = cgroups if not controllers else cgroups / "cpu" if "cpu" in controllers.split(",") else None
        if root is not None:
            parents = [parent.relative_to("/") for parent in (PurePosixPath(path), *PurePosixPath(path).parents)]
            folders |= dict.fromkeys(root / parent for parent in parents)
    return list(folders)


def _read_quota(folder: Path) -> float | None:
    """Return the cores that a control group may use; None without a limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota, period = [(folder / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        except OSError:
            return None
    return float(quota) / float(period) if quota.isdigit() and float(period) > 0 else None
