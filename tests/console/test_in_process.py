"""The transport with which the console calls its own server."""

from __future__ import annotations

import asyncio

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from rookery.console.in_process import InProcessTransport
from rookery.kernel.request_context import CONSOLE_CALL

BROWSER: Scope = {"type": "http", "client": ("192.0.2.7", 4711), "scheme": "https", "headers": [(b"host", b"rookery.example")]}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


def part(text: str) -> Message:
    """Return one part of a response."""
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}


class Server:
    """A server that sends *parts*, and then waits, fails or ends."""

    def __init__(self, *parts: Message, then: str = "end") -> None:
        self.parts = parts
        self.then = then
        self.scope: Scope = {}
        self.is_cancelled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        self.scope = scope
        for message in self.parts:
            await send(message)
        if self.then == "fail":
            raise RuntimeError
        if self.then == "wait":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.is_cancelled = True
                raise


def open_client(server: Server) -> httpx2.AsyncClient:
    """Return a client of *server* for the browser."""
    return httpx2.AsyncClient(transport=InProcessTransport(server, BROWSER), base_url="http://localhost")


async def test_calls_carry_the_browsers_address_and_host() -> None:
    """in-process calls carry the browser's address, and are marked so that they have a limit of their own."""
    server = Server(START, part("a"), part("b"))
    async with open_client(server) as client:
        response = await client.get("/x%2Fy?q=1")
    assert response.text == "ab"
    assert (server.scope["client"], server.scope["scheme"], server.scope[CONSOLE_CALL]) == (("192.0.2.7", 4711), "https", True)
    assert (server.scope["raw_path"], server.scope["query_string"]) == (b"/x%2Fy", b"q=1")
    assert (b"host", b"rookery.example") in server.scope["headers"]


@pytest.mark.parametrize("parts", [(), (START,), (START, part("half"))], ids=["nothing", "head", "half"])
async def test_a_failure_is_not_taken_for_the_end(parts: tuple[Message, ...]) -> None:
    """A response that breaks off raises, so that a page never shows half of a list as the whole."""
    async with open_client(Server(*parts, then="fail")) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_a_server_without_a_response_does_not_hang() -> None:
    """A request that ends without a response raises."""
    async with open_client(Server()) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_closing_a_stream_cancels_its_request() -> None:
    """A browser that leaves ends the call, so that nothing is computed for nobody."""
    server = Server(START, part("first"), then="wait")
    async with open_client(server) as client:
        async with client.stream("GET", "/") as response:
            async for text in response.aiter_text():
                assert text == "first"
                break
        assert server.is_cancelled
