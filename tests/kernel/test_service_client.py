"""The HTTP client of services that an operator has set, against a server that says what was measured."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from rookery.kernel.egress.service_client import ResponseTooLarge, RetryableFailure, RetryBounds, ServiceClient, is_temporary, repeat
from tests.deadlines import HANG_S
from tests.listening import stop_listening

pytestmark = pytest.mark.embedded_store


@dataclass
class Service:
    """
    A server that sends *responses* in turn, the last one from then on.

    Attributes:
        connections: The number of requests on each connection.
        closes_when_used_again: Each connection is closed, without an answer, at its second request.
    """

    responses: Sequence[bytes]
    closes_when_used_again: bool = False
    url: str = ""
    heads: list[str] = field(default_factory=list[str])
    connections: list[int] = field(default_factory=list[int])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.connections)
        self.connections.append(0)
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                self.connections[number] += 1
                if self.closes_when_used_again and self.connections[number] > 1:
                    break
                self.heads.append(head)
                writer.write(self.responses[min(len(self.heads), len(self.responses)) - 1])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def run_service(*responses: bytes, closes_when_used_again: bool = False) -> AsyncGenerator[tuple[Service, ServiceClient]]:
    service = Service(responses, closes_when_used_again=closes_when_used_again)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a"
    client = ServiceClient({"authorization": "Bearer secret"}, verify_ssl=True, connect_timeout_s=5)
    try:
        yield service, client
    finally:
        await client.close()
        await stop_listening(server)
        for _ in range(5):  # the connections of the server end
            await asyncio.sleep(0.001)


def respond(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


async def test_a_closed_idle_connection_is_replaced_once_if_the_request_may_be_repeated() -> None:
    """A service closes an idle connection at the moment of the next request."""
    async with run_service(respond(b"{}"), closes_when_used_again=True) as (service, client):
        responses = [await client.fetch("GET", service.url, timeout_s=HANG_S, is_repeatable=True) for _ in range(2)]
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.fetch("GET", service.url, timeout_s=HANG_S)

    assert ([response.parse_fields() for response in responses], len(service.heads), service.connections) == ([{}, {}], 2, [2, 2])


async def test_a_request_after_the_close_opens_no_connection() -> None:
    """A retry that waits while the server stops would open a pool that nobody closes."""
    async with run_service(respond(b"{}")) as (service, client):
        await client.close()
        with pytest.raises(httpx2.ConnectError, match="closed"):
            await client.fetch("GET", service.url, timeout_s=HANG_S)

    assert service.connections == []


async def test_a_body_is_read_up_to_its_limit_after_it_is_unpacked() -> None:
    """A small compressed body may be a large one."""
    packed = gzip.compress(b"0" * 3_000_000)
    async with run_service(respond(packed, "content-encoding: gzip")) as (service, client):
        response = await client.fetch("GET", service.url, timeout_s=HANG_S, max_bytes=3_000_000)
        with pytest.raises(ResponseTooLarge, match="larger than 1 MiB"):
            await client.fetch("GET", service.url, timeout_s=HANG_S, max_bytes=2**20)

    assert (len(packed) < 10_000, len(response.body)) == (True, 3_000_000)


async def test_a_redirect_is_not_followed_and_a_cookie_is_not_sent_back() -> None:
    """A redirect would send the key to another host."""
    moved = respond(b"", "location: /b", "set-cookie: a=b", status="307 Temporary Redirect")
    async with run_service(moved, respond(b"")) as (service, client):
        statuses = [(await client.fetch("POST", service.url, b"{}", timeout_s=HANG_S)).status for _ in range(2)]

    assert statuses == [307, 200]
    assert [head.lower().count("cookie") for head in service.heads] == [0, 0]


async def test_the_total_time_has_a_limit() -> None:
    """A service that accepts a request and does not answer."""
    async with run_service(b"") as (service, client):
        with pytest.raises(TimeoutError):
            await client.fetch("GET", service.url, timeout_s=0.05)


async def test_a_failure_is_repeated_within_its_bounds() -> None:
    """The last failure is raised. A longer delay than the bound, or one past the deadline, is not waited for."""
    loop, tries = asyncio.get_running_loop(), list[float]()

    async def fail(retry_after_s: float | None, max_attempts: int | None = None) -> RetryableFailure:
        tries.append(loop.time())
        return RetryableFailure(ValueError(f"try {len(tries)}"), retry_after_s, max_attempts=max_attempts)

    bounds = RetryBounds(max_attempts=3, min_delay_s=0.001, max_delay_s=5)
    for delay_s, limit, deadline_s, expected in ((None, None, 60, 3), (0, 2, 60, 2), (6, None, 60, 1), (4, None, 3, 1)):
        tries.clear()
        with pytest.raises(ValueError, match=f"try {expected}"):
            await repeat(lambda delay_s=delay_s, limit=limit: fail(delay_s, limit), bounds, deadline=loop.time() + deadline_s)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_the_same_request_may_succeed_after_these_statuses(status: int) -> None:
    """The service is busy, or fails."""
    assert is_temporary(status)


@pytest.mark.parametrize("status", [200, 400, 401, 404, 422, 501, 505])
def test_the_same_request_has_the_same_result_after_these_statuses(status: int) -> None:
    """Two of them are 5xx: for what a server lacks."""
    assert not is_temporary(status)
