"""Ids of the workers that claim work from tables, and the detection of dead workers on the same host."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable


def make_worker_id(unique: str) -> str:
    """Return the id of a worker of this process. *unique* distinguishes it from the others of the process."""
    return f"{socket.gethostname()}:{os.getpid()}:{unique}"


def find_dead_workers(worker_ids: Iterable[str]) -> list[str]:
    """Return the workers whose process ran on this host and has exited. Workers on other hosts expire only by their leases."""
    prefix = f"{socket.gethostname()}:"
    return [worker_id for worker_id in worker_ids if worker_id.startswith(prefix) and not _is_alive(worker_id)]


def _is_alive(name: str) -> bool:
    pid = name.split(":")[1]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
