"""
DNS look-ups through the resolver of the host, in threads of their own.

A user who adds a URL also chooses its DNS server, which may answer late. Look-ups of hosts that were slow before share a few
threads, so that they cannot delay the look-ups of other hosts.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

LookUp = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name and may block; raises OSError if the name has no address."""

_MAX_LOOKUPS = 32
_MAX_SLOW_LOOKUPS = 4
_MAX_SLOW_HOSTS = 1_000
_SLOW_THRESHOLD_S = 1.0


class DnsResolver:
    """A DNS resolver that runs at most one look-up per name at a time."""

    def __init__(self, look_up: LookUp | None = None, *, slow_threshold_s: float = _SLOW_THRESHOLD_S) -> None:
        self._slow_threshold_s = slow_threshold_s
        self._look_up = look_up or _resolve_with_system
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="egress-names")
        self._slow_threads = ThreadPoolExecutor(_MAX_SLOW_LOOKUPS, thread_name_prefix="egress-slow-names")
        self._slow_hosts: dict[str, None] = {}
        self._pending: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    @property
    def pending_count(self) -> int:
        """The number of look-ups that have not finished."""
        return len(self._pending)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host*. A cancelled caller does not cancel the look-up, which other callers may share."""
        loop = asyncio.get_running_loop()
        lookup = self._pending.get((host, port))
        if lookup is None or lookup.get_loop() is not loop:
            threads = self._slow_threads if host in self._slow_hosts else self._threads
            lookup = self._pending[host, port] = loop.run_in_executor(threads, self._look_up, host, port)
            lookup.add_done_callback(lambda future: self._on_done((host, port), future))
        began = time.monotonic()
        try:
            addresses = await asyncio.shield(lookup)
        except asyncio.CancelledError:
            if time.monotonic() - began > self._slow_threshold_s:
                self._slow_hosts[host] = None
                if len(self._slow_hosts) > _MAX_SLOW_HOSTS:
                    del self._slow_hosts[next(iter(self._slow_hosts))]
            raise
        self._slow_hosts.pop(host, None)
        return addresses

    def _on_done(self, key: tuple[str, int], future: asyncio.Future[Sequence[str]]) -> None:
        if self._pending.get(key) is future:
            del self._pending[key]
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved, even if no caller waited for it


def _resolve_with_system(host: str, port: int) -> Sequence[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
