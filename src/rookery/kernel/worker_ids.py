"""Who has taken work out of a table: the name of a worker, by which another on the same host sees that it is dead."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable


def make_worker_id(unique: str) -> str:
    """Return the name under which a worker of this process takes work; *unique* tells it from others of the same process."""
    return f"{socket.gethostname()}:{os.getpid()}:{unique}"


def find_dead_workers(worker_ids: Iterable[str]) -> list[str]:
    """Return those whose process was on this host and is there no longer; of other hosts nothing is known but their leases."""
    here = f"{socket.gethostname()}:"
    return [each for each in worker_ids if each.startswith(here) and not _is_alive(each)]


def _is_alive(name: str) -> bool:
    pid = name.split(":")[1]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, ValueError):
        return True
    return True
