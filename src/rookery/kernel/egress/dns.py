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

LookUp = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name, in its own time; raises OSError if it has none."""

_MAX_LOOKUPS = 32
_MAX_SLOW_LOOKUPS = 4
_MAX_SLOW_HOSTS = 1_000
_SLOW_THRESHOLD_S = 1.0


class DnsResolver:
    """Looks names up; each at most once at a time."""

    def __init__(self, look_up: LookUp | None = None, *, slow_threshold_s: float = _SLOW_THRESHOLD_S) -> None:
        self._slow_threshold_s = slow_threshold_s
        self._look_up = look_up or _resolve_with_system
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="egress-names")
        self._slow_threads = ThreadPoolExecutor(_MAX_SLOW_LOOKUPS, thread_name_prefix="egress-slow-names")
        self._slow_hosts: dict[str, None] = {}
        self._pending: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    @property
    def pending_count(self) -> int:
        """How many look-ups have not ended."""
        return len(self._pending)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host*; whoever does not wait for them any longer leaves the look-up to those who ask after it."""
        loop = asyncio.get_running_loop()
        asked = self._pending.get((host, port))
        if asked is None or asked.get_loop() is not loop:
            threads = self._slow_threads if host in self._slow_hosts else self._threads
            asked = self._pending[host, port] = loop.run_in_executor(threads, self._look_up, host, port)
            asked.add_done_callback(lambda done: self._on_done((host, port), done))
        began = time.monotonic()
        try:
            found = await asyncio.shield(asked)
        except asyncio.CancelledError:
            if time.monotonic() - began > self._slow_threshold_s:
                self._slow_hosts[host] = None
                if len(self._slow_hosts) > _MAX_SLOW_HOSTS:
                    del self._slow_hosts[next(iter(self._slow_hosts))]
            raise
        self._slow_hosts.pop(host, None)
        return found

    def _on_done(self, what: tuple[str, int], done: asyncio.Future[Sequence[str]]) -> None:
        if self._pending.get(what) is done:
            del self._pending[what]
        if not done.cancelled():
            done.exception()  # somebody may have heard it; if nobody waited, nobody needs to


def _resolve_with_system(host: str, port: int) -> Sequence[str]:
    return [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
