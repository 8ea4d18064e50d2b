"""Server-sent events as an answer (D-34), without a server around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping

import pytest

from rookery.kernel.http import EventStream, accepts_events, encode_event

SCOPE: dict[str, object] = {"type": "http"}


async def never() -> dict[str, object]:
    """Be a caller that stays."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("accept", "wanted"),
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
def test_events_are_sent_to_those_who_name_them(accept: str | None, wanted: bool) -> None:
    """D-34: `Accept: text/event-stream` streams."""
    assert accepts_events(accept) is wanted


async def test_a_quiet_stream_is_kept_alive() -> None:
    """D-34: proxies close what says nothing for a minute; a comment is no event."""
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

    await asyncio.wait_for(EventStream(parts(), keep_alive_s=0.01)(SCOPE, never, send), 10)

    assert sent[0] == b""
    assert set(sent[1:-2]) == {b": still here\n\n"}
    assert sent[-2:] == [b"event: result\ndata: {}\n\n", b""]


async def test_a_caller_that_leaves_ends_what_the_stream_waits_for() -> None:
    """D-34: when the reader disconnects, the work stops and no task is left."""
    ended = asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            yield encode_event("progress", b"{}")
            await asyncio.Event().wait()
        finally:
            ended.set()

    read = asyncio.Event()

    async def receive() -> dict[str, object]:
        await read.wait()
        return {"type": "http.disconnect"}

    sent = list[MutableMapping[str, object]]()

    async def send(message: MutableMapping[str, object]) -> None:
        sent.append(message)
        if message.get("body"):
            read.set()

    stream = EventStream(parts())
    before = asyncio.all_tasks()

    await asyncio.wait_for(stream(SCOPE, receive, send), 10)
    await asyncio.sleep(0)

    assert ended.is_set()
    assert sent[-1]["more_body"] is True  # the end is not pretended
    assert stream.status_code == 499
    assert asyncio.all_tasks() == before


async def test_a_stream_that_is_cancelled_ends_its_source() -> None:
    """D-34: so a server that stops waits for no stream."""
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def parts() -> AsyncGenerator[bytes]:
        try:
            waiting.set()
            await asyncio.Event().wait()
            yield b""
        finally:
            ended.set()

    async def send(message: MutableMapping[str, object]) -> None:
        assert message["type"] == "http.response.start"

    running = asyncio.create_task(EventStream(parts())(SCOPE, never, send))
    await waiting.wait()
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
