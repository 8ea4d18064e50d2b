"""
Shares of workspaces in the cores of the host, so that the load of one workspace does not slow the others.

A workspace that works alone is not limited. While requests of others arrive, each workspace computes at most its share of the cores at the
same time, in all server processes together; its further requests wait. A request of a quiet workspace therefore finds a free core.

The processes of a server share a file. In it, each process has a table of the workspaces whose requests it received lately. The right to
compute is a lock on a byte of the file, which the system releases if the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import mmap
import os
import random
import struct
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from weakref import WeakValueDictionary

_ACTIVE_S = 5.0
"""Time after its last request for which a workspace counts as active."""

_RECORD_INTERVAL_S = 0.25
"""Minimum interval between two records of the same workspace. A request in between costs a look into a dictionary."""

_READ_INTERVAL_S = 0.05
"""Maximum age of the list of active workspaces."""

_POLL_INTERVAL_S = (0.001, 0.004)
"""Bounds of the pause between two attempts to get a slot that another process holds. Random, so that no process is always the last."""

_MAX_WAIT_S = 2.0
"""Time after which work no longer waits: the holder of the slot may wait for an engine and compute nothing."""

MAX_WAITING_HOLD_S = 0.02
"""Time for which work that asks another program, such as a tool server or a receiver, holds a slot. After it, it probably waits."""

MAX_QUERY_HOLD_S = 0.05
"""The same for work on memories, which may ask an embedder or an index on another host but mostly computes."""

_MAX_REST_S = 0.25
"""Longest rest of a slot after exclusive work."""

_MAX_SLOTS = 64
_ENTRY = struct.Struct("qd")
"""A workspace, and the time of its last request by the clock of the host that never goes back."""

_ENTRIES = 64
"""Workspaces in the table of a process. The longest unused one is replaced."""

_TABLE_BYTES = _ENTRIES * _ENTRY.size
_INDEXING = "indexing"
"""The owner of the slot for the indexing of backlogs. Slots of requests belong to a workspace."""

_OWN_WORKSPACES: ContextVar[frozenset[int]] = ContextVar("own_workspaces", default=frozenset())
"""The workspaces for which the current task computes already."""

_FILE_NAME = "shares"


class WorkspaceShares:
    """
    The shares of workspaces.

    Args:
        folder: A folder of the processes that share the host. None: there is only this one.
        number: The number of this process, from 1.
        count: The number of processes.
        cores: The cores that all processes may use together.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        number: int = 1,
        count: int = 1,
        cores: int = 1,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = None if folder is None else folder / _FILE_NAME
        self._start = (number - 1) * _TABLE_BYTES
        self._size = count * _TABLE_BYTES
        self._cores = cores
        self._monotonic = monotonic
        self._file: int | None = None
        self._table: mmap.mmap | None = None
        self._positions: dict[int, int] = {}
        self._recorded_s: dict[int, float] = {}
        self._active: frozenset[int] = frozenset()
        self._read_s = float("-inf")
        self._held: set[tuple[int | str, int]] = set()
        self._queues: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def close(self) -> None:
        """Release the file. Idempotent."""
        if self._table is not None:
            self._table.close()
            self._table = None
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def record_request(self, workspace_id: int) -> None:
        """Record that a request of the workspace arrived."""
        now = self._monotonic()
        if now - self._recorded_s.get(workspace_id, float("-inf")) >= _RECORD_INTERVAL_S:
            self._recorded_s[workspace_id] = now
            position = self._positions.get(workspace_id)
            if position is None:
                position = self._choose_position()
                self._positions[workspace_id] = position
            _ENTRY.pack_into(self._open(), self._start + position * _ENTRY.size, workspace_id, now)

    def is_contended(self, workspace_id: int | None = None) -> bool:
        """Return whether another workspace than this one is active; without one, whether at least two are."""
        active = self._list_active()
        return len(active) > 1 or (workspace_id is not None and bool(active - {workspace_id}))

    @asynccontextmanager
    async def take(self, workspace_id: int, *, max_hold_s: float | None = None, is_exclusive: bool = False) -> AsyncGenerator[None]:
        """
        Compute for a workspace in the block, which starts at once unless others are active and its share is in use.

        A block within a block of the same workspace needs no further slot.

        Args:
            max_hold_s: Time after which the slot is free, although the block runs: it then probably waits for something else, such as a
                tool server. None: the block holds the slot to its end.
            is_exclusive: The block writes for long to a file with one writer. The slot then rests after it, so that each of n active
                workspaces has the file for 1/n of the time: `rest = duration * (n - 1)`, at most `_MAX_REST_S`.
        """
        if workspace_id in _OWN_WORKSPACES.get() or not self.is_contended(workspace_id):
            yield
            return
        slot = await self._wait_for_slot(workspace_id)
        started_s = self._monotonic()
        is_held = slot is not None

        def release() -> None:
            nonlocal is_held
            if is_held and slot is not None:
                is_held = False
                self._release(workspace_id, slot)

        timer = None if max_hold_s is None else asyncio.get_running_loop().call_later(max_hold_s, release)
        token = _OWN_WORKSPACES.set(_OWN_WORKSPACES.get() | {workspace_id})
        try:
            yield
        finally:
            _OWN_WORKSPACES.reset(token)
            if timer is not None:
                timer.cancel()
            rest_s = min(_MAX_REST_S, (self._monotonic() - started_s) * (len(self._list_active()) - 1)) if is_exclusive else 0.0
            if rest_s > 0:
                asyncio.get_running_loop().call_later(rest_s, release)
            else:
                release()

    @contextmanager
    def try_indexing(self) -> Generator[bool]:
        """Return whether this process may index a part of a backlog in the block, of which one process at a time does."""
        is_taken = self._try_slot(_INDEXING, 0)
        try:
            yield is_taken
        finally:
            if is_taken:
                self._release(_INDEXING, 0)

    async def _wait_for_slot(self, workspace_id: int) -> int | None:
        """Return the number of a slot; None if the workspace is alone meanwhile, or if all its slots are in use for too long."""
        until = self._monotonic() + _MAX_WAIT_S
        queue = self._queues.setdefault(workspace_id, asyncio.Lock())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT_S), queue:
                while self.is_contended(workspace_id) and self._monotonic() < until:
                    share = max(1, min(_MAX_SLOTS, self._cores // len(self._list_active() | {workspace_id})))
                    for slot in range(share):
                        if self._try_slot(workspace_id, slot):
                            return slot
                    await asyncio.sleep(random.uniform(*_POLL_INTERVAL_S))  # noqa: S311 - no secret
        return None

    def _try_slot(self, owner: int | str, slot: int) -> bool:
        if (owner, slot) in self._held:
            return False
        self._open()
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._find_lock(owner, slot))
            except (BlockingIOError, PermissionError):  # POSIX allows both for a lock of another process
                return False
        self._held.add((owner, slot))
        return True

    def _release(self, owner: int | str, slot: int) -> None:
        self._held.discard((owner, slot))
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._find_lock(owner, slot))

    def _find_lock(self, owner: int | str, slot: int) -> int:
        """Return the byte whose lock is the slot. It lies beyond the tables, and need not exist. Sandboxes have negative numbers."""
        number = 0 if isinstance(owner, str) else 2 * abs(owner) + 1 + (owner < 0)
        return self._size + number * _MAX_SLOTS + slot

    def _list_active(self) -> frozenset[int]:
        now = self._monotonic()
        if now - self._read_s >= _READ_INTERVAL_S:
            self._read_s = now
            table = bytes(self._open())
            self._active = frozenset(workspace for workspace, at in _ENTRY.iter_unpack(table) if at and now - at < _ACTIVE_S)
        return self._active

    def _choose_position(self) -> int:
        if len(self._positions) < _ENTRIES:
            return len(self._positions)
        oldest = min(self._positions, key=lambda workspace_id: self._recorded_s.get(workspace_id, 0.0))
        self._recorded_s.pop(oldest, None)
        return self._positions.pop(oldest)

    def _open(self) -> mmap.mmap:
        if self._table is None:
            if self._path is None:
                self._table = mmap.mmap(-1, self._size)
            else:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                if os.fstat(self._file).st_size < self._size:
                    os.truncate(self._file, self._size)
                self._table = mmap.mmap(self._file, self._size)
        return self._table


class WorkspaceTurns:
    """
    Admits one piece of work of each workspace at a time.

    A thread or a limit that all workspaces share is a queue in the order of arrival: a hundred requests of one workspace would delay the
    next one of another by a hundred pieces. With turns, each workspace has at most one piece in that queue.
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, workspace_id: int, resource: AbstractAsyncContextManager[object] | None = None) -> AsyncGenerator[None]:
        """
        Wait for the turn of *workspace_id*, then for *resource*, and hold both in the block.

        Args:
            resource: A lock or a semaphore that all workspaces share. None: the block has a queue of its own, such as that of a thread.
        """
        lock = self._locks.setdefault(workspace_id, asyncio.Lock())
        async with lock, resource or nullcontext():
            yield
