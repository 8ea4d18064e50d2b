"""
The name service of the host, asked in threads of our own.

It answers when it wants to, and whoever adds an address chooses who that is: a name that was not answered in time is asked for
again only behind others of its kind, and nobody else's look-up waits for a thread that it holds.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

Ask = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name, in its own time; raises OSError if it has none."""

_AT_ONCE = 32
_SLOW_AT_ONCE = 4
_MOST_SLOW = 1_000
_SLOW_S = 1.0


class NameService:
    """Looks names up; each at most once at a time."""

    def __init__(self, ask: Ask | None = None, *, slow_s: float = _SLOW_S) -> None:
        self._slow_s = slow_s
        self._ask = ask or _addresses
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="egress-names")
        self._slow_threads = ThreadPoolExecutor(_SLOW_AT_ONCE, thread_name_prefix="egress-slow-names")
        self._slow: dict[str, None] = {}
        self._under_way: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    @property
    def under_way(self) -> int:
        """How many look-ups have not ended."""
        return len(self._under_way)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host*; whoever does not wait for them any longer leaves the look-up to those who ask after it."""
        loop = asyncio.get_running_loop()
        asked = self._under_way.get((host, port))
        if asked is None or asked.get_loop() is not loop:
            threads = self._slow_threads if host in self._slow else self._threads
            asked = self._under_way[host, port] = loop.run_in_executor(threads, self._ask, host, port)
            asked.add_done_callback(lambda done: self._ended((host, port), done))
        began = time.monotonic()
        try:
            found = await asyncio.shield(asked)
        except asyncio.CancelledError:
            if time.monotonic() - began > self._slow_s:
                self._slow[host] = None
                if len(self._slow) > _MOST_SLOW:
                    del self._slow[next(iter(self._slow))]
            raise
        self._slow.pop(host, None)
        return found

    def _ended(self, what: tuple[str, int], done: asyncio.Future[Sequence[str]]) -> None:
        if self._under_way.get(what) is done:
            del self._under_way[what]
        if not done.cancelled():
            done.exception()  # somebody may have heard it; if nobody waited, nobody needs to


def _addresses(host: str, port: int) -> Sequence[str]:
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
