"""The state of a connection to a remote server."""

from __future__ import annotations

import asyncio


class HttpConnectionState:
    """
    The state of an HTTP connection. Implements `TransportState`.

    Attributes:
        last_error: The last error that concerned the session.
        needs_login: The last error was a missing or rejected login of the server's entry.
        is_callers_login: The last error status was a login of the caller that the server rejected, or missed.
        retry_after_s: The seconds of Retry-After of the last error status; None if it had none.
        is_throttled: The last error status allows no further request for now: it had Retry-After, or was 429.
        ended: Set when the connection has ended.
    """

    pid = None

    def __init__(self) -> None:
        self.last_error = ""
        self.needs_login = False
        self.is_callers_login = False
        self.retry_after_s: int | None = None
        self.is_throttled = False
        self.ended = asyncio.Event()

    def get_end_reason(self) -> str:
        """Return the last error."""
        return self.last_error

    def is_ended(self) -> bool:
        """Return whether the connection has ended."""
        return self.ended.is_set()

    async def wait_ended(self) -> None:
        """Wait for the end. The end of a Streamable HTTP session is only found by a request."""
        await self.ended.wait()
