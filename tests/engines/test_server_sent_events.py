"""The parser of server-sent events: any split of the bytes gives the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines.text_generators.streamed_answer import EventTooLargeError, ServerSentEvent, ServerSentEventParser

LIMIT = 1000

PLAIN_LINES = [
    *(b"", b"data:", b"data", b"data: a", b"data:  b", b"data:[DONE]"),
    *(b"event: error", b"event:", b": comment", b"id: 7", b"x"),
]

lines = st.one_of(
    st.sampled_from(PLAIN_LINES),
    st.text("aé鷺🪶: ", max_size=8).map(lambda text: b"data: " + text.encode()),
    st.binary(max_size=6).map(lambda data: b"data:" + data.replace(b"\r", b"").replace(b"\n", b"")),
)
streams = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(lines, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=20),
).map(lambda parts: parts[0] + b"".join(line + end for line, end in parts[1]))


def parse(*parts: bytes, limit: int = LIMIT) -> list[ServerSentEvent]:
    """Return all events of a stream that arrives in *parts*."""
    parser = ServerSentEventParser(max_event_bytes=limit)
    return [event for part in parts for event in parser.feed(part)] + parser.finish()


def parse_slowly(stream: bytes) -> list[ServerSentEvent]:
    """Return the events by a plain reading of the standard."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    events: list[ServerSentEvent] = []
    kind, data = "", list[bytes]()
    for line in [*text.split(b"\n"), b"", b""]:
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not line:
            if data:
                events.append(ServerSentEvent(kind or "message", b"\n".join(data)))
            kind, data = "", []
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            kind = value.decode(errors="replace")
    return events


@given(stream=streams, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_any_split_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    """Split UTF-8, split lines, CRLF, comments, data of several lines."""
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    parts = [stream[first:last] for first, last in pairwise(places)]
    expected = parse_slowly(stream)

    assert parse(stream) == expected
    assert parse(*parts) == expected
    assert parse(*(stream[index : index + 1] for index in range(len(stream)))) == expected
    assert parse(b"", *parts, b"") == expected


def test_an_event_is_there_with_the_last_byte_of_its_empty_line() -> None:
    """The first streamed byte comes within 2 ms, so no event waits for the next one."""
    for line_end in (b"\n", b"\r\n", b"\r"):
        parser = ServerSentEventParser(max_event_bytes=LIMIT)
        assert parser.feed(b"data: a" + line_end) == []
        assert parser.feed(line_end[:1]) == [ServerSentEvent("message", b"a")]
        assert parser.feed(line_end[1:]) == []


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 2000, b"data: x\n" * 1000, b": " + b"x" * 2000])
def test_an_event_without_an_end_is_bounded(stream: bytes) -> None:
    """Otherwise a service could fill the memory."""
    with pytest.raises(EventTooLargeError):
        parse(*(stream[index : index + 100] for index in range(0, len(stream), 100)))
    with pytest.raises(EventTooLargeError):
        parse(stream)


def test_many_small_events_in_one_part_are_no_large_event() -> None:
    """The limit is for one event."""
    assert len(parse(b"data: x\n\n" * 10_000)) == 10_000
