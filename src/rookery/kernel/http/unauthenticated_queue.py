"""
Whose request begins first when more arrive than can be served: who has shown a right key goes before strangers.

A key is looked at in the request itself, so a flood of wrong ones costs what its refusals cost. Begun as they arrive, a hundred
of them that lie ready together stand in front of everybody else's next request. So a connection whose last answer went to nobody
known has its requests begun one with each turn of the event loop, and between two of them whatever else is ready is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

StartRequest = Callable[[], object]


class UnauthenticatedQueue:
    """The requests of strangers, in the order in which they came; as many as there are connections, at most."""

    def __init__(self) -> None:
        self._queue: deque[StartRequest] = deque()
        self._has_started = False

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._queue)

    def start(self, request: StartRequest) -> None:
        """Begin *request*: at once if no other stranger's began in this turn of the loop, else when those before it have begun."""
        if self._has_started:
            self._queue.append(request)
            return
        self._has_started = True
        asyncio.get_running_loop().call_soon(self._start_next)
        request()

    def _start_next(self) -> None:
        if not self._queue:
            self._has_started = False
            return
        asyncio.get_running_loop().call_soon(self._start_next)
        self._queue.popleft()()
