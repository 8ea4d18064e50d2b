"""The end of an asyncio server of the tests."""

from __future__ import annotations

import asyncio

_TURNS_TO_ACCEPT = 10
"""Turns of the event loop that are more than enough to accept a connection."""


async def stop_listening(server: asyncio.Server) -> None:
    """
    Close *server* after the connections that it is just accepting are accepted.

    asyncio of Python 3.11 leaks a connection whose server is closed meanwhile: its socket is open until the garbage collector finds it.
    """
    for listener in server.sockets:
        asyncio.get_running_loop().remove_reader(listener.fileno())
    await run_callbacks()
    server.close()


async def run_callbacks() -> None:
    """Let the event loop run the callbacks that are due, and those that they ask for: a closed connection gives its socket back."""
    for _ in range(_TURNS_TO_ACCEPT):
        await asyncio.sleep(0)
