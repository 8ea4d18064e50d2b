"""
Ids of the workers that claim work from tables, and the detection of dead workers on the same host.

An id has the form `host:pid:start:unique`. `start` distinguishes a process from an earlier one with the same pid: a server in a container
has the same pid after each restart. Containers that share a record store need different host names.
"""

from __future__ import annotations

import functools
import os
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_STAT_FIELD_START_TIME = 22
_STAT_FIELDS_TO_NAME = 2  # the name may contain spaces and parentheses, so fields are counted after it


def make_worker_id(unique: str) -> str:
    """Return the id of a worker of this process. *unique* distinguishes it from the others of the process."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_get_own_start(pid)}:{unique}"


def find_dead_workers(worker_ids: Iterable[str]) -> list[str]:
    """Return the workers whose process ran on this host and has exited. Workers on other hosts expire only by their leases."""
    prefix = f"{socket.gethostname()}:"
    return [worker_id for worker_id in worker_ids if worker_id.startswith(prefix) and not _is_alive(worker_id)]


def _is_alive(worker_id: str) -> bool:
    _, pid, *rest = worker_id.split(":")
    start = rest[0] if len(rest) > 1 else None  # older versions stored no start
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    except ValueError:
        return True
    if start is None:
        return True
    current = _get_own_start(int(pid)) if int(pid) == os.getpid() else _read_start(int(pid))
    return current is None or current == start


@functools.cache
def _get_own_start(pid: int) -> str:
    """Return the start of this process. *pid* is its id, which changes when it forks. Without /proc, the start is a random value."""
    return _read_start(pid) or uuid.uuid4().hex


def _read_start(pid: int) -> str | None:
    """Return the boot of the system and the start time of a process in clock ticks since then, or `None` if they are unavailable."""
    try:
        boot_id = _BOOT_ID_FILE.read_text(encoding="ascii").strip()
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot_id}-{int(fields[_STAT_FIELD_START_TIME - _STAT_FIELDS_TO_NAME - 1])}"
    except (OSError, ValueError, IndexError):
        return None
