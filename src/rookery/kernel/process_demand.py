"""
The CPU that processes want: what they used, and what they waited for while others used it.

On a busy machine the time that a process used says little: one of twenty that compute on two cores gets a tenth of a core. Linux counts the
waiting time too (`/proc/PID/task/TID/schedstat`: nanoseconds on a CPU, nanoseconds in the queue, slices).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_PROC = Path("/proc")


def read_demand_s(pid: int, *, proc: Path = _PROC) -> float | None:
    """Return the seconds that a process and its descendants wanted a CPU so far. None if the system does not tell."""
    total_ns, is_known = 0, False
    for member in _list_tree(pid, proc):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
            for task in os.scandir(proc / str(member) / "task"):
                used_ns, queued_ns = (Path(task.path) / "schedstat").read_text().split()[:2]
                total_ns += int(used_ns) + int(queued_ns)
                is_known = True
    return total_ns / 1e9 if is_known else None


def _list_tree(pid: int, proc: Path) -> list[int]:
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(proc):
            if entry.name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    fields = (Path(entry.path) / "stat").read_text(errors="replace").rpartition(")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree, unvisited = [pid], [pid]
    while unvisited:
        own = children.get(unvisited.pop(), [])
        tree += own
        unvisited += own
    return tree
