"""A cheap load client: requests as bytes over keep-alive connections, each timed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Milliseconds of each request, and seconds of all together."""

    each_ms: list[float]
    took_s: float

    @property
    def rate(self) -> float:
        """Requests per second."""
        return len(self.each_ms) / self.took_s

    def percentile(self, share: float) -> float:
        """Return the milliseconds that *share* of the requests did not exceed."""
        ordered = sorted(self.each_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def p50(self) -> float:
        """The median in milliseconds."""
        return statistics.median(self.each_ms)

    def as_json(self) -> dict[str, float]:
        """Return count, rate and percentiles as JSON."""
        return {
            "n": len(self.each_ms),
            "p50_ms": round(self.p50, 3),
            "p95_ms": round(self.percentile(0.95), 3),
            "p99_ms": round(self.percentile(0.99), 3),
            "per_s": round(self.rate, 1),
        }


class Connection:
    """One keep-alive connection to a server."""

    def __init__(self, url: str, key: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        extra_headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._head = f"Host: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n{extra_headers}"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send one request and return its status and body."""
        content = b"" if body is None else json.dumps(body).encode()
        kind = "Content-Type: application/json\r\n" if body is not None else ""
        request = f"{method} {path} HTTP/1.1\r\n{self._head}{kind}Content-Length: {len(content)}\r\n\r\n".encode() + content
        async with asyncio.timeout(_DEADLINE_S):
            if self._reader is None or self._writer is None:
                self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
            self._writer.write(request)
            head = await self._reader.readuntil(b"\r\n\r\n")
            lengths = (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            length = next(lengths, 0)  # a 204 has no content
            body = await self._reader.readexactly(length)
        return int(head[9:12]), body

    async def close(self) -> None:
        """Close the connection, also if the server has reset it."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()


async def measure(
    url: str,
    key: str,
    request: Callable[[int], tuple[str, str, Mapping[str, object] | None]],
    *,
    count: int,
    clients: int = 1,
    expect: int = 200,
    warm: int = 10,
    headers: Mapping[str, str] | None = None,
) -> Timings:
    """
    Send *count* requests over *clients* connections and time each.

    Args:
        request: Given the request's number, from 0, returns its method, path and body.
        expect: The required status of every response; another one raises an error.
        warm: Requests sent before and not counted, with numbers below 0.
        headers: Headers of each request besides the key.
    """
    connections = [Connection(url, key, headers) for _ in range(clients)]
    each_ms = list[float]()
    numbers = iter(range(count))

    async def one(connection: Connection, number: int) -> None:
        method, path, body = request(number)
        started = time.perf_counter()
        status, response = await connection.send(method, path, body)
        each_ms.append((time.perf_counter() - started) * 1000)
        if status != expect:
            raise RuntimeError(f"{method} {path}: {status} {response[:300]!r}")

    async def client(connection: Connection) -> None:
        for number in numbers:
            await one(connection, number)

    try:
        for number in range(-warm, 0):
            await one(connections[number % clients], number)
        each_ms.clear()
        started = time.perf_counter()
        await asyncio.gather(*(client(connection) for connection in connections))
        return Timings(each_ms=each_ms, took_s=time.perf_counter() - started)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
