"""
The server processes of one `rookery serve --workers N`, and how they reach each other.

The processes accept connections of one listening socket. Some state lives in one process: its metrics and the MCP sessions of its
clients. Each process therefore also listens on a Unix socket, in a folder that only the user of the server can open.
"""

from __future__ import annotations

import asyncio
import re
import socket
import zlib
from dataclasses import dataclass
from pathlib import Path

_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_PROBE_TIMEOUT_S = 1.0
_OWNED_ID = re.compile(r"([1-9][0-9]{0,3})-[0-9A-Za-z_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerGroup:
    """
    The group of this process, and its own number in it.

    Attributes:
        number: The number of this process, from 1. A process that replaces another has its number.
        count: The number of processes. 1: the server is one process without a supervisor.
        folder: The folder of the Unix sockets; None for one process.
        metrics_socket: The socket that all processes share for the metrics without a key; None: each opens its own.
    """

    number: int = 1
    count: int = 1
    folder: Path | None = None
    metrics_socket: socket.socket | None = None

    @property
    def others(self) -> list[int]:
        """The numbers of the other processes."""
        return [number for number in range(1, self.count + 1) if number != self.number]

    def socket_path(self, number: int) -> Path:
        """
        Return the path of the Unix socket of a process.

        Raises:
            LookupError: The server is one process.
        """
        if self.folder is None:
            msg = "one process has no sockets for others"
            raise LookupError(msg)
        return self.folder / f"{number}.sock"

    def mark_owner(self, random_id: str) -> str:
        """Return *random_id* in the form from which `find_owner` reads this process. One process leaves it unchanged."""
        return random_id if self.count == 1 else f"{self.number}-{random_id}"

    def find_owner(self, marked_id: str) -> int | None:
        """Return the number of the other process that made *marked_id*; None if it is this process or cannot be read."""
        match = _OWNED_ID.fullmatch(marked_id)
        number = int(match[1]) if match else self.number
        return number if number != self.number and number <= self.count else None

    def assign_owner(self, marked_id: str) -> int | None:
        """
        Return the number of the other process that takes over *marked_id* if no process has what it stands for; None: this process.

        All processes return the same one, also for an id that was made when the server had more processes, or only one.
        """
        match = _OWNED_ID.fullmatch(marked_id)
        number = int(match[1]) if match else zlib.crc32(marked_id.encode("utf-8"))
        number = (number - 1) % self.count + 1
        return number if number != self.number else None

    async def fetch(self, number: int, path: str, *, timeout_s: float) -> bytes | None:
        """Return the body of `GET path` from another process; None if it does not answer with 200 in time."""
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_unix_connection(str(self.socket_path(number)), limit=_MAX_RESPONSE_BYTES)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode("ascii"))
                    head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return None
        return body if head.startswith(b"HTTP/1.1 200 ") else None

    async def count_answering(self) -> int:
        """Return the number of processes that answer, with this one."""
        answers = await asyncio.gather(*(self.fetch(number, "/healthz", timeout_s=_PROBE_TIMEOUT_S) for number in self.others))
        return 1 + sum(answer is not None for answer in answers)
