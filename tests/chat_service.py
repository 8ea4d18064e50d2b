"""
A provider with OpenAI's `/v1/chat/completions` on the loopback interface, which answers as it is told, byte by byte.

The name of the model selects a script of `SCRIPTS`. A test can also put scripts in `ChatService.queue`; they come first.

    python -m tests.chat_service [PORT]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tests.deadlines import HANG_S
from tests.listening import run_callbacks, stop_listening

KEY = "sk-the-key-of-the-operator"

ANSWER = "The heron 🪶 stands still — 鷺, and so does the ﬂat water."
"""An answer with characters of one to four bytes."""

JSON_ANSWER = '{"city": "Lyon", "height_m": 173}'

USAGE = {"prompt_tokens": 11, "completion_tokens": 17, "total_tokens": 28}

Json = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as JSON."""
        return cast("Json", json.loads(self.body))


@dataclass
class ChatService:
    """
    The service and its requests.

    Attributes:
        key: The key that requests must have; None for no check.
        queue: Scripts of the next requests.
        requests: All POST requests in the order of their arrival.
        disconnects: Number of answers whose client closed the connection before their end.
        connections: Number of connections that were opened.
        first_byte_at: `time.perf_counter()` when the last answer's first byte was sent.
    """

    key: str | None = KEY
    queue: deque[Script] = field(default_factory=deque["Script"])
    requests: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    probes: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    probe_status: int = 200
    disconnects: int = 0
    connections: int = 0
    active_count: int = 0
    max_active_count: int = 0
    first_byte_at: float = 0.0
    port: int = 0
    certificate: Path | None = None
    is_released: threading.Event = field(default_factory=threading.Event)

    def url(self, model: str = "ok", *, key: str | None = None) -> str:
        """Return its address with *model*, for ROOKERY_GENERATION."""
        key = self.key if key is None else key
        scheme = "openai" if self.certificate is None else "openai+https"
        return f"{scheme}://{f':{key}@' if key else ''}127.0.0.1:{self.port}/v1?model={model}"

    def release(self) -> None:
        """Let the answers go on that `Exchange.hold` stopped."""
        self.is_released.set()


class DisconnectedError(Exception):
    """The client closed the connection before the answer's end."""


class Exchange:
    """A request and the connection of its answer."""

    def __init__(self, service: ChatService, request: RecordedRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.service = service
        self.request = request
        self.body = request.json if request.body else {}
        self._reader = reader
        self._writer = writer
        self.closes = False

    @property
    def streams(self) -> bool:
        """True if a stream is requested."""
        return self.body.get("stream") is True

    async def send(self, data: bytes) -> None:
        """Send bytes as a segment of its own."""
        self.service.first_byte_at = time.perf_counter()
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise DisconnectedError from None

    async def send_response(self, status: int, body: bytes, *, content_type: str = "application/json", **headers: str) -> None:
        """Send a whole response. Underscores in names of headers become hyphens."""
        lines = [f"HTTP/1.1 {status} Scripted", f"content-type: {content_type}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join([*lines, "", ""]).encode() + body)

    async def send_json(self, status: int, body: object, **headers: str) -> None:
        """Send a whole response of JSON."""
        await self.send_response(status, json.dumps(body, ensure_ascii=False).encode(), **headers)

    async def start_stream(self) -> None:
        """Send the headers of an event stream."""
        await self.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")

    async def send_part(self, data: bytes) -> None:
        """Send a part of the stream as one chunk of HTTP."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end_stream(self) -> None:
        """Send the last chunk of HTTP."""
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Reset the connection."""
        sock = cast("socket.socket", self._writer.get_extra_info("socket"))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        self.closes = True

    async def hold(self) -> None:
        """Wait until the test calls `release`. Raises `DisconnectedError` if the client closes the connection before."""
        gone = asyncio.ensure_future(self._reader.read(1))
        deadline = time.monotonic() + HANG_S
        try:
            while not self.service.is_released.is_set() and time.monotonic() < deadline:
                await asyncio.wait([gone], timeout=0.005)
                if gone.done():
                    raise DisconnectedError
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)


Script = Callable[[Exchange], Awaitable[None]]


def build_completion(text: str = ANSWER, **changes: object) -> Json:
    """Return the JSON of a completion. None as a value removes the field."""
    completion: Json = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_764_000_000,
        "model": "heron-1-2026",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": USAGE,
    } | changes
    return {name: value for name, value in completion.items() if value is not None}


def build_chunk(text: str | None = None, *, finish_reason: str | None = None, **changes: object) -> Json:
    """Return the JSON of a chunk of a stream."""
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "heron-1-2026", "choices": choices} | changes


def build_event(data: object) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


DONE_EVENT = b"data: [DONE]\n\n"
USAGE_EVENT = build_event({"id": "chatcmpl-1", "model": "heron-1-2026", "choices": [], "usage": USAGE})


def split_words(text: str) -> list[str]:
    """Return the words of *text*, each with the space after it."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + words[-1:]


def build_events(text: str = ANSWER, *, usage: bool = True, done: bool = True, finish_reason: str | None = "stop") -> list[bytes]:
    """Return the events of a streamed answer."""
    events = [build_event(build_chunk(role := "", choices=[{"index": 0, "delta": {"role": "assistant", "content": role}}]))]
    events += [build_event(build_chunk(word)) for word in split_words(text)]
    if finish_reason is not None:
        events.append(build_event(build_chunk(finish_reason=finish_reason)))
    return events + ([USAGE_EVENT] if usage else []) + ([DONE_EVENT] if done else [])


def answer(text: str | None = None, **changes: object) -> Script:
    """
    Return a script that answers with *text*, streamed if that is requested, and with the usage if that is.

    Without *text*, it answers with `ANSWER`, or with `JSON_ANSWER` if the request has a `response_format`.
    """
    given = text

    async def run(exchange: Exchange) -> None:
        text = given if given is not None else JSON_ANSWER if "response_format" in exchange.body else ANSWER
        if not exchange.streams:
            await exchange.send_json(200, build_completion(text, **changes))
            return
        options = cast("Json", exchange.body.get("stream_options") or {})
        await stream_parts(build_events(text, usage=options.get("include_usage") is True))(exchange)

    return run


def respond(status: int, body: object, **headers: str) -> Script:
    """Return a script that answers with a status and JSON, or with bytes as they are."""

    async def run(exchange: Exchange) -> None:
        if isinstance(body, bytes):
            await exchange.send_response(status, body, **headers)
        else:
            await exchange.send_json(status, body, **headers)

    return run


def fail(status: int, message: str = "scripted failure", *, code: str | None = None, param: str | None = None, **headers: str) -> Script:
    """Return a script that answers with OpenAI's form of an error."""
    return respond(status, {"error": {"message": message, "type": "scripted", "code": code, "param": param}}, **headers)


def stream_parts(parts: Sequence[bytes], *, then: Script | None = None) -> Script:
    """Return a script that streams *parts*, each as one chunk of HTTP, and then ends the stream, or runs *then* instead."""

    async def run(exchange: Exchange) -> None:
        await exchange.start_stream()
        for part in parts:
            await exchange.send_part(part)
        await (then or _end_stream)(exchange)

    return run


async def _end_stream(exchange: Exchange) -> None:
    await exchange.end_stream()


async def cut(exchange: Exchange) -> None:
    """Reset the connection."""
    exchange.cut()


async def hang(exchange: Exchange) -> None:
    """Send nothing more until the client closes the connection."""
    await exchange.hold()


async def hold_and_answer(exchange: Exchange) -> None:
    """Answer when the test calls `release`."""
    await exchange.hold()
    await answer()(exchange)


async def hold_after_headers(exchange: Exchange) -> None:
    """Send the headers, and the rest when the test calls `release`."""
    await exchange.start_stream()
    await exchange.hold()
    for part in build_events():
        await exchange.send_part(part)
    await exchange.end_stream()


async def cut_after_headers(exchange: Exchange) -> None:
    """Send the headers of a whole answer and a part of its body."""
    body = json.dumps(build_completion()).encode()
    await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body[:40])
    exchange.cut()


def reject_field(name: str, *, message: str | None = None, status: int = 400, then: Script | None = None) -> Script:
    """Return a script that rejects requests with a field, as providers that do not support it, and answers others with *then*."""

    async def run(exchange: Exchange) -> None:
        if name in exchange.body:
            await fail(status, message or f"Unrecognized request argument supplied: {name}")(exchange)
        else:
            await (then or answer())(exchange)

    return run


async def answer_with_hidden_prompt(exchange: Exchange) -> None:
    """Bill 2,000 tokens beside those of the prompt. A prompt with the word "wait" is held."""
    messages = cast("list[Json]", exchange.body["messages"])
    texts = "".join(str(message["content"]) for message in messages)
    if "wait" in texts:
        await exchange.hold()
    await answer(usage={**USAGE, "prompt_tokens": 2_000 + len(texts) // 4})(exchange)


async def answer_json_on_correction(exchange: Exchange) -> None:
    """Answer with JSON only if the request has a correction of an earlier answer."""
    messages = cast("list[Json]", exchange.body["messages"])
    is_corrected = any(message["role"] == "assistant" for message in messages)
    await answer(JSON_ANSWER if is_corrected else "Lyon is 173 m high.")(exchange)


SCRIPTS: dict[str, Script] = {
    "ok": answer(),
    "no-usage": answer(usage=None),
    "empty": answer(""),
    "truncated": respond(200, b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess'),
    "html": respond(200, b"<!doctype html><html><title>Welcome to nginx!</title><body>", content_type="text/html"),
    "500": fail(500),
    "503": fail(503, "overloaded"),
    "429": fail(429, "too many requests", retry_after="0"),
    "413": respond(413, b"<html><title>413 Request Entity Too Large</title>", content_type="text/html"),
    "hang": hang,
    "hang-in-stream": stream_parts(build_events()[:4], then=hang),
    "hold": hold_and_answer,
    "hold-after-headers": hold_after_headers,
    "cut-before-headers": cut,
    "cut-after-headers": cut_after_headers,
    "cut-in-stream": stream_parts(build_events()[:4], then=cut),
    "no-done": stream_parts(build_events(done=False)),
    "no-usage-option": reject_field("stream_options"),
    "no-response-format": reject_field("response_format"),
    "json-on-correction": answer_json_on_correction,
    "hidden-prompt": answer_with_hidden_prompt,
}
"""Scripts by the name of the model. Any other name is not found."""


@contextmanager
def run_chat_service(service: ChatService | None = None) -> Generator[ChatService]:
    """Run a service on its own port, in a thread of its own."""
    service = service or ChatService()
    runner = _Runner(service)
    thread = threading.Thread(target=runner.run, name="chat-service")
    thread.start()
    try:
        runner.wait_until_ready()
        yield service
    finally:
        runner.stop()
        thread.join()


class _Runner:
    def __init__(self, service: ChatService) -> None:
        self._service = service
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    def wait_until_ready(self) -> None:
        if not self._is_ready.wait(HANG_S):
            msg = "the chat service does not start"
            raise RuntimeError(msg)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        context = None
        if self._service.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._service.certificate)
        shutdown_timeout_s = None if context is None else 0.1
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._service.port, ssl=context, ssl_shutdown_timeout=shutdown_timeout_s
        )
        self._service.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._stopping.wait()
        await stop_listening(server)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await run_callbacks()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._service.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                exchange = Exchange(self._service, request, reader, writer)
                await self._answer(exchange)
                if exchange.closes:
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _answer(self, exchange: Exchange) -> None:
        service, request = self._service, exchange.request
        if request.method == "GET":
            service.probes.append(request)
            await exchange.send_json(service.probe_status, {"object": "list", "data": [{"id": name} for name in SCRIPTS]})
            return
        service.requests.append(request)
        service.active_count += 1
        service.max_active_count = max(service.max_active_count, service.active_count)
        try:
            await self._select(exchange)(exchange)
        except DisconnectedError:
            service.disconnects += 1
            exchange.closes = True
        finally:
            service.active_count -= 1

    def _select(self, exchange: Exchange) -> Script:
        service, authorization = self._service, exchange.request.headers.get("authorization")
        if service.key is not None and authorization != f"Bearer {service.key}":
            return fail(401, f"Incorrect API key provided: {authorization}", code="invalid_api_key")
        if exchange.request.path != "/v1/chat/completions":
            return fail(404, f"unknown path {exchange.request.path}")
        if service.queue:
            return service.queue.popleft()
        model = exchange.body.get("model")
        return SCRIPTS.get(str(model)) or fail(404, f"The model {model!r} does not exist", code="model_not_found", param="model")


async def _read_request(reader: asyncio.StreamReader) -> RecordedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return RecordedRequest(method=method, path=path, headers=headers, body=body)


if __name__ == "__main__":
    with run_chat_service(ChatService(port=int(sys.argv[1]) if len(sys.argv) > 1 else 0)) as running:
        print(running.url(), flush=True)  # noqa: T201 - where it is
        sys.stdin.read()
