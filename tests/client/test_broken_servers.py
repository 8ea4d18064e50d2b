"""The client in front of servers and proxies that misbehave: scripted answers on a real socket."""

from __future__ import annotations

import logging
import pickle
import re
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager

import httpx2
import pytest

from rookery_client import AsyncRookery, ConnectionFailed, NotFoundError, ResponseTimeout, Rookery, UnexpectedResponse
from rookery_client.errors import RateLimited, ResourceNotFound
from tests.deadlines import HANG_S

KEY = "sk_live_" + "x" * 32
TAGS = b'{"tags": []}'
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"

Answer = bytes | Callable[[socket.socket], None]


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return a whole response. Underscores of header names are dashes."""
    lines = [
        f"HTTP/1.1 {status} X",
        f"Content-Length: {len(body)}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def event(text: str) -> bytes:
    """Return an event as one chunk."""
    part = f"event: note\ndata: {text}\n\n".encode()
    return f"{len(part):x}\r\n".encode() + part + b"\r\n"


def reset(connection: socket.socket) -> None:
    """Close a connection with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def refuse(code: str) -> bytes:
    """Return the body of an error."""
    return f'{{"error": "{code}", "message": "A sentence."}}'.encode()


class ScriptedServer:
    """A server that gives the answers of a script, one for each connection, and then closes it. The last answer is repeated."""

    def __init__(self, *answers: Answer) -> None:
        self.requests = list[bytes]()
        self._answers = answers
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection:
                connection.settimeout(HANG_S)
                self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        request = b""
        while b"\r\n\r\n" not in request or len(request.partition(b"\r\n\r\n")[2]) < self._read_length(request):
            part = connection.recv(65536)
            if not part:
                return
            request += part
        self.requests.append(request)
        reply = self._answers[min(len(self.requests), len(self._answers)) - 1]
        if isinstance(reply, bytes):
            connection.sendall(reply)
        else:
            reply(connection)

    @staticmethod
    def _read_length(request: bytes) -> int:
        found = re.search(rb"(?i)content-length: (\d+)", request)
        return int(found[1]) if found else 0

    def close(self) -> None:
        """Stop to listen."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(HANG_S)


@contextmanager
def serve(*answers: Answer) -> Generator[ScriptedServer]:
    """Serve *answers*, one for each connection."""
    server = ScriptedServer(*answers)
    try:
        yield server
    finally:
        server.close()


def test_a_redirect_is_named_and_not_followed() -> None:
    """The key is not sent to another host; the message says which address to set."""
    with serve(answer(301, Location="https://agents.example.org/")) as server, Rookery(server.url, KEY) as client:
        with pytest.raises(UnexpectedResponse, match=r"redirect to https://agents\.example\.org/") as caught:
            client.memory.list_tags()

        assert (caught.value.status, len(server.requests)) == (301, 1)


def test_a_page_of_a_proxy_is_shown_in_the_message() -> None:
    """A login page with the status 200 is no result, and the message says so."""
    shown = pytest.raises(UnexpectedResponse, match="is not JSON, but '<html>Sign in</html>'")
    with serve(answer(200, b"<html>Sign in</html>")) as server, Rookery(server.url, KEY) as client, shown:
        client.memory.list_tags()


def test_a_body_that_cannot_be_decoded_is_a_failed_connection() -> None:
    """Errors of the HTTP library do not reach the user of the client."""
    with serve(answer(200, b"no gzip", Content_Encoding="gzip")) as server, Rookery(server.url, KEY, max_retries=1) as client:
        with pytest.raises(ConnectionFailed, match=f"list_tags has no response: DecodingError.*{server.url}"):
            client.memory.list_tags()

        assert len(server.requests) == 2


def test_a_silent_server_is_a_time_out() -> None:
    """time-outs have a class of their own; a call of a tool is not repeated after one."""
    woken = threading.Event()

    def wait(_: socket.socket) -> None:
        woken.wait(HANG_S)

    with serve(wait) as server, Rookery(server.url, KEY) as client:
        with pytest.raises(ResponseTimeout, match="The server may have acted") as caught:
            client.with_options(timeout_s=2).tools.call_tool(server="time", tool="get_current_time")
        woken.set()

        assert caught.value.may_have_acted
        assert len(server.requests) == 1


def test_reads_that_are_posts_are_repeated() -> None:
    """A recall only reads, so a lost answer or a proxy's error is no reason to fail."""
    recalled = b'{"recall_id": "1", "memories": [], "is_confident": false, "took_ms": 1}'
    with serve(reset, answer(502, b"<html>"), answer(200, recalled)) as server, Rookery(server.url, KEY) as client:
        assert client.memory.recall(query="When do we deploy?").memories == []
        assert len(server.requests) == 3


def test_a_delete_whose_answer_was_lost_succeeds() -> None:
    """The second attempt finds nothing because the first one deleted it. A first attempt that finds nothing is an error."""
    missing = answer(404, refuse("resource_not_found"))
    with serve(reset, missing) as server, Rookery(server.url, KEY) as client:
        assert client.memory.delete_memory("01954000-0000-7000-8000-000000000001") is None
    with serve(missing) as server, Rookery(server.url, KEY) as client, pytest.raises(NotFoundError):
        client.memory.delete_memory("01954000-0000-7000-8000-000000000001")


def test_an_idempotency_key_of_the_caller_is_sent() -> None:
    """A job that starts again after a crash sends the same key."""
    stored = answer(201, b"{}")
    with serve(stored) as server, Rookery(server.url, KEY) as client:
        for _ in range(2):
            with pytest.raises(UnexpectedResponse, match="does not match its schema"):
                client.memory.remember(content="We deploy on Tuesdays.", idempotency_key="deploy-day")

        assert all(b"idempotency-key: deploy-day\r\n" in request.lower() for request in server.requests)


def test_retries_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A wait for Retry-After is not silent."""
    limited = answer(429, refuse("rate_limited"), Retry_After="1")
    with serve(limited, answer(200, TAGS)) as server, Rookery(server.url, KEY) as client, caplog.at_level(logging.INFO, "rookery_client"):
        client.memory.list_tags()

    assert [record.getMessage() for record in caplog.records if record.name == "rookery_client"] == [
        "list_tags: attempt 1 of 4 failed (status 429); the next one is in 1.0 s"
    ]


def test_options_of_a_call_share_the_connections() -> None:
    """time-out, attempts and headers for one call, as in other clients."""
    with serve(answer(200, TAGS)) as server, Rookery(server.url, KEY, headers={"X-Team": "a"}) as client:
        client.with_options(headers={"X-Workspace-ID": "1"}, max_retries=0).memory.list_tags()
        client.memory.list_tags()

        first, second = (request.lower() for request in server.requests)
        assert b"x-workspace-id: 1\r\n" in first
        assert b"x-team: a\r\n" in first
        assert b"x-workspace-id" not in second
        assert re.search(rb"user-agent: rookery-client-python/\d+\.\d+", first)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "127.0.0.1:8400"}, "must begin with http:// or https://"),
        ({"url": "localhost"}, "must begin with http:// or https://"),
        ({"api_key": "sk_live_…"}, "characters that no key has"),
        ({"api_key": "sk_live_a\nb"}, "characters that no key has"),
        ({"api_key": "   "}, "There is no key"),
        ({"headers": {"X-Team": "a\r\nb: c"}}, "The header X-Team"),
    ],
)
def test_a_wrong_address_or_key_is_refused_at_once(arguments: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that can never work is not tried four times, and no message contains the key."""
    monkeypatch.delenv("ROOKERY_KEY", raising=False)
    for client_class in (Rookery, AsyncRookery):
        with pytest.raises(ValueError, match=message) as caught:
            client_class(**{"url": "http://127.0.0.1:1", "api_key": KEY, **arguments})  # pyright: ignore[reportArgumentType] - wrong ones
        assert "sk_live_a" not in str(caught.value)
        assert KEY not in str(caught.value)


def test_white_space_around_the_key_is_ignored() -> None:
    """A key that was read from a file ends with a line break."""
    with serve(answer(200, TAGS)) as server, Rookery(server.url, f"{KEY}\n") as client:
        client.memory.list_tags()

        assert f"authorization: Bearer {KEY}\r\n".lower().encode() in server.requests[0].lower()


def test_errors_reach_the_parent_of_a_worker_process() -> None:
    """Errors with their attributes can be pickled."""
    missing, raised = answer(404, refuse("resource_not_found"), X_Request_ID="req_1"), pytest.raises(ResourceNotFound)
    with serve(missing) as server, Rookery(server.url, KEY) as client, raised as caught:
        client.memory.get_memory("01954000-0000-7000-8000-000000000001")
    copy = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own

    assert type(copy) is ResourceNotFound
    assert (str(copy), copy.code, copy.request_id) == (str(caught.value), "resource_not_found", "req_1")


def test_a_stream_is_opened_again_until_it_begins() -> None:
    """A 429 with Retry-After, and then the stream."""
    answers = answer(429, refuse("rate_limited"), Retry_After="1"), STREAM_HEAD + event("one") + END
    with serve(*answers) as server, Rookery(server.url, KEY) as client, client.sessions.stream_session("sess_1") as events:
        assert [received.data for received in events] == ["one"]
    with serve(answers[0]) as server, Rookery(server.url, KEY, max_retries=0) as client:
        opening = client.sessions.stream_session("sess_1")
        with pytest.raises(RateLimited), opening:
            pass


def test_an_answer_that_is_no_stream_is_named() -> None:
    """A proxy's page is no lost connection."""
    shown = pytest.raises(UnexpectedResponse, match="is not a stream of events, but text/html")
    with serve(answer(200, b"<html>", Content_Type="text/html")) as server, Rookery(server.url, KEY) as client:
        opening = client.sessions.stream_session("sess_1")
        with shown, opening:
            pass


def test_a_stream_without_further_events_is_empty() -> None:
    """A session that has ended, whose events the client has all: the server answers 204."""
    with serve(answer(204)) as server, Rookery(server.url, KEY) as client, client.sessions.stream_session("sess_1", after=9) as events:
        assert list(events) == []


@pytest.mark.parametrize("end", [b"", reset])
async def test_a_stream_that_breaks_off_says_so(end: Answer) -> None:
    """The events before the loss arrive, then the loss is an error and not the end of the stream."""

    def cut(connection: socket.socket) -> None:
        connection.sendall(STREAM_HEAD + event("one"))
        seen.wait(HANG_S)
        if not isinstance(end, bytes):
            end(connection)

    def read(client: Rookery) -> Iterator[str]:
        with client.sessions.stream_session("sess_1") as events:
            for part in events:
                yield part.data
                seen.set()

    async def read_async(client: AsyncRookery) -> AsyncIterator[str]:
        async with client.sessions.stream_session("sess_1") as events:
            async for part in events:
                yield part.data
                seen.set()

    seen = threading.Event()
    with serve(cut) as server, Rookery(server.url, KEY) as client:
        parts = read(client)
        assert next(parts) == "one"
        with pytest.raises(ConnectionFailed, match="stream_session broke off"):
            next(parts)
    seen.clear()
    with serve(cut) as server:
        async with AsyncRookery(server.url, KEY) as client:
            async_parts = read_async(client)
            assert await anext(async_parts) == "one"
            with pytest.raises(ConnectionFailed, match="stream_session broke off"):
                await anext(async_parts)


def test_an_error_of_the_user_inside_a_stream_is_kept() -> None:
    """Only the loss of the stream itself is a failed connection of the stream."""
    lost = httpx2.ReadError("that of another client")
    with serve(STREAM_HEAD + event("one") + END) as server, Rookery(server.url, KEY) as client:
        stream = client.sessions.stream_session("sess_1")
        with pytest.raises(httpx2.ReadError) as caught, stream:
            raise lost

    assert caught.value is lost
