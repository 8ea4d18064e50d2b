"""Responses with server-sent events, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping

import pytest

from rookery.kernel.http import EventStream, accepts_events, encode_event
from rookery.kernel.http.event_stream import send_comments
from tests.deadlines import HANG_S

SCOPE: dict[str, object] = {"type": "http"}


async def never_disconnect() -> dict[str, object]:
    """Receive nothing, like a caller that stays connected."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, False),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/event-stream", True),
        ("application/json, text/event-stream", True),
        ("TEXT/Event-Stream ; q=0.9, */*", True),
        ("text/event-streams", False),
        ("application/json;profile=text/event-stream", False),
    ],
)
def test_events_are_sent_if_the_accept_header_has_them(accept: str | None, expected: bool) -> None:
    """`Accept: text/event-stream` selects a stream."""
    assert accepts_events(accept) is expected


async def test_a_quiet_stream_is_kept_alive() -> None:
    """Proxies close connections that are silent for a minute, so the stream sends comments."""
    gate = asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        await gate.wait()
        yield encode_event("result", b"{}")

    sent = list[bytes]()

    async def send(message: MutableMapping[str, object]) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        sent.append(body)
        if sent.count(b": still here\n\n") == 3:
            gate.set()

    await asyncio.wait_for(EventStream(parts(), keep_alive_s=0.01)(SCOPE, never_disconnect, send), HANG_S)

    assert sent[0] == b""
    assert set(sent[1:-2]) == {b": still here\n\n"}
    assert sent[-2:] == [b"event: result\ndata: {}\n\n", b""]


async def test_a_quiet_stream_of_others_gets_comments_between_its_events() -> None:
    """The streams of MCP come from its SDK. A comment within an event would break it, and other answers have none."""
    sent, has_comments = list[bytes](), asyncio.Event()

    async def send(message: MutableMapping[str, object]) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)
        sent.append(body)
        if sent.count(b": still here\n\n") == 3:
            has_comments.set()

    async def answer(kind: bytes, *parts: bytes) -> None:
        async with send_comments(send, interval_s=0.01) as send_commented:
            await send_commented({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            for part in parts:
                await send_commented({"type": "http.response.body", "body": part, "more_body": True})
                await asyncio.wait_for(has_comments.wait(), HANG_S if part.endswith(b"\r\n\r\n") else 0.1)
            await send_commented({"type": "http.response.body", "body": b"", "more_body": False})

    await answer(b"text/event-stream", b"event: message\r\ndata: {}\r\n\r\n")
    of_stream, sent[:] = list(sent), []
    has_comments.clear()
    with pytest.raises(TimeoutError):
        await answer(b"text/event-stream", b"data: {")
    with pytest.raises(TimeoutError):
        await answer(b"application/json", b"{}")

    assert of_stream == [b"", b"event: message\r\ndata: {}\r\n\r\n", *[b": still here\n\n"] * 3, b""]
    assert sent == [b"", b"data: {", b"", b"{}"]


async def test_a_disconnected_caller_ends_the_source_of_the_stream() -> None:
    """The work stops, and no task is left."""
    has_ended = asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            yield encode_event("progress", b"{}")
            await asyncio.Event().wait()
        finally:
            has_ended.set()

    has_read = asyncio.Event()

    async def receive() -> dict[str, object]:
        await has_read.wait()
        return {"type": "http.disconnect"}

    sent = list[MutableMapping[str, object]]()

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message)
        if message.get("body"):
            has_read.set()

    stream = EventStream(parts())
    tasks_before = asyncio.all_tasks()

    await asyncio.wait_for(stream(SCOPE, receive, send), HANG_S)
    await asyncio.sleep(0)

    assert has_ended.is_set()
    assert sent[-1]["more_body"] is True  # the stream is not completed
    assert stream.status_code == 499
    assert asyncio.all_tasks() == tasks_before


async def test_a_cancelled_stream_ends_its_source() -> None:
    """A server that stops does not wait for streams."""
    has_started, has_ended = asyncio.Event(), asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            has_started.set()
            await asyncio.Event().wait()
            yield b""
        finally:
            has_ended.set()

    async def send(message: MutableMapping[str, object]) -> None:
        assert message["type"] == "http.response.start"

    task = asyncio.create_task(EventStream(parts())(SCOPE, never_disconnect, send))
    await has_started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert has_ended.is_set()
