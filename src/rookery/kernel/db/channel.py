"""The interface of messages between the processes that share a record store."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Protocol


class MessageChannel(Protocol):
    """A channel to all processes that share a record store. A message may be lost while a process is not connected."""

    async def send(self, message: str) -> None:
        """
        Send *message*, of less than 8,000 bytes, to all listening processes, with this one.

        Raises:
            EngineUnavailable: The store is unavailable.
        """
        ...

    async def listen(self, on_connect: Callable[[], None], on_message: Callable[[str], None]) -> NoReturn:
        """Call *on_message* with each message until cancelled, and *on_connect* after each connection, as messages before it were lost."""
        ...
