"""The queue of calls to one session: at most a number of calls at once, and a fair order among those that wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncGenerator
from functools import partial

from rookery.tools.errors import ServerBusy
from rookery.tools.models import JsonObject
from rookery.tools.ports import OnRequest
from rookery.tools.supervision.state_lock import StateLock

_MAX_QUEUED_PER_SLOT = 4
"""Waiting calls per slot. Further calls are rejected as `server_busy`."""
_MIN_QUEUE_LENGTH = 256
"""Calls that may wait even if only one runs at a time."""
_SETTLE_S = 1.0
"""Seconds for which an abandoned call keeps the only slot: a server may finish the call although it was cancelled."""
_MAX_RESUME_WAIT_S = 3.0
"""
Seconds for which a paused call waits for a slot, and for the lock. Then it continues without: the server may start no other call before
it ends.
"""
_MAX_RETRY_AFTER_S = 60
_FIRST_ESTIMATE_S = 1.0
"""The assumed duration of a call, before one has ended."""
_MEAN_WEIGHT = 0.2
"""The weight of the last call in the moving average of the durations."""


class CallQueue:
    """
    Admits up to *limit* calls at once. Others wait: first come, first served within one owner, and owners take turns.

    Attributes:
        in_flight: The number of admitted calls that have not ended, including paused ones and those whose task has yet to run.
        queued: The number of waiting calls.
    """

    def __init__(self, server_id: str, limit: int, lock: StateLock | None = None) -> None:
        """
        Create the queue.

        Args:
            lock: Held during each call, for a server whose state other processes of it change, too. A paused call does not hold it.
        """
        self.in_flight = 0
        self.queued = 0
        self._server_id = server_id
        self._limit = limit
        self._max_queued = max(limit * _MAX_QUEUED_PER_SLOT, _MIN_QUEUE_LENGTH)
        self._taken = 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting calls of each owner, in the order of their turns."""
        self._resuming: deque[asyncio.Future[None]] = deque()
        self._slots: set[CallSlot] = set()
        self._mean_s: float | None = None
        self._lock = lock

    async def acquire(self, owner: str, timeout_s: float) -> CallSlot:
        """
        Return a slot, which the caller must close. Wait for one if all are taken.

        Args:
            owner: The key of the caller. Owners take turns, so that a burst of one does not delay the others.
            timeout_s: How long the call may wait.

        Raises:
            ServerBusy: The queue is full, or no slot became free in time.
        """
        if self._taken < self._limit:
            self._taken += 1
            self.in_flight += 1
        else:
            await self._wait(owner, timeout_s)
        slot = CallSlot(self)
        self._slots.add(slot)
        if self._lock is not None:
            try:
                slot.lock = await self._lock.acquire(timeout_s)
            except BaseException as error:
                slot.close()
                if isinstance(error, TimeoutError):
                    raise self._reject(f"another process of it ran calls for {timeout_s:g} s.") from None
                raise
        return slot

    async def _wait(self, owner: str, timeout_s: float) -> None:
        if self.queued >= self._max_queued and not self._evict_for(owner):
            raise self._reject(f"{self.queued} calls wait for it, the maximum.")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(waiter)
        self.queued += 1
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            self._leave(owner, waiter)
            raise self._reject(f"the calls before this one did not end within {timeout_s:g} s.") from None
        except BaseException:
            self._leave(owner, waiter)
            raise

    def _leave(self, owner: str, waiter: asyncio.Future[None]) -> None:
        """Stop waiting. A slot that was granted meanwhile goes to the next call."""
        waiters = self._waiting.get(owner, ())
        if waiter in waiters:
            self._remove(owner, waiter)
        elif not waiter.cancelled() and waiter.exception() is None:
            self.in_flight -= 1
            self.release()

    def _remove(self, owner: str, waiter: asyncio.Future[None]) -> None:
        self._waiting[owner].remove(waiter)
        self.queued -= 1
        if not self._waiting[owner]:
            del self._waiting[owner]

    def _evict_for(self, owner: str) -> bool:
        """Reject the last call of the owner with the most waiting calls, if *owner* has fewer. Return whether there is room now."""
        longest = max(self._waiting, key=lambda name: len(self._waiting[name]))
        if len(self._waiting[longest]) < len(self._waiting.get(owner, ())) + 2:
            return False
        waiter = self._waiting[longest][-1]
        error = self._reject(f"{self.queued} calls wait for it, the maximum, most of them of this key.")
        self._remove(longest, waiter)
        if not waiter.done():
            waiter.set_exception(error)
        return True

    def _reject(self, reason: str) -> ServerBusy:
        return ServerBusy(self._server_id, reason=reason, retry_after_s=self._estimate_wait_s())

    def _estimate_wait_s(self) -> int:
        """Return the seconds after which the calls that wait now have probably run. A running call may take as long again as until now."""
        remaining_s = min((time.monotonic() - slot.started for slot in self._slots), default=0.0)
        mean_s = max(remaining_s, _FIRST_ESTIMATE_S) if self._mean_s is None else self._mean_s
        return min(max(math.ceil(remaining_s + mean_s * self.queued / self._limit), 1), _MAX_RETRY_AFTER_S)

    def release(self) -> None:
        """Pass a slot to a paused call that continues, else to the next waiting call, else free it."""
        while self._resuming:
            waiter = self._resuming.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        while self._waiting:
            owner = next(iter(self._waiting))
            waiters = self._waiting.pop(owner)
            waiter = waiters.popleft()
            self.queued -= 1
            if waiters:
                self._waiting[owner] = waiters  # its next turn comes after those of all other owners
            if not waiter.done():
                self.in_flight += 1
                waiter.set_result(None)
                return
        self._taken -= 1

    def suspend(self, slot: CallSlot) -> None:
        """Pass on what a call holds while it is paused."""
        self._free(slot.take_lock(), is_held=True)

    async def resume(self, slot: CallSlot) -> bool:
        """
        Take a place and the lock for a call that was paused, before waiting calls.

        Return False if no place became free in time. The call then has no lock either: the call that took the place may hold it.
        """
        deadline = time.monotonic() + _MAX_RESUME_WAIT_S
        if not await self._take_place():
            return False
        if self._lock is not None:
            try:
                slot.lock = await self._lock.acquire(max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                return True
            except BaseException:
                self.release()
                raise
        return True

    async def _take_place(self) -> bool:
        if self._taken < self._limit:
            self._taken += 1
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resuming.append(waiter)
        try:
            async with asyncio.timeout(_MAX_RESUME_WAIT_S):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self.release()
            with contextlib.suppress(ValueError):
                self._resuming.remove(waiter)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def end(self, slot: CallSlot, *, is_held: bool) -> None:
        """Record the end of a call, and pass its slot on."""
        self.in_flight -= 1
        self._slots.discard(slot)
        duration_s = time.monotonic() - slot.started
        self._mean_s = duration_s if self._mean_s is None else self._mean_s + _MEAN_WEIGHT * (duration_s - self._mean_s)
        if slot.may_still_run and self._limit == 1:
            asyncio.get_running_loop().call_later(_SETTLE_S, partial(self._free, slot.take_lock(), is_held=is_held))
        else:
            self._free(slot.take_lock(), is_held=is_held)

    def _free(self, lock: int | None, *, is_held: bool) -> None:
        if lock is not None:
            StateLock.release(lock)
        if is_held:
            self.release()


class CallSlot:
    """
    The permission of one call to run.

    Attributes:
        may_still_run: Set it if the call was given up: the server may still work on it.
        lock: The lock on the server's file that the call holds. None: it is paused, or needs none.
        started: The time at which the call was admitted, of a monotonic clock.
    """

    __slots__ = ("_is_closed", "_is_held", "_pauses", "_queue", "lock", "may_still_run", "started")

    def __init__(self, queue: CallQueue) -> None:
        self.may_still_run = False
        self.lock: int | None = None
        self.started = time.monotonic()
        self._queue = queue
        self._is_held = True
        self._is_closed = False
        self._pauses = 0

    @contextlib.asynccontextmanager
    async def pause(self) -> AsyncGenerator[None]:
        """
        Let other calls run during the block, in which the call waits for its caller's answer, also those of other processes.

        The call continues before any waiting call starts. If no slot becomes free within 3 s, it continues all the same.
        """
        self._pauses += 1
        is_cancelled = False
        if self._is_held and not self._is_closed:
            self._is_held = False
            self._queue.suspend(self)
        try:
            yield
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            self._pauses -= 1
            if not self._pauses and not is_cancelled:
                await self._resume()

    @property
    def is_paused(self) -> bool:
        """True while the call waits for its caller's answer."""
        return self._pauses > 0

    def pause_for(self, on_request: OnRequest) -> OnRequest:
        """Return *on_request*, which pauses the call until the caller has answered."""

        async def request(method: str, params: JsonObject) -> JsonObject:
            async with self.pause():
                return await on_request(method, params)

        return request

    async def _resume(self) -> None:
        if self._is_closed or self._is_held or not await self._queue.resume(self):
            return
        if self._is_closed or self._is_held or self._pauses:  # the call ended, continued or asked again meanwhile
            self._queue.suspend(self)
        else:
            self._is_held = True

    def take_lock(self) -> int | None:
        """Return the lock, which the call no longer holds."""
        lock, self.lock = self.lock, None
        return lock

    def close(self) -> None:
        """End the call."""
        if not self._is_closed:
            self._is_closed = True
            self._queue.end(self, is_held=self._is_held)
