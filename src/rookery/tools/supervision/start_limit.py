"""
A limit on the servers that start at the same time, and the CPU that processes want, so that a restart leaves the machine usable.

On a busy machine the time that a process used says little: one of twenty that compute on two cores gets a tenth of a core. Linux counts the
waiting time too (`/proc/PID/task/TID/schedstat`: nanoseconds on a CPU, nanoseconds in the queue, slices).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rookery.kernel.process_resources import count_available_cores

_PROC = Path("/proc")

_MAX_HELD_S = 15.0
"""Time after which a start no longer counts. A server that hangs, or downloads itself, does not keep the others waiting."""


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


_IDLE_CHECK_S, _IDLE_CHECKS, _MAX_IDLE_DEMAND = 0.1, 2, 0.2
"""
A start is idle if its processes wanted less than a fifth of a core in each of two intervals. A program that waits for a database or for the
network is no load.
"""


class PendingStart:
    """
    The start of one session.

    Attributes:
        admitted: Done once the process may start.
        pid: The process that starts, once it runs. Its descendants belong to the start.
    """

    def __init__(self, server_key: str, on_end: Callable[[PendingStart], None]) -> None:
        self.server_key = server_key
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pid: int | None = None
        self._on_end = on_end

    def set_pid(self, pid: int) -> None:
        """Name the process, so that a start that only waits can make room for one that is wanted."""
        self.pid = pid

    def end(self) -> None:
        """Let another one start, because this one has ended or is no longer needed. A second call does nothing."""
        self._on_end(self)


class StartLimit:
    """
    The limit on the processes that start at the same time: two more than the cores that this process may use.

    Servers with a waiting call start first, and no others beside them. One place is for them alone: without it, a call would wait for the
    end of a start that nobody needs. Then come those that a caller waits to see in a list. While such servers wait, starts that are idle do
    not count.

    Args:
        limit: The number of starts. None: by the cores.
        max_held_s: Time after which a start no longer counts.
    """

    def __init__(self, limit: int | None = None, *, max_held_s: float = _MAX_HELD_S) -> None:
        self._limit = count_available_cores() + 2 if limit is None else limit
        self._max_held_s = max_held_s
        self._waiting: dict[PendingStart, None] = {}
        self._running: dict[PendingStart, asyncio.TimerHandle] = {}
        self._called = Counter[str]()
        self._listed = Counter[str]()
        self._idle_checks = Counter[PendingStart]()
        self._demand_s: dict[PendingStart, float] = {}
        self._check: asyncio.TimerHandle | None = None

    def request(self, server_key: str) -> PendingStart:
        """Request to start a session of a server. Call `end` of the result in any case."""
        start = PendingStart(server_key, self._end)
        self._waiting[start] = None
        self._admit()
        return start

    def prefer_for_call(self, server_key: str) -> AbstractContextManager[None]:
        """Start the sessions of a server before all others while a call waits for one."""
        return self._prefer(self._called, [server_key])

    def prefer_for_list(self, server_keys: Sequence[str]) -> AbstractContextManager[None]:
        """Start the sessions of servers before those that nobody waits for, while a caller waits to see them in a list."""
        return self._prefer(self._listed, server_keys)

    @contextlib.contextmanager
    def _prefer(self, waiters: Counter[str], server_keys: Sequence[str]) -> Generator[None]:
        waiters.update(server_keys)
        self._admit()
        try:
            yield
        finally:
            waiters.subtract(server_keys)
            for key in server_keys:
                if waiters[key] <= 0:
                    del waiters[key]
            self._admit()

    def _end(self, start: PendingStart) -> None:
        self._waiting.pop(start, None)
        self._idle_checks.pop(start, None)
        self._demand_s.pop(start, None)
        timer = self._running.pop(start, None)
        if timer is not None:
            timer.cancel()
            self._admit()

    def _admit(self) -> None:
        """Let as many start as the limit allows, first those with a waiting call."""
        while self._waiting and len(self._running) < self._limit:
            start = self._find_waiting(self._called)
            has_call = any(self._called[start.server_key] for start in self._running)
            if start is None and not has_call and len(self._running) < max(1, self._limit - 1):
                start = self._find_waiting(self._listed) or next(iter(self._waiting))
            if start is None:
                break
            del self._waiting[start]
            self._running[start] = asyncio.get_running_loop().call_later(self._max_held_s, self._end, start)
            start.admitted.set_result(None)
        if self._check is None and self._has_waiter():
            self._check = asyncio.get_running_loop().call_later(_IDLE_CHECK_S, self._release_idle)

    def _find_waiting(self, waiters: Counter[str]) -> PendingStart | None:
        return next((start for start in self._waiting if waiters[start.server_key]), None)

    def _has_waiter(self) -> bool:
        return self._find_waiting(self._called) is not None or self._find_waiting(self._listed) is not None

    def _release_idle(self) -> None:
        """End the starts that are idle, for the purpose of the limit, while a caller waits for another one."""
        self._check = None
        if not self._has_waiter():
            self._demand_s.clear()
            self._idle_checks.clear()
            return
        for start in list(self._running):
            demand_s = None if start.pid is None else read_demand_s(start.pid)
            if demand_s is None:
                continue
            before_s, self._demand_s[start] = self._demand_s.get(start), demand_s
            if before_s is None or demand_s - before_s > _MAX_IDLE_DEMAND * _IDLE_CHECK_S:
                del self._idle_checks[start]
                continue
            self._idle_checks[start] += 1
            if self._idle_checks[start] >= _IDLE_CHECKS:
                self._end(start)
        self._admit()
