"""The client of `rookery connect` against a server that answers nonsense: each answer is an error of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.client import parse_headers

import pytest

from rookery.connect.errors import ServerUnusable
from rookery.connect.server_client import ServerClient
from rookery.kernel.secret import Secret
from tests.deadlines import HANG_S


@contextmanager
def answering(answer: bytes) -> Generator[str]:
    """Serve one connection with the bytes of *answer* and yield the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(HANG_S)

        def serve() -> None:
            connection, _ = listener.accept()
            connection.settimeout(HANG_S)
            with connection, connection.makefile("rb") as request:
                request.readline()
                headers = parse_headers(request)
                request.read(int(headers.get("Content-Length") or 0))  # what is left unread would reset the connection
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(HANG_S)


def test_an_error_whose_body_breaks_off_is_a_server_that_cannot_be_reached() -> None:
    """A proxy that dies in the middle of its error page."""
    answer = b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
    with answering(answer) as url, pytest.raises(ServerUnusable) as raised:
        ServerClient(url, Secret("ak_key")).post("/mcp", {})
    assert raised.value.code == "unreachable"


def test_an_error_keeps_its_status_and_message() -> None:
    """The body of an error is read as that of any other answer."""
    body = b'{"error": {"message": "No."}}'
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    with answering(head + body) as url:
        answer = ServerClient(url, Secret("ak_key")).post("/mcp", {})
    assert (answer.status, answer.message) == (403, "No.")


def test_a_message_of_the_server_does_not_control_the_terminal() -> None:
    """Another server at the address may send anything: controls are escaped, and a long message is cut."""
    body = b'{"error": {"message": "No\\u001b[2J\\r\\ud83d' + b"x" * 10_000 + b'"}}'
    head = f"HTTP/1.1 401 Unauthorized\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    with answering(head + body) as url, pytest.raises(ServerUnusable) as raised:
        ServerClient(url, Secret("ak_key")).measure_tools(f"{url}/mcp")
    assert str(raised.value).startswith(r"No\x1b[2J\r\ud83dxxx")
    assert len(str(raised.value)) < 1_000


def test_an_answer_nested_too_deeply_is_no_object() -> None:
    """A parser's own limit must not end the command."""
    body = b'{"result":' + b"[" * 200_000
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
    with answering(head + body) as url, pytest.raises(ServerUnusable) as raised:
        ServerClient(url, Secret("ak_key")).measure_tools(f"{url}/mcp")
    assert raised.value.code == "unexpected_answer"
